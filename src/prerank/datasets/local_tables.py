"""Which datasets are here, and whether they hold the numbers they should."""

import os
from dataclasses import dataclass
from pathlib import Path

from prerank.datasets.dataset_tables import (
    ForeignFileError,
    Table,
    content_hash,
    data_folder,
    is_name,
    load_table,
    table_path,
    table_shape,
)
from prerank.datasets.description import Dataset
from prerank.datasets.registry import DATASETS
from prerank.errors import InputError

__all__ = ["LocalCopy", "departure", "has_right_numbers", "local_copies", "local_copy", "misfit"]


@dataclass(frozen=True)
class LocalCopy:
    """A table in the folder.

    Attributes:
        name: of the dataset.
        path: of the file.
        shape: rows N, inputs L and targets D; None where the file cannot be read.
        problem: why it cannot.
        foreign: whether it is a sound Parquet file, but none of ours.
    """

    name: str
    path: Path
    shape: tuple[int, int, int] | None
    problem: str = ""
    foreign: bool = False


def local_copy(name: str, folder: str | os.PathLike[str] | None = None) -> LocalCopy | None:
    """The table of that name, or None where there is none.

    Example:
        >>> local_copy("air", "/nowhere") is None
        True
    """
    path = table_path(name, folder)
    if not path.is_file():
        return None
    try:
        return LocalCopy(name, path, table_shape(path))
    except InputError as error:
        return LocalCopy(name, path, None, str(error), isinstance(error, ForeignFileError))


def local_copies(folder: str | os.PathLike[str] | None = None) -> dict[str, LocalCopy]:
    """All tables of a folder by name: those of the registry, in its order, then others.

    Other Parquet files, without columns x0, ... and y0, ..., or with names that no dataset has, are
    passed over; damaged ones are not.
    """
    place = data_folder() if folder is None else Path(folder)
    listed = [record.name for record in DATASETS]
    stems = {path.stem for path in place.glob("*.parquet")}
    others = sorted(name for name in stems - {*listed} if is_name(name))
    found = {name: local_copy(name, place) for name in (*listed, *others)}
    return {
        name: copy for name, copy in found.items() if copy and (name in listed or not copy.foreign)
    }


def misfit(record: Dataset, folder: str | os.PathLike[str] | None = None) -> str:
    """Why the file here cannot be the table of a record, without reading the rows.

    Nothing where it can be, or where there is none. What has to be brought may have other rows: it
    may be another sample.

    Example:
        >>> import tempfile
        >>> from prerank.datasets.registry import find_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "air.parquet").write_bytes(b"")
        ...     misfit(find_dataset("air"), folder)
        'cannot read ...air.parquet: ...'
    """
    copy = local_copy(record.name, folder)
    if copy is None or copy.shape is None:
        return copy.problem if copy else ""
    wrong = _other_counts(copy.shape, record, record.n_rows if record.fetchable else None)
    return f"{copy.path} has {wrong}" if wrong else ""


def departure(record: Dataset, table: Table) -> str:
    """How a table differs from the one that its record describes; nothing where it does not.

    Numbers that are known have to be the same. Where none are, rows and columns have to be as many.

    Example:
        >>> import numpy as np
        >>> from prerank.datasets.registry import find_dataset
        >>> x, y = np.zeros((9, 15), np.float32), np.zeros((9, 6), np.float32)
        >>> departure(find_dataset("air"), Table("air", x, y, (), ()))
        '9 instead of 10000 rows'
    """
    if record.content and content_hash(table) == record.content:
        return ""
    shape = len(table.y), table.x.shape[1], table.y.shape[1]
    known = "other numbers" if record.content else ""
    return _other_counts(shape, record, record.n_rows) or known


def has_right_numbers(record: Dataset, folder: str | os.PathLike[str] | None = None) -> bool | None:
    """Whether the table here is, number for number, the one that the registry knows.

    None where the registry knows none, or there is no table that can be read.
    """
    copy = local_copy(record.name, folder)
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
