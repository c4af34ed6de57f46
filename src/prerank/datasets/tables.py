"""Tables of inputs and targets in Parquet files."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

__all__ = ["Table", "data_folder", "load_table"]


@dataclass(frozen=True)
class Table:
    """Rows of inputs and targets, in float32.

    Attributes:
        name: of the dataset.
        x: `(N, L)`.
        y: `(N, D)`.
        inputs: names of the input columns.
        targets: names of the target columns.
    """

    name: str
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]


def data_folder() -> Path:
    """Folder of the datasets: `PRERANK_DATA`, or `prerank` in the user's cache."""
    chosen = os.environ.get("PRERANK_DATA")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "prerank"


def load_table(name: str, folder: str | os.PathLike[str] | None = None) -> Table:
    """Read `NAME.parquet`, whose columns x0, x1, ... are inputs and y0, y1, ... targets."""
    import pyarrow
    from pyarrow import parquet

    path = (data_folder() if folder is None else Path(folder)) / f"{name}.parquet"
    try:
        frame = parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise InputError(
            f"cannot read {path}: {error}. Set PRERANK_DATA to the folder that holds it"
        ) from error
    columns = {kind: _numbered(frame.column_names, kind) for kind in "xy"}
    if not columns["x"] or not columns["y"]:
        raise InputError(f"{path} needs columns x0, x1, ... and y0, y1, ...")
    x, y = (
        np.stack([frame[c].to_numpy().astype(np.float32) for c in columns[kind]], axis=1)
        for kind in "xy"
    )
    return Table(name, x, y, tuple(columns["x"]), tuple(columns["y"]))


def _numbered(names: list[str], kind: str) -> list[str]:
    found = [name for name in names if name[:1] == kind and name[1:].isdigit()]
    return sorted(found, key=lambda name: int(name[1:]))
