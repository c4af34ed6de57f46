"""Tables of inputs and targets in Parquet files, with a hash of their numbers."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.files.column_files import read_parquet
from prerank.files.columns import as_column, as_float32
from prerank.files.disk import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MEND",
    "ForeignFileError",
    "Table",
    "content_hash",
    "read_table",
    "table_shape",
    "write_table",
]

MEND = "if it is damaged, remove it, and fetch or import it again"
"""What to do about a table that cannot be read."""

# Where a file's schema keeps the original names of its columns, as JSON lists.
_NAMES = {"x": b"x_columns", "y": b"y_columns"}


class ForeignFileError(InputError):
    """Valid Parquet without the columns x0, ... and y0, ..."""


@dataclass(frozen=True)
class Table:
    """Rows of inputs and targets, in float32.

    Attributes:
        name: of the dataset.
        x: `(N, L)`.
        y: `(N, D)`.
        inputs: names of the input columns, L of them: the original ones where the file has
            them, x0, x1, ... otherwise.
        targets: names of the target columns, D of them, in the same way.
    """

    name: str
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]


def read_table(path: Path) -> Table:
    """Read a table, whose columns x0, x1, ... are inputs and y0, y1, ... targets.

    Raises:
        OSError: when the file cannot be opened.
        InputError: when it is damaged, or has an input or a target that is not a finite number in
            every row; the message names the file.
    """
    try:
        frame = read_parquet(path)
        columns = _columns(frame.column_names)
        x, y = (np.stack([_values(frame, c) for c in columns[kind]], axis=1) for kind in "xy")
    except InputError as error:
        raise InputError(f"cannot read {path}: {_reason(error)}; {MEND}") from error
    known = frame.schema.metadata or {}
    inputs, targets = (_original_names(known, kind, columns[kind]) for kind in "xy")
    return Table(path.stem, x, y, inputs, targets)


def write_table(table: Table, path: Path) -> Path:
    """Write a table in one step, with the names of the columns in its schema.

    Example:
        >>> import tempfile
        >>> x, y = np.zeros((2, 1), np.float32), np.ones((2, 1), np.float32)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "ones.parquet")
        ...     read_table(write_table(Table("ones", x, y, ("age",), ("height",)), path)).targets
        ('height',)
    """
    import pyarrow
    from pyarrow import parquet

    parts = {"x": (table.x, table.inputs), "y": (table.y, table.targets)}
    for kind, (values, names) in parts.items():
        if values.ndim != 2 or values.shape != (len(table.y), len(names)):
            raise ShapeError(
                f"{kind} of table {table.name!r} must be ({len(table.y)}, {len(names)}), "
                f"got {values.shape}"
            )
    columns = {
        f"{kind}{number}": np.ascontiguousarray(column, dtype=np.float32)
        for kind, (values, _) in parts.items()
        for number, column in enumerate(values.T)
    }
    about = {_NAMES[kind]: json.dumps(list(names)) for kind, (_, names) in parts.items()}
    frame = pyarrow.table(columns).replace_schema_metadata(about | {b"dataset": table.name})
    write = partial(parquet.write_table, frame, compression="zstd", write_page_checksum=True)
    try:
        return write_atomically(path, write)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error


def table_shape(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Numbers of rows, inputs and targets of a file, N, L and D, without reading the rows.

    Raises:
        ForeignFileError: when it is a Parquet file of another kind.
        InputError: when it is damaged, or cannot be opened.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        about = parquet.read_metadata(path)
        columns = _columns(about.schema.to_arrow_schema().names)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        kind = ForeignFileError if isinstance(error, ForeignFileError) else InputError
        raise kind(f"cannot read {os.fspath(path)}: {_reason(error)}") from error
    return about.num_rows, len(columns["x"]), len(columns["y"])


def content_hash(table: Table) -> str:
    """SHA-256 of the numbers of a table: equal for equal numbers, however the file is packed."""
    digest = hashlib.sha256(repr((table.x.shape, table.y.shape)).encode())
    for values in (table.x, table.y):
        digest.update(np.ascontiguousarray(values, dtype="<f4").tobytes())
    return digest.hexdigest()


def _columns(names: list[str]) -> dict[str, list[str]]:
    columns = {}
    for kind in "xy":
        found = [name for name in names if re.fullmatch(rf"{kind}\d{{1,9}}", name, re.ASCII)]
        columns[kind] = sorted(found, key=lambda name: int(name[1:]))
    if not columns["x"] or not columns["y"]:
        raise ForeignFileError("it needs columns x0, x1, ... and y0, y1, ...")
    return columns


def _reason(error: Exception) -> str:
    """An error in one line without a full stop, so that words can follow."""
    return re.sub(r"(?<!\.)\.$", "", " ".join(str(error).split()))


def _values(frame: "pa.Table", name: str) -> npt.NDArray[np.float32]:
    column = as_column(name, frame[name])
    if column.kind == "text":
        raise InputError(f"column {name!r} holds text or times, where numbers are needed")
    if column.missing.any():
        raise InputError(f"column {name!r} has {int(column.missing.sum())} missing values")
    return as_float32(column, ~column.missing)


def _original_names(known: Mapping[bytes, bytes], kind: str, columns: list[str]) -> tuple[str, ...]:
    """Names from a file's schema, or those of its columns where the schema has none that fit."""
    try:
        names: Any = json.loads(known.get(_NAMES[kind], b"[]"))
    except (ValueError, RecursionError):
        names = []
    if isinstance(names, list) and len(names) == len(columns):
        return tuple(str(name) for name in names)
    return tuple(columns)
