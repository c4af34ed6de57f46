"""Importing tables of one's own: CSV, ARFF and Parquet files with named targets."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prerank.datasets.collection import check_name, save_table, table_mismatch, table_path
from prerank.datasets.preprocessing import encode_table
from prerank.datasets.registry import DATASETS, canonical_name
from prerank.datasets.synthetic import SYNTHETIC
from prerank.errors import InputError
from prerank.files.column_files import read_columns
from prerank.files.frames import naming

__all__ = ["Imported", "import_table"]


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
        """Former name of `mismatch`."""
        return self.mismatch


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
    source = Path(path)
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
