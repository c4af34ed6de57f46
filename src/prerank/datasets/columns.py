"""One column of a file, as numbers or as text, with its missing values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "as_column", "as_float32", "as_numbers"]

_LONGEST_SAMPLE = 40


@dataclass(frozen=True)
class Column:
    """Values of one column, N of them.

    Attributes:
        name: of the column.
        values: `(N,)`, float64 for numbers and truth values, objects for text.
        missing: `(N,)`, where there is no value.
        kind: `number` (with a fraction, or a whole one among missing values), `whole`, `truth`
            or `text`.
    """

    name: str
    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_]
    kind: str

    @property
    def distinct(self) -> int:
        """How many different values there are."""
        present = self.values[~self.missing]
        return len(set(present)) if self.kind == "text" else len(np.unique(present))


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
    return Column(name, values, np.array([value is None for value in values], dtype=bool), "text")


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


def as_float32(column: Column, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """The numbers of some rows in float32; what has no finite float32 raises."""
    values = column.values[rows]
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    bad = ~np.isfinite(rounded)
    if bad.any():
        raise InputError(
            f"column {column.name!r} has {int(bad.sum())} values that are infinite or too large "
            f"for float32, such as {values[bad][0]}"
        )
    return rounded


def _numbers(name: str, array: "pa.ChunkedArray", kind: str) -> Column:
    import pyarrow as pa

    # Not safe: a whole number beyond 2^53 is rounded instead of refused.
    values = array.cast(pa.float64(), safe=False).to_numpy()
    return Column(name, values, np.isnan(values), kind)


def _is_number(text: str) -> bool:
    import pyarrow as pa

    try:
        pa.array([text]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
