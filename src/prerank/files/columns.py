"""Columns of a file: what they hold, as numbers or as text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Column",
    "as_arrow",
    "as_column",
    "as_float32",
    "as_numbers",
    "decoded",
    "family",
    "refuse_constant",
]

_LONGEST_SAMPLE = 40
_LARGEST_EXACT = 2.0**53  # whole numbers beyond it share a float64
_MOST_ROUNDING = 1e-3  # standard deviations that float32 may move a value


@dataclass(frozen=True)
class Column:
    """Values of one column, N of them.

    Attributes:
        name: of the column.
        values: `(N,)`, float64 for numbers and truth values, objects for text.
        missing: `(N,)`, where there is no value.
        kind: `number` (with a fraction, or a whole one among missing values), `whole`, `truth`
            or `text`.
        rest: `(N,)`, what float64 leaves out: the file says values + rest. Zero but for whole
            numbers and decimals beyond 2^53.
    """

    name: str
    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]
    kind: str
    rest: npt.NDArray[np.float64]

    @property
    def distinct(self) -> int:
        """Number of distinct values."""
        present = self.values[~self.missing]
        if self.kind == "text":
            return len(set(present))
        return _distinct(present, self.rest[~self.missing])


def family(kind: "pa.DataType") -> str:
    """What a type holds: number, truth, text, date, time, duration, binary, nested, or its name.

    Example:
        >>> import pyarrow as pa
        >>> family(pa.int8()), family(pa.large_string()), family(pa.list_(pa.int8()))
        ('number', 'text', 'nested')
    """
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = {
        "number": (types.is_integer, types.is_floating, types.is_decimal),
        "truth": (types.is_boolean,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "date": (types.is_timestamp, types.is_date),
        "time": (types.is_time,),
        "duration": (types.is_duration,),
        "binary": (
            *(types.is_binary, types.is_large_binary, types.is_binary_view),
            types.is_fixed_size_binary,
        ),
        "nested": (types.is_nested,),
    }
    return next((name for name, group in tests.items() if any(t(kind) for t in group)), str(kind))


def decoded(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """A column without the dictionary that may stand before its values."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def as_arrow(values: npt.NDArray[Any]) -> "pa.ChunkedArray":
    """One axis of numbers, dates or text as a column.

    Example:
        >>> as_arrow(np.array(["2024-05-01T06"], dtype="datetime64[h]")).type
        TimestampType(timestamp[s])
    """
    import pyarrow as pa

    kind = values.dtype.kind
    if kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    elif kind in "mM" and np.datetime_data(values.dtype)[0] in ("Y", "M", "W", "h", "m"):
        values = values.astype(f"{kind}8[s]")
    elif values.dtype.byteorder not in "=|":
        values = values.astype(values.dtype.newbyteorder("="))
    try:
        array = pa.array(values.tolist() if kind == "O" else np.ascontiguousarray(values))
    except (pa.ArrowException, TypeError, ValueError):
        texts = [str(value).encode("utf-8", "replace").decode() for value in values.tolist()]
        array = pa.array(texts)
    return pa.chunked_array([array])


def as_column(name: str, array: "pa.ChunkedArray") -> Column:
    """Turn an Arrow array into numbers or text.

    A column of whole numbers with missing values counts as one of numbers: so it did in the
    published runs, whose library has no missing whole number. Dates and times are text.

    Example:
        >>> import pyarrow as pa
        >>> column = as_column("bed", pa.chunked_array([["sand", None, "sand"]]))
        >>> column.kind, column.missing.tolist(), column.distinct
        ('text', [False, True, False], 1)
    """
    import pyarrow as pa

    array = decoded(array)
    kind = family(array.type)
    if kind == "truth":
        return _numbers(name, array.cast(pa.int8()), kind)
    if kind in ("number", "null"):
        whole = pa.types.is_integer(array.type) and not array.null_count
        return _numbers(name, array, "whole" if whole else "number")
    if kind in ("date", "time"):
        array = array.cast(pa.string())
    elif kind != "text":
        raise InputError(
            f"column {name!r} holds {array.type}: only numbers, truth values and text can be used"
        )
    values = np.empty(len(array), dtype=object)
    values[:] = array.to_pylist()
    missing = np.array([value is None for value in values], dtype=bool)
    return Column(name, values, missing, "text", np.zeros(len(values)))


