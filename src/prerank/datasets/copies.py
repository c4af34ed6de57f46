"""Which datasets are here, and whether they hold the numbers they should."""

import os
from dataclasses import dataclass
from pathlib import Path

from prerank.datasets.records import Dataset
from prerank.datasets.registry import DATASETS
from prerank.datasets.tables import (
    content_hash,
    data_folder,
    is_name,
    load_table,
    table_path,
    table_shape,
)
from prerank.errors import InputError

__all__ = ["LocalCopy", "has_right_numbers", "local_copies", "local_copy", "misfit"]


@dataclass(frozen=True)
class LocalCopy:
    """A table in the folder.

    Attributes:
        name: of the dataset.
        path: of the file.
        shape: rows N, inputs L and targets D; None where the file cannot be read.
        problem: why it cannot.
    """

    name: str
    path: Path
    shape: tuple[int, int, int] | None
    problem: str = ""


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
        return LocalCopy(name, path, None, str(error))


def local_copies(folder: str | os.PathLike[str] | None = None) -> dict[str, LocalCopy]:
    """All tables of a folder by name: those of the registry, in its order, then others.

    Other Parquet files, without columns x0, ... and y0, ..., or with names that no dataset has, are
    passed over.
    """
    place = data_folder() if folder is None else Path(folder)
    listed = [record.name for record in DATASETS]
    stems = {path.stem for path in place.glob("*.parquet")}
    others = sorted(name for name in stems - {*listed} if is_name(name))
    found = {name: local_copy(name, place) for name in (*listed, *others)}
    return {name: copy for name, copy in found.items() if copy and (copy.shape or name in listed)}


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
    rows = record.n_rows if record.fetchable else None
    wanted = {"rows": rows, "inputs": record.n_inputs, "targets": record.n_targets}
    wrong = [
        f"{found} instead of {right} {what}"
        for found, (what, right) in zip(copy.shape, wanted.items(), strict=True)
        if right not in (None, found)
    ]
    return f"{copy.path} has {' and '.join(wrong)}" if wrong else ""


def has_right_numbers(record: Dataset, folder: str | os.PathLike[str] | None = None) -> bool | None:
    """Whether the table here is, number for number, the one that the registry knows.

    None where the registry knows none, or there is no table that can be read.
    """
    copy = local_copy(record.name, folder)
    if not record.content or copy is None or copy.shape is None:
        return None
    return content_hash(load_table(record.name, folder)) == record.content
