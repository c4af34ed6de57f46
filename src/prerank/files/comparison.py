"""Values that are the same though two files write them differently."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.columns import decoded, family

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["comparable", "factorise", "order_lines", "ranked"]


def comparable(
    left: "pa.ChunkedArray", right: "pa.ChunkedArray"
) -> tuple["pa.ChunkedArray", "pa.ChunkedArray"]:
    """Give two columns one type in which equal things have equal values.

    Numbers of different precision are compared in the lower one: 0.1 in float32 is 0.1. Text that
    reads as numbers or dates equals those; otherwise, numbers become text.

    Example:
        >>> import pyarrow as pa
        >>> days = pa.chunked_array([["2024-05-01"]])
        >>> left, right = comparable(days, days.cast(pa.date32()))
        >>> left.equals(right)
        True
    """
    left, right = decoded(left), decoded(right)
    if left.type == right.type:
        return left, right
    for goal in _common_types(left.type, right.type):
        results = _cast(left, goal), _cast(right, goal)
        if results[0] is not None and results[1] is not None:
            return results[0], results[1]
    raise InputError(
        f"it holds {right.type}, such as {right[0].as_py()}, here and {left.type}, such as "
        f"{left[0].as_py()}, there: write both alike"
    )


def factorise(columns: "Sequence[pa.ChunkedArray]") -> npt.NDArray[np.int64]:
    """Number the rows so that those get the same number that agree in all columns.

    Example:
        >>> import pyarrow as pa
        >>> factorise([pa.chunked_array([["a", "b", "a"]]), pa.chunked_array([[1, 1, 2]])])
        array([0, 1, 2])
    """
    import pandas as pd

    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        part = _codes(column)
        codes, _ = pd.factorize(codes * (part.max(initial=0) + 1) + part)
    return codes


def ranked(column: "pa.ChunkedArray") -> npt.NDArray[np.int64]:
    """Number the rows so that the order of the numbers is that of the values.

    Example:
        >>> import pyarrow as pa
        >>> ranked(pa.chunked_array([["m2", "m1", "m2"]]))
        array([1, 0, 1])
    """
    import pyarrow.compute as pc

    encoded = decoded(column).combine_chunks().dictionary_encode()
    places = np.argsort(pc.sort_indices(encoded.dictionary).to_numpy())
    return places[encoded.indices.to_numpy()]


def order_lines(
    rows: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], tuple[int, int] | None]:
    """Lines by their rows and sample numbers, and the first two lines that agree in both.

    Args:
        rows: `(R,)`, the row of the observations that each line belongs to; negative ones are left
            out.
        numbers: `(R,)`, of the samples.

    Example:
        >>> order_lines(np.array([1, 0, -1, 0]), np.array([0, 1, 0, 0]))
        (array([3, 1, 0]), None)
    """
    found = np.flatnonzero(rows >= 0)
    order = found[np.lexsort((numbers[found], rows[found]))]
    again = np.flatnonzero((np.diff(rows[order]) == 0) & (np.diff(numbers[order]) == 0))
    pair = (int(order[again[0]]), int(order[again[0] + 1])) if len(again) else None
    return order, pair


def _codes(column: "pa.ChunkedArray") -> npt.NDArray[np.int64]:
    import pandas as pd
    import pyarrow as pa

    column = decoded(column)
    if pa.types.is_floating(column.type):  # pandas knows that -0 is 0
        return pd.factorize(column.cast(pa.float64()).to_numpy(), use_na_sentinel=False)[0]
    try:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError:  # lists and the like, which are no keys
        texts = pa.array([str(value) for value in column.to_pylist()])
        encoded = texts.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64)


def _cast(column: "pa.ChunkedArray", goal: "pa.DataType") -> "pa.ChunkedArray | None":
    """A column in another type, or None where a value has no place in it."""
    import pyarrow as pa

    types = pa.types
    rounds = family(column.type) == "number" or types.is_timestamp(column.type)
    if types.is_timestamp(column.type) and column.type.tz and types.is_timestamp(goal):
        goal_zoned = pa.timestamp(goal.unit, column.type.tz)  # then as UTC, which is kept inside
        return column.cast(goal_zoned, safe=False).cast(pa.int64()).cast(goal)
    try:
        return column.cast(goal, safe=not rounds)
    except pa.ArrowException:
        return None


def _common_types(left: "pa.DataType", right: "pa.DataType") -> "list[pa.DataType]":
    """The types to try for a comparison, best first."""
    import pyarrow as pa

    kinds = (left, right)
    if all(pa.types.is_integer(kind) for kind in kinds):
        return [pa.int64()]
    if all(pa.types.is_floating(kind) for kind in kinds):
        return [min(kinds, key=lambda kind: int(kind.bit_width))]
    families = {family(kind) for kind in kinds}
    if families <= {"number", "truth"}:
        return [pa.float64()]
    if families <= {"number", "truth", "text"}:
        return [pa.float64(), pa.large_string()] if "number" in families else [pa.large_string()]
    if families <= {"date", "text"}:
        return [pa.timestamp("us"), pa.timestamp("us", "UTC")]
    return {"duration": [pa.duration("us")], "time": [pa.time64("us")]}.get("".join(families), [])