def as_numbers(name: str, array: "pa.ChunkedArray") -> Column:
    """Turn an Arrow array into numbers; text will do where every value reads as one.

    Example:
        >>> import pyarrow as pa
        >>> as_numbers("grade", pa.chunked_array([["1", None, "3.5"]])).values
        array([1. , nan, 3.5])
        >>> as_numbers("grade", pa.chunked_array([["1", "good"]]))
        Traceback (most recent call last):
        prerank.errors.InputError: column 'grade' holds text, such as 'good' (1 of 2 rows, ...
    """
    import pandas as pd
    import pyarrow as pa

    column = as_column(name, array)
    if column.kind != "text":
        return column
    texts = pa.chunked_array([column.values.tolist()], type=pa.string())
    try:
        return _numbers(name, texts.cast(pa.float64()), "number")
    except pa.ArrowInvalid:
        pass
    filled = np.flatnonzero(~column.missing)
    first = next(int(row) for row in filled if not _is_number(column.values[row]))
    wrong = pd.to_numeric(pd.Series(column.values[filled]), errors="coerce").isna()
    bad = column.values[first]
    advice = ": decimals need a point" if _is_number(bad.replace(",", ".")) else ""
    sample = bad if len(bad) <= _LONGEST_SAMPLE else bad[:_LONGEST_SAMPLE] + "..."
    raise InputError(
        f"column {name!r} holds text, such as {sample!r}{advice} ({max(1, int(wrong.sum()))} of "
        f"{len(column.values)} rows, first in row {first + 1})"
    )


def as_float32(
    column: Column, rows: npt.NDArray[np.bool_], *, faithful: bool = False
) -> npt.NDArray[np.float32]:
    """The numbers of some rows in float32; what has no finite float32 raises.

    Args:
        column: of N numbers.
        rows: `(N,)`, which of them.
        faithful: whether to raise, too, where rounding hides what the numbers say: for y in the
            file and s its standard deviation, where max |float32(y) - y| > 0.001 s. Numbers that
            are all the same have nothing to hide.

    Example:
        >>> import pyarrow as pa
        >>> seconds = as_column("time", pa.chunked_array([[1_700_000_000 + i for i in range(40)]]))
        >>> as_float32(seconds, ~seconds.missing, faithful=True)
        Traceback (most recent call last):
        prerank.errors.InputError: column 'time' does not fit float32: its 40 distinct values ...
    """
    values, rest = column.values[rows], column.rest[rows]
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    bad = ~np.isfinite(rounded)
    if bad.any():
        raise InputError(
            f"column {column.name!r} has {int(bad.sum())} values that are infinite or too large "
            f"for float32, such as {values[bad][0]}"
        )
    if not (faithful and len(values)):
        return rounded
    error = np.abs((rounded - values) - rest).max()
    spread = ((values - values[0]) + rest).std()
    if error <= _MOST_ROUNDING * spread or (distinct := _distinct(values, rest)) == 1:
        return rounded
    if np.abs(values).max() < np.finfo(np.float32).tiny:
        advice = f"divide it by a unit, such as {spread or np.abs(values).max():.0e}"
    else:
        advice = "subtract an offset from it, such as its smallest value"
    raise InputError(
        f"column {column.name!r} does not fit float32: its {distinct} distinct values become "
        f"{len(np.unique(rounded))}, moved by up to {error:.2g} where their standard deviation is "
        f"{spread:.2g}; {advice}"
    )


def refuse_constant(name: str, values: npt.NDArray[Any]) -> None:
    """Raise if a target has one value in all of several rows."""
    if len(values) > 1 and (values == values[0]).all():
        raise InputError(
            f"target {name!r} is {values[0]:g} in every row: there is nothing to predict"
        )


def _numbers(name: str, array: "pa.ChunkedArray", kind: str) -> Column:
    """Float64 values, and what they leave out of whole numbers and decimals beyond 2^53."""
    import pyarrow as pa

    # Not safe: a whole number beyond 2^53 is rounded instead of refused.
    values = array.cast(pa.float64(), safe=False).to_numpy()
    rest = np.zeros(len(values))
    if pa.types.is_integer(array.type) or pa.types.is_decimal(array.type):
        large = np.flatnonzero(np.abs(values) > _LARGEST_EXACT)
        pairs = zip(array.take(pa.array(large)).to_pylist(), values[large], strict=True)
        rest[large] = [float(exact - int(value)) for exact, value in pairs]
    return Column(name, values, np.isnan(values), kind, rest)


def _distinct(values: npt.NDArray[np.float64], rest: npt.NDArray[np.float64]) -> int:
    if rest.any():
        return len(set(zip(values.tolist(), rest.tolist(), strict=True)))
    return len(np.unique(values))


def _is_number(text: str) -> bool:
    import pyarrow as pa

    try:
        pa.array([text]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
