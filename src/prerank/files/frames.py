"""The columns of a file, whatever its format: by name, and compared with those of another file."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.columns import as_numbers, decoded, family
from prerank.files.visible_text import visible_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Frame",
    "codes_without_each",
    "combined",
    "comparable",
    "did_you_mean",
    "factorise",
    "find_name",
    "listed",
    "naming",
    "option",
    "positions",
]

_MOST_LISTED = 12
_MOST_COMPARED = 3  # unknown names that are compared with all known ones


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of one length.

    Attributes:
        path: of the file, for messages.
        size: number of values in each column.
        columns: by name.
        dims: for a file with dimensions, the lengths of those that span the rows.
        bare: the dimensions among them without coordinates; their columns count from 0.

    Example:
        >>> import pyarrow as pa
        >>> frame = Frame(Path("a.csv"), 2, {"city": pa.chunked_array([["Bonn", "Ghent"]])})
        >>> frame.text("city", np.array([1])), frame.described(["city"], 1)
        (('Ghent',), "city='Ghent'")
        >>> frame.column("town")
        Traceback (most recent call last):
        prerank.errors.InputError: a.csv: no column 'town'; there are city
    """

    path: Path
    size: int
    columns: Mapping[str, "pa.ChunkedArray"]
    dims: Mapping[str, int] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """Names of the columns with numbers; truth values, dates and text do not count."""
        return tuple(n for n, column in self.columns.items() if family(column.type) == "number")

    def column(self, name: str, use: str = "") -> "pa.ChunkedArray":
        """The column of that name; an unknown name raises, and the message says what it is for."""
        with naming(self.path):
            return self.columns[find_name(name, self.columns, use)]

    def complete(self, name: str, use: str) -> "pa.ChunkedArray":
        """The column of that name, where every row has a value."""
        column, missing = self.column(name, use), self.missing(name)
        if missing.any():
            raise InputError(
                f"{self.path}: column {name!r}{use} has {int(missing.sum())} missing values, the "
                f"first in data row {int(missing.argmax()) + 1}: fill them in, remove those rows, "
                "or name another column"
            )
        return column

    def missing(self, name: str) -> npt.NDArray[np.bool_]:
        """Where a column has no value."""
        import pyarrow.compute as pc

        return pc.is_null(self.column(name), nan_is_null=True).to_numpy()

    def numbers(self, name: str, use: str = "") -> npt.NDArray[np.float64]:
        """A column as float64, with NaN where a value is missing; text raises."""
        column = self.column(name, use)
        try:
            return as_numbers(name, column).values
        except InputError as error:
            raise InputError(f"{self.path}: {error}{use}: only numbers can be used") from error

    def text(self, name: str, rows: npt.NDArray[np.int64], what: str = "groups") -> tuple[str, ...]:
        """Some values of a column as text; a missing one raises."""
        import pyarrow as pa

        column = decoded(self.column(name, f" for the {what}")).take(pa.array(rows))
        missing = self.missing(name)[rows]
        if missing.any():
            raise InputError(
                f"{self.path}: column {name!r} for the {what} has no value in data row "
                f"{rows[missing.argmax()] + 1}: fill it in, or name another column"
            )
        whole = (
            int(v) if isinstance(v, float) and v.is_integer() else v for v in column.to_pylist()
        )
        return tuple(map(str, whole))

    def codes(self, *names: str) -> npt.NDArray[np.int64]:
        """Numbers of the rows, equal where the rows agree in these columns."""
        return factorise([self.columns[name] for name in names])

    def distinguishes(self, names: Sequence[str]) -> bool:
        """Whether no two rows agree in all of these columns."""
        return len(np.unique(self.codes(*names))) == self.size if names else self.size < 2

    def described(self, names: Sequence[str], row: int) -> str:
        """A row in words: its values in some columns, or its number where there are none."""
        if not names:
            return f"data row {row + 1}"
        values = [self.columns[name][row].as_py() for name in names]
        return ", ".join(
            f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
            for name, value in zip(names, values, strict=True)
        )


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
    return combined(map(_codes, columns))


def combined(parts: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Numbers of the rows, equal where all of some numbers are.

    Example:
        >>> combined([np.array([7, 7, 8]), np.array([5, 6, 5])])
        array([0, 1, 2])
    """
    import pandas as pd

    first, *others = parts
    codes = pd.factorize(first)[0]
    for part in others:
        codes = pd.factorize(codes * (part.max(initial=0) + 1) + part)[0]
    return codes.astype(np.int64)


def codes_without_each(
    parts: Sequence[npt.NDArray[np.int64]],
) -> Iterator[npt.NDArray[np.int64]]:
    """Combine all parts but one, for each of them; the work grows as their number, not its square.

    Example:
        >>> [codes.tolist() for codes in codes_without_each([np.array([7, 7]), np.array([5, 6])])]
        [[0, 1], [0, 0]]
    """
    none = np.zeros_like(parts[0])
    after = [none]
    for part in reversed(parts[1:]):
        after.append(combined([part, after[-1]]))
    before = none
    for part, rest in zip(parts, reversed(after), strict=True):
        yield combined([before, rest])
        before = combined([before, part])


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


@contextmanager
def naming(path: Path, *others: Path) -> Iterator[None]:
    """Put the path of a file before the message of an `InputError`.

    Args:
        path: of the file.
        others: further files that are read; a message that begins with one of them stays.
    """
    try:
        yield
    except InputError as error:
        if str(error).startswith(tuple(f"{known}: " for known in (path, *others))):
            raise
        raise type(error)(f"{path}: {error}") from error


def find_name(name: str, names: Collection[str], use: str = "") -> str:
    """A name that is among others; an unknown one raises, with similar ones in the message."""
    if name not in names:
        raise InputError(f"no column {name!r}{use}; {did_you_mean([name], names)}")
    return name


def did_you_mean(
    wanted: Sequence[str],
    known: Collection[str],
    *,
    cutoff: float = 0.6,
    most: int = _MOST_LISTED,
) -> str:
    """Known names that are similar to unknown ones, or else those that there are.

    Example:
        >>> did_you_mean(["Flwo"], ["flow", "depth"]), did_you_mean(["q"], ["flow", "depth"])
        ('did you mean flow?', 'there are flow, depth')
    """
    similar = {other.lower(): other for other in reversed(list(known))}
    compared = wanted[:_MOST_COMPARED]
    near = [similar[m] for w in compared for m in get_close_matches(w.lower(), similar, 3, cutoff)]
    if near:
        return f"did you mean {', '.join(dict.fromkeys(near))}?"
    return f"there are {listed(known, most) or 'none'}"


def listed(names: Collection[str], most: int = _MOST_LISTED) -> str:
    """Names with commas, cut short where there are many.

    Example:
        >>> listed(["a", "b"])
        'a, b'
    """
    shown = [visible_name(name) for name in list(names)[:most]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def positions(wanted: Iterable[str], names: Iterable[str]) -> list[int]:
    """Where names stand among others.

    Example:
        >>> positions(["rain", "wind"], ["wind", "sun", "rain"])
        [2, 0]
    """
    places = {name: j for j, name in enumerate(names)}
    return [places[name] for name in wanted]


def option(name: str) -> str:
    """How to name an argument in a message: in Python, and on the command line.

    Example:
        >>> option("sample_axis")
        'sample_axis (--sample-axis)'
    """
    return f"{name} (--{name.replace('_', '-')})"
