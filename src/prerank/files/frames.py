"""The columns of a file, whatever its format, found by name, with messages that name the file."""

from collections.abc import Collection, Iterator, Mapping, Sequence
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
from prerank.files.comparison import factorise

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Frame", "did_you_mean", "find_name", "listed", "naming", "option"]

_MOST_LISTED = 12


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

    def text(self, name: str, rows: npt.NDArray[np.int64]) -> tuple[str, ...]:
        """Some values of a column as text; a missing one raises."""
        import pyarrow as pa

        column = decoded(self.column(name, " for the groups")).take(pa.array(rows))
        missing = self.missing(name)[rows]
        if missing.any():
            raise InputError(
                f"{self.path}: column {name!r} for the groups has no value in data row "
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


def did_you_mean(wanted: Sequence[str], known: Collection[str], *, cutoff: float = 0.6) -> str:
    """Known names that are similar to unknown ones, or else those that there are.

    Example:
        >>> did_you_mean(["Flwo"], ["flow", "depth"]), did_you_mean(["q"], ["flow", "depth"])
        ('did you mean flow?', 'there are flow, depth')
    """
    similar = {other.lower(): other for other in reversed(list(known))}
    near = [similar[m] for w in wanted for m in get_close_matches(w.lower(), similar, 3, cutoff)]
    if near:
        return f"did you mean {', '.join(dict.fromkeys(near))}?"
    return f"there are {listed(known) or 'none'}"


def listed(names: Collection[str]) -> str:
    """Names with commas, cut short where there are many.

    Example:
        >>> listed(["a", "b"])
        'a, b'
    """
    shown = list(names)[:_MOST_LISTED]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def option(name: str) -> str:
    """How to name an argument in a message: in Python, and on the command line.

    Example:
        >>> option("sample_axis")
        'sample_axis (--sample-axis)'
    """
    return f"{name} (--{name.replace('_', '-')})"
