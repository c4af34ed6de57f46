"""One column of a file, as numbers or as text, with its missing values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "as_column", "as_float32", "as_numbers", "refuse_constant"]

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
        """How many different values there are."""
        present = self.values[~self.missing]
        if self.kind == "text":
            return len(set(present))
        return _distinct(present, self.rest[~self.missing])


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

    types = pa.types
    if types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if types.is_boolean(kind):
        return _numbers(name, array.cast(pa.int8()), "truth")
    if types.is_integer(kind):
        return _numbers(name, array, "number" if array.null_count else "whole")
    if types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return _numbers(name, array, "number")
    if types.is_temporal(kind) and not types.is_duration(kind):
        array = array.cast(pa.string())
    elif not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise InputError(
            f"column {name!r} holds {kind}: only numbers, truth values and text can be used"
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
        prerank.errors.InputError: column 'grade' holds text, such as 'good'...
    """
    import pyarrow as pa

    column = as_column(name, array)
    if column.kind != "text":
        return column
    texts = pa.chunked_array([column.values.tolist()], type=pa.string())
    try:
        return _numbers(name, texts.cast(pa.float64()), "number")
    except pa.ArrowInvalid:
        pass
    bad = next(value for value in column.values if value is not None and not _is_number(value))
    advice = ": decimals need a point" if _is_number(bad.replace(",", ".")) else ""
    sample = bad if len(bad) <= _LONGEST_SAMPLE else bad[:_LONGEST_SAMPLE] + "..."
    raise InputError(f"column {name!r} holds text, such as {sample!r}{advice}")


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
    values = column.values[rows]
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    bad = ~np.isfinite(rounded)
    if bad.any():
        raise InputError(
            f"column {column.name!r} has {int(bad.sum())} values that are infinite or too large "
            f"for float32, such as {values[bad][0]}"
        )
    if faithful and len(values):
        _refuse_rounding(column.name, values, column.rest[rows], rounded)
    return rounded


def refuse_constant(name: str, values: npt.NDArray[Any]) -> None:
    """Raise if a target has one value in all of several rows."""
    if len(values) > 1 and (values == values[0]).all():
        raise InputError(
            f"target {name!r} is {values[0]:g} in every row: there is nothing to predict"
        )


def _refuse_rounding(
    name: str,
    values: npt.NDArray[np.float64],
    rest: npt.NDArray[np.float64],
    rounded: npt.NDArray[np.float32],
) -> None:
    error = np.abs((rounded - values) - rest).max()
    spread = ((values - values[0]) + rest).std()
    if error <= _MOST_ROUNDING * spread:
        return
    distinct = _distinct(values, rest)
    if distinct == 1:
        return
    if np.abs(values).max() < np.finfo(np.float32).tiny:
        advice = f"divide it by a unit, such as {spread or np.abs(values).max():.0e}"
    else:
        advice = "subtract an offset from it, such as its smallest value"
    raise InputError(
        f"column {name!r} does not fit float32: its {distinct} distinct values become "
        f"{len(np.unique(rounded))}, moved by up to {error:.2g} where their standard deviation is "
        f"{spread:.2g}; {advice}"
    )


def _numbers(name: str, array: "pa.ChunkedArray", kind: str) -> Column:
    import pyarrow as pa

    # Not safe: a whole number beyond 2^53 is rounded instead of refused.
    values = array.cast(pa.float64(), safe=False).to_numpy()
    return Column(name, values, np.isnan(values), kind, _rest(array, values))


def _distinct(values: npt.NDArray[np.float64], rest: npt.NDArray[np.float64]) -> int:
    if rest.any():
        return len(set(zip(values.tolist(), rest.tolist(), strict=True)))
    return len(np.unique(values))


def _rest(array: "pa.ChunkedArray", values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    import pyarrow as pa

    rest = np.zeros(len(values))
    if pa.types.is_integer(array.type) or pa.types.is_decimal(array.type):
        large = np.flatnonzero(np.abs(values) > _LARGEST_EXACT)
        pairs = zip(array.take(pa.array(large)).to_pylist(), values[large], strict=True)
        rest[large] = [float(exact - int(value)) for exact, value in pairs]
    return rest


def _is_number(text: str) -> bool:
    import pyarrow as pa

    try:
        pa.array([text]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
