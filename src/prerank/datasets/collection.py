"""Datasets by name: tables in the data folder, and synthetic ones."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from prerank.datasets.registry import DATASETS, Dataset, canonical_name
from prerank.datasets.synthetic import SYNTHETIC
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.files import as_path
from prerank.files.dataset_tables import (
    ForeignFileError,
    Table,
    content_hash,
    read_table,
    table_shape,
    write_table,
)

__all__ = [
    "LocalTable",
    "check_name",
    "data_folder",
    "find_table",
    "is_registered_content",
    "load_table",
    "local_mismatch",
    "local_table",
    "local_tables",
    "open_dataset",
    "save_table",
    "table_mismatch",
    "table_path",
]

_LONGEST_NAME = 100  # with the suffix, and that of a temporary file, it fits every file system
_SYNTHETIC_ROWS, _SEED = 3000, 0


def data_folder() -> Path:
    """Folder of the datasets: `PRERANK_DATA`, or `prerank` in the user's cache."""
    chosen = os.environ.get("PRERANK_DATA")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "prerank"


def table_path(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Where the table of that name lies, or would lie: `FOLDER/NAME.parquet`."""
    place = data_folder() if folder is None else Path(folder)
    return as_path(place / f"{check_name(name)}.parquet")


def find_table(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """`table_path` of a name or, where nothing is there, of what else it is called."""
    path = table_path(name, folder)
    return path if path.exists() else table_path(canonical_name(name), folder)


def is_name(name: str) -> bool:
    """Whether a dataset may have that name."""
    return (
        re.fullmatch(r"\w[\w.-]*", name) is not None
        and ".." not in name
        and not name.endswith(".")
        and len(name.encode()) <= _LONGEST_NAME
    )


def check_name(name: str) -> str:
    """Refuse a name that could leave the folder, or that some file system does not take.

    Example:
        >>> check_name("air")
        'air'
        >>> check_name("../air")
        Traceback (most recent call last):
        prerank.errors.InputError: '../air' cannot name a dataset: ...
    """
    if not is_name(name):
        raise InputError(
            f"{name[: 2 * _LONGEST_NAME]!r} cannot name a dataset: use letters, digits, '_', '-' "
            f"and single dots, {_LONGEST_NAME} at most"
        )
    return name


@needed_by("load_table")
def load_table(name: str, folder: str | os.PathLike[str] | None = None) -> Table:
    """Read `NAME.parquet`, whose columns x0, x1, ... are inputs and y0, y1, ... targets.

    Where there is no file of that name, one of the name's other spellings in the registry will
    do: `blogdata` finds `blog_data.parquet`.

    Raises:
        InputError: when the file is not there or is damaged, or has an input or a target that is
            not a finite number in every row; the message names the file.
    """
    path = find_table(name, folder)
    try:
        return read_table(path)
    except OSError as error:
        listed = any(record.name == path.stem for record in DATASETS)
        advice = f"; `prerank datasets show {path.stem}` says how to get it" if listed else ""
        raise InputError(
            f"cannot read {path}: {error}. Set PRERANK_DATA to the folder that holds it{advice}"
        ) from error


@needed_by("save_table")
def save_table(table: Table, folder: str | os.PathLike[str] | None = None) -> Path:
    """Write `NAME.parquet` in one step, with the names of the columns in its schema."""
    return write_table(table, table_path(table.name, folder))


def open_dataset(name: str) -> Table:
    """A table by its name: one of `SYNTHETIC`, with 3,000 rows, or a file in the data folder.

    Example:
        >>> open_dataset("ar1").y.shape
        (3000, 3)
    """
    if name not in SYNTHETIC:
        return load_table(name)
    x, y = (p.float().numpy() for p in SYNTHETIC[name].sample(_SYNTHETIC_ROWS, generator=_SEED))
    inputs, targets = (
        tuple(f"{kind}{i}" for i in range(part.shape[1])) for kind, part in (("x", x), ("y", y))
    )
    return Table(name, x, y, inputs, targets)


@dataclass(frozen=True)
class LocalTable:
    """A table in the folder.

    Attributes:
        name: of the dataset.
        path: of the file.
        shape: rows N, inputs L and targets D; None where the file cannot be read.
        problem: why it cannot.
        foreign: whether it is valid Parquet without the columns of a table.
    """

    name: str
    path: Path
    shape: tuple[int, int, int] | None
    problem: str = ""
    foreign: bool = False


def local_table(name: str, folder: str | os.PathLike[str] | None = None) -> LocalTable | None:
    """The table of that name, or None where there is none.

    Example:
        >>> local_table("air", "/nowhere") is None
        True
    """
    path = table_path(name, folder)
    if not path.is_file():
        return None
    try:
        return LocalTable(name, path, table_shape(path))
    except InputError as error:
        return LocalTable(name, path, None, str(error), isinstance(error, ForeignFileError))


def local_tables(folder: str | os.PathLike[str] | None = None) -> dict[str, LocalTable]:
    """All tables of a folder by name: those of the registry, in its order, then others.

    Other Parquet files, without columns x0, ... and y0, ..., or with names that no dataset has, are
    passed over; damaged ones are not.
    """
    place = as_path(data_folder() if folder is None else folder)
    listed = [record.name for record in DATASETS]
    stems = {path.stem for path in place.glob("*.parquet")}
    others = sorted(name for name in stems - {*listed} if is_name(name))
    found = {name: local_table(name, place) for name in (*listed, *others)}
    return {
        name: copy for name, copy in found.items() if copy and (name in listed or not copy.foreign)
    }


def local_mismatch(record: Dataset, folder: str | os.PathLike[str] | None = None) -> str:
    """Why the file here cannot be the table of a record, without reading the rows.

    Nothing where it can be, or where there is none. A dataset that cannot be fetched may have other
    rows: it may be another sample.

    Example:
        >>> import tempfile
        >>> from prerank.datasets import find_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "air.parquet").write_bytes(b"")
        ...     local_mismatch(find_dataset("air"), folder)
        'cannot read ...air.parquet: ...'
    """
    copy = local_table(record.name, folder)
    if copy is None or copy.shape is None:
        return copy.problem if copy else ""
    wrong = _other_counts(copy.shape, record, record.n_rows if record.fetchable else None)
    return f"{copy.path} has {wrong}" if wrong else ""


def table_mismatch(record: Dataset, table: Table) -> str:
    """How a table differs from the one that its record describes; nothing where it does not.

    Numbers that are known have to be the same. Where none are, rows and columns have to be as many.

    Example:
        >>> import numpy as np
        >>> from prerank.datasets import find_dataset
        >>> x, y = np.zeros((9, 15), np.float32), np.zeros((9, 6), np.float32)
        >>> table_mismatch(find_dataset("air"), Table("air", x, y, (), ()))
        '9 instead of 10000 rows'
    """
    if record.content and content_hash(table) == record.content:
        return ""
    shape = len(table.y), table.x.shape[1], table.y.shape[1]
    known = "other numbers" if record.content else ""
    return _other_counts(shape, record, record.n_rows) or known


def is_registered_content(
    record: Dataset, folder: str | os.PathLike[str] | None = None
) -> bool | None:
    """Whether the table here is, number for number, the one that the registry knows.

    None where the registry knows none, or there is no table that can be read.
    """
    copy = local_table(record.name, folder)
    if not record.content or copy is None or copy.shape is None:
        return None
    return content_hash(load_table(record.name, folder)) == record.content


def _other_counts(shape: tuple[int, int, int], record: Dataset, n_rows: int | None) -> str:
    """Which of N, L and D are not what they should be, where that is known."""
    wanted = {"rows": n_rows, "inputs": record.n_inputs, "targets": record.n_targets}
    wrong = [
        f"{found} instead of {right} {what}"
        for found, (what, right) in zip(shape, wanted.items(), strict=True)
        if right not in (None, found)
    ]
    return " and ".join(wrong)
