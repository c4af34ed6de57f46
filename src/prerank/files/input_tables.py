"""A table of inputs beside forecasts and observations, matched row by row."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.alignment import ROW, Choices, choose_keys, find_places
from prerank.files.column_files import ROW_NUMBERS, read_frame
from prerank.files.columns import family
from prerank.files.frames import Frame, listed, naming

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["match_inputs"]

_USED = ("number", "truth", "text", "null")


def match_inputs(
    path: str | os.PathLike[str],
    observations: Frame,
    rows: npt.NDArray[np.int64],
    targets: Collection[str],
    choices: Choices,
) -> tuple["pd.DataFrame", tuple[str, ...]]:
    """Read inputs, and put them in the order of some rows of the observations.

    They find their rows by the columns that both files have, or a column `row` that counts those
    of the observations from 0, or by their order. In the file of the observations itself, all
    columns but targets and keys are inputs.

    Args:
        path: of a CSV, ARFF or Parquet file.
        observations: their columns.
        rows: `(N,)`, the rows of the observations that are judged.
        targets: names of the targets, which are no inputs.
        choices: whose `key` names the columns that identify a row.

    Returns:
        A table of N rows, and remarks.
    """
    file = Path(path)
    source = read_frame(file)
    with naming(file):
        keys: tuple[str, ...] = choices.key or ()
        if observations.path.exists() and file.samefile(observations.path):
            order = rows
        else:
            if choices.key is None:
                keys = choose_keys(source, observations, targets, None)
            order = _order(source, observations, rows, keys, choices.key is not None)
        taken = {*targets, *keys}
        if ROW not in observations.columns:
            taken.add(ROW)
        names = [n for n in source.columns if n not in taken and not ROW_NUMBERS.fullmatch(n)]
        used = [name for name in names if family(source.columns[name].type) in _USED]
        if not used:
            raise InputError(
                "there is no input beside targets and keys: numbers or text are needed"
            )
    left = [name for name in names if name not in used]
    said = (f"inputs were not searched, since they are dates or no numbers: {listed(left)}",)
    import pyarrow as pa

    table: pd.DataFrame = pa.table({name: source.columns[name] for name in used}).to_pandas()
    return table.iloc[order].reset_index(drop=True), said if left else ()


def _order(
    source: Frame,
    observations: Frame,
    rows: npt.NDArray[np.int64],
    keys: tuple[str, ...],
    chosen: bool,
) -> npt.NDArray[np.int64]:
    """Rows of the inputs that belong to rows of the observations."""
    places = find_places(source, observations, keys, chosen=chosen)
    if places is None:
        if source.size != observations.size:
            raise InputError(
                f"{source.size} rows of inputs for the {observations.size} rows of "
                f"{observations.path.name}, and no column in common that tells which belong "
                f"together: add one to both files, or a column {ROW!r} that counts the rows of "
                "the observations from 0"
            )
        return rows
    found = np.full(observations.size, -1)
    known = places.rows >= 0
    found[places.rows[known]] = np.flatnonzero(known)
    if len(np.unique(places.rows[known])) < int(known.sum()):
        raise InputError("several rows of inputs belong to one observation: keep one of each")
    missing = found[rows] < 0
    if missing.any():
        first = observations.described(keys, int(rows[missing.argmax()]))
        raise InputError(
            f"{int(missing.sum())} of {len(rows)} observations have no row of inputs, the first "
            f"is {first}: add them, or leave those observations out"
        )
    return found[rows]
