"""The columns of a file, whatever its format: found by name, told in words, as numbers or text."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.columns import as_numbers
from prerank.files.comparison import decoded, is_number

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Frame", "as_arrow", "find_name", "is_nested", "is_numeric", "listed", "option"]

_MOST_LISTED = 12


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of one length.

    Attributes:
        path: of the file, for messages.
        size: how many values each column has.
        columns: by name.
        dims: for a file with dimensions, how long each of those is that span the rows.
        bare: the dimensions among them that have no coordinates; their columns count from 0.

    Example:
        >>> frame = Frame(Path("a.csv"), 2, {"city": as_arrow(np.array(["Bonn", "Ghent"]))})
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

    def column(self, name: str, use: str = "") -> "pa.ChunkedArray":
        """The column of that name; one that is not there raises, and says what it is for."""
        return self.columns[find_name(self.path, name, self.columns, use)]

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
        return tuple(_text(value) for value in column.to_pylist())

    def described(self, names: Sequence[str], row: int) -> str:
        """A row in words: its values in some columns, or its number where there are none."""
        if not names:
            return f"data row {row + 1}"
        values = [self.columns[name][row].as_py() for name in names]
        return ", ".join(
            f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
            for name, value in zip(names, values, strict=True)
        )


def find_name(path: Path, name: str, names: Collection[str], use: str = "") -> str:
    """A name that is among others; one that is not raises, and suggests what may be meant."""
    if name in names:
        return name
    near = get_close_matches(name.lower(), [other.lower() for other in names], n=3)
    meant = [other for other in names if other.lower() in near]
    hint = f"did you mean {listed(meant)}" if meant else f"there are {listed(names) or 'none'}"
    raise InputError(f"{path}: no column {name!r}{use}; {hint}")


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
    """What to say the name with: the argument, and the option of the command line.

    Example:
        >>> option("sample_axis")
        'sample_axis (--sample-axis)'
    """
    return f"{name} (--{name.replace('_', '-')})"


def is_numeric(column: "pa.ChunkedArray") -> bool:
    """Whether a column holds numbers; truth values, dates and text are none."""
    return is_number(decoded(column).type)


def is_nested(column: "pa.ChunkedArray") -> bool:
    """Whether the values of a column are lists or records, which have no order."""
    import pyarrow as pa

    return bool(pa.types.is_nested(decoded(column).type))


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


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
