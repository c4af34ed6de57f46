"""Getting datasets: public originals are downloaded, files of the user's own imported."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prerank.datasets.collection import (
    check_name,
    local_mismatch,
    save_table,
    table_mismatch,
    table_path,
)
from prerank.datasets.preprocessing import encode_table
from prerank.datasets.registry import DATASETS, Dataset, Origin, canonical_name, find_dataset
from prerank.datasets.synthetic import SYNTHETIC
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.files import as_path
from prerank.files.column_files import parse_columns, read_columns
from prerank.files.dataset_tables import Table, content_hash
from prerank.files.downloads import FetchError, download
from prerank.files.frames import naming
from prerank.inputs import as_positive
from prerank.moved import warn_of_end

__all__ = ["Imported", "fetch", "import_table"]

_SCHEMES = ("http://", "https://", "file://")


@dataclass(frozen=True)
class Imported:
    """What became of an imported file.

    Attributes:
        name: of the dataset.
        path: of the Parquet file.
        n_rows: rows in it.
        inputs: names of the encoded inputs, L of them.
        targets: names of the targets, D of them.
        removed: columns that were left out, with the reason.
        rows_without_target: rows that were left out because a target is missing.
        rows_without_input: rows that were left out, of the others, because an input is missing.
        replaced: whether there was a file of that name before.
        mismatch: how the table differs from the paper's, where it has the name of one;
            published values do not compare with such a table.
    """

    name: str
    path: Path
    n_rows: int
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    removed: dict[str, str]
    rows_without_target: int
    rows_without_input: int
    replaced: bool = False
    mismatch: str = ""

    @property
    def departure(self) -> str:
        """Deprecated name of `mismatch`."""
        warn_of_end("Imported.departure", "use mismatch")
        return self.mismatch


@needed_by("fetch")
def fetch(
    dataset: str | Dataset,
    folder: str | os.PathLike[str] | None = None,
    *,
    origin: str | None = None,
    force: bool = False,
    timeout: float = 30.0,
    on_bytes: Callable[[int], None] | None = None,
) -> Path:
    """Download the public original of a dataset, check it, encode it, and write `NAME.parquet`.

    The original is held in memory and never larger than the registry says. Only one whose size
    and SHA-256 are right is encoded, and only a whole table is put in place: after an error the
    folder is as it was before. A table that is there stays, unless its header shows that it cannot
    be read, or has other numbers of rows and columns than the record.

    Args:
        dataset: a name in the registry, or a record of one's own.
        folder: where the table goes; `data_folder()` by default.
        origin: address of a folder that holds the originals under their own file names, such as
            a mirror: http, https or file. The repository in the registry by default.
        force: download even when the table is there, and replace it.
        timeout: seconds to wait for the first or next bytes. The whole download may take that
            long and one second more for each kB.
        on_bytes: called with the number of bytes that have just arrived.

    Returns:
        Path of the table.

    Raises:
        InputError: for an unknown dataset, or one that has no public original to fetch: the
            message says what to bring.
        FetchError: when the download fails or is not the original.

    Example:
        >>> fetch("scm1d", "/nowhere")
        Traceback (most recent call last):
        prerank.errors.InputError: scm1d cannot be fetched: bring scm1d.arff ...
    """
    record = find_dataset(dataset) if isinstance(dataset, str) else dataset
    seconds = as_positive(timeout, "timeout")
    path = table_path(record.name, folder)
    problem = local_mismatch(record, folder)
    if path.is_file() and not problem and not force:
        return path
    if record.origin is None or not record.origin.verifiable:
        found = f" (one copy is at {record.origin.url})" if record.origin else ""
        useless = f". What is here cannot be used: {problem}" if problem else ""
        raise InputError(
            f"{record.name} cannot be fetched: bring {record.bring}{found}, and import it; "
            f"`prerank datasets show {record.name}` has the command{useless}"
        )
    original = record.origin
    if origin is None:
        address = original.url
    elif origin.lower().startswith(_SCHEMES):
        address = original.at(origin)
    else:
        schemes = ", ".join(scheme.removesuffix("://") for scheme in _SCHEMES)
        raise InputError(f"origin must be an address that begins with {schemes}, got {origin!r}")
    try:
        data = download(
            address,
            size=original.size,
            sha256=original.sha256,
            timeout=seconds,
            on_bytes=on_bytes or (lambda _: None),
        )
    except FetchError as error:
        raise FetchError(f"cannot fetch {record.name} from {address}: {error}") from error
    try:
        return save_table(_encode(data, record, original), folder)
    except InputError as error:
        raise InputError(f"{record.name} came from {address}, but: {error}") from error


@needed_by("import_table")
def import_table(
    path: str | os.PathLike[str],
    targets: str | Sequence[str],
    folder: str | os.PathLike[str] | None = None,
    name: str | None = None,
    inputs: Sequence[str] | None = None,
    *,
    header: bool = True,
) -> Imported:
    r"""Encode a file as the datasets of the paper are, and put it beside them.

    `prerank.datasets.preprocessing.encode_inputs` turns the input columns into numbers. The result
    is `FOLDER/NAME.parquet`, which `load_table` reads; it replaces a file of that name in one step.

    Args:
        path: of a CSV (commas, semicolons or tabs), dense ARFF or Parquet file, by its suffix.
        targets: name of the target column, or names in the order they shall have.
        folder: where the result goes; `data_folder()` by default.
        name: of the dataset; that of the file, without its suffix, by default. None of `SYNTHETIC`,
            which need no file.
        inputs: names of the input columns; all others by default.
        header: whether a CSV file names its columns; else they are 0, 1, ...

    Raises:
        InputError: when the file cannot be read or used, as where float32, in which tables are
            stored, loses what a column says; the message names the file and the column, and nothing
            is written.

    Example:
        >>> import tempfile
        >>> from prerank.datasets import load_table
        >>> lines = [
        ...     "depth;bed;flow",
        ...     *(f"{i / 4};{'mud' if i % 2 else 'sand'};{i}" for i in range(20)),
        ... ]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "rivers.csv")
        ...     _ = file.write_text("\n".join(lines))
        ...     done = import_table(file, "flow", folder)
        ...     table = load_table("rivers", folder)
        >>> done.n_rows, table.inputs, table.targets
        (20, ('depth', 'bed=mud', 'bed=sand'), ('flow',))
    """
    source = as_path(path)
    chosen = check_name(canonical_name(source.stem if name is None else name))
    if chosen in SYNTHETIC:
        raise InputError(
            f"name {chosen!r} is that of a synthetic dataset, which studies would use instead of "
            f"{source}: choose another name"
        )
    goal = table_path(chosen, folder)
    replaced = goal.exists()
    if source.is_file() and replaced and source.samefile(goal):
        raise InputError(f"{source} would be overwritten by its own encoding: choose another name")
    columns = read_columns(source, header=header)
    with naming(source):
        found = encode_table(
            columns, chosen, (targets,) if isinstance(targets, str) else targets, inputs
        )
    record = next((record for record in DATASETS if record.name == chosen), None)
    return Imported(
        name=chosen,
        path=save_table(found.table, folder),
        n_rows=len(found.table.y),
        inputs=found.table.inputs,
        targets=found.table.targets,
        removed=found.removed,
        rows_without_target=found.rows_without_target,
        rows_without_input=found.rows_without_input,
        replaced=replaced,
        mismatch=table_mismatch(record, found.table) if record else "",
    )


def _encode(data: bytes, record: Dataset, original: Origin) -> Table:
    """The table of an original whose hash is right."""
    columns = parse_columns(data, original.file, header=record.header)
    inputs = record.inputs or tuple(
        name
        for name in columns.column_names
        if name not in record.targets and name not in record.ignored
    )
    inputs = tuple(sorted(inputs)) if record.sorted_inputs else inputs
    table = encode_table(columns, record.name, record.targets, inputs).table
    if record.content and content_hash(table) != record.content:
        raise InputError(
            "it encodes to other numbers than it should. The installed pyarrow or numpy reads it "
            "differently: please report this with their versions"
        )
    return table
