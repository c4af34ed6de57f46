"""Samples without observations, and other samples written in their place."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.coordinates import SAMPLE_NAMES
from prerank.errors import InputError, ShapeError
from prerank.extras import needed_by
from prerank.files.alignment import Choices, Stack
from prerank.files.column_files import read_columns
from prerank.files.columns import as_arrow, decoded, family
from prerank.files.disk import write_atomically, writing
from prerank.files.forecast_files import (
    check_choices,
    check_samples,
    names_of,
    open_samples,
)
from prerank.files.frames import Frame, listed, naming, option, positions
from prerank.files.netcdf import NETCDF, dataset_bytes
from prerank.files.sample_arrays import SampleArrays
from prerank.files.sample_grids import SampleGrid
from prerank.files.sample_tables import SampleTable, find_sample_name
from prerank.files.sample_writing import DELIMITERS, PARQUET, WRITABLE, write_samples
from prerank.files.user_tables import Names
from prerank.files.visible_text import formula_safe

__all__ = ["SampleFile", "read_samples"]

Values = npt.NDArray[np.float64]
_TABLES = (*DELIMITERS, *PARQUET)


@dataclass(frozen=True, eq=False)
class SampleFile:
    """Samples of N forecasts whose observations are not known, and the file they come from.

    Attributes:
        path: of the file.
        values: `(S, N, D)`.
        targets: names of the targets, D of them.
        key: N values for each column that identifies a forecast; None where none do.
        others: targets that the file has samples of and that were not asked for.
        remarks: sentences on how the file was read.
        layouts: suffixes of the files that can have the layout of this one.
        place: says in words where the value of sample s, forecast n, target d stands.
        fill: writes such a file, of a suffix, with other values.
    """

    path: Path
    values: Values
    targets: tuple[str, ...]
    key: Mapping[str, npt.NDArray[Any]] | None
    others: tuple[str, ...]
    remarks: tuple[str, ...]
    layouts: tuple[str, ...]
    place: Callable[[int, int, int], str]
    fill: Callable[[Path, str, Values], None]

    def keeps_layout(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file of that name can have this layout; one that cannot be written raises."""
        suffix = Path(path).suffix.lower()
        known = tuple(dict.fromkeys((*self.layouts, *WRITABLE)))
        if suffix not in known:
            raise InputError(
                f"{path}: samples of {self.path.name} cannot be written to a file that ends in "
                f"{suffix!r}: known are {', '.join(known)}"
            )
        return suffix in self.layouts

    def write(self, path: str | os.PathLike[str], values: npt.ArrayLike) -> Path:
        """Write other samples in one step, with the layout of this file where that is possible.

        Tables keep the order of rows and columns and all that are no targets, arrays their axes,
        netCDF files coordinates and attributes. Between formats of different kinds, targets and
        key go into a long table or arrays, as by `write_samples`.

        Args:
            path: a table for tables (`.csv`, `.tsv`, `.parquet`, `.pq`), `.npz` for arrays and
                `.npy` for one, `.nc` for netCDF; `.csv`, `.tsv`, `.parquet`, `.pq` and `.npz` for
                all.
            values: `(S, N, D)`, finite.
        """
        goal = Path(path)
        filled = np.asarray(values, dtype=np.float64)
        if filled.shape != self.values.shape:
            raise ShapeError(
                f"values have shape {filled.shape}, but {self.path.name} has {self.values.shape}"
            )
        if not self.keeps_layout(goal):
            return write_samples(goal, filled, self.targets, self.key)
        if not np.isfinite(filled).all():
            raise InputError(f"{goal}: some values are NaN or infinite: they are not written")
        suffix = goal.suffix.lower()
        with writing(goal):
            return write_atomically(goal, lambda file: self.fill(file, suffix, filled))


@needed_by("read_samples")
def read_samples(
    path: str | os.PathLike[str],
    targets: str | Names,
    *,
    key: str | Names | None = None,
    sample: str | None = None,
    sample_axis: int | None = None,
    target: str | Names | None = None,
) -> SampleFile:
    r"""Read samples of forecasts whose observations are not known.

    The formats are those of `read_forecasts`. All columns of a long table that are the same in
    every sample of a forecast tell the forecasts apart; a wide table has one in each row. Samples
    of an .npy file come first unless `sample_axis` says otherwise.

    Args:
        path: of the samples.
        targets: names of the targets; an array without names has them in this order.
        key: columns of a long table that identify a forecast.
        sample: the column or dimension that numbers the samples, if it has another name.
        sample_axis: the axis of the samples in an array.
        target: dimensions of a netCDF file or zarr store whose places form one event.

    Raises:
        InputError: when the file cannot be read or has no samples of a target; the message begins
            with its path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file, doubled = Path(folder, "new.csv"), Path(folder, "doubled.csv")
        ...     _ = file.write_text("day,rain_0,rain_1\n007,0.5,0.7\n008,0.1,0.2\n")
        ...     new = read_samples(file, "rain")
        ...     text = new.write(doubled, 2 * new.values).read_text()
        >>> new.values[..., 0]
        array([[0.5, 0.1],
               [0.7, 0.2]])
        >>> print(text)
        day,rain_0,rain_1
        007,1.0,1.4
        008,0.2,0.4
        <BLANKLINE>
    """
    file = Path(path)
    source = open_samples(file, target)
    with naming(file):
        names = source.names()
        wanted = names_of(targets, "targets", names) or ()
        if isinstance(source, SampleGrid):
            wanted = source.expanded(wanted)
        choices = Choices(wanted, names_of(key, "key", names), sample, sample_axis)
        check_choices(file, source, choices)
        offered = source.offered(choices)
        absent = [name for name in wanted if name not in names]
        if absent and (offered or not isinstance(source, SampleArrays)):
            raise InputError(
                f"no samples of {listed(absent)}: the targets are {listed(wanted)}, and this file "
                f"has {listed(offered or names)}; name them alike, or choose others with "
                f"{option('targets')}"
            )
        found = _layout(source, choices, wanted)
        check_samples(found.values, found.place)
    return found


def _layout(
    source: SampleTable | SampleArrays | SampleGrid, choices: Choices, targets: tuple[str, ...]
) -> SampleFile:
    if isinstance(source, SampleArrays):
        return _of_arrays(source, choices)
    if isinstance(source, SampleGrid):
        return _of_grid(source, choices, targets)
    label = None
    if choices.sample is not None or any(name in source.frame.columns for name in targets):
        label = find_sample_name(source.frame.columns, choices.sample, "column")
    if label is not None:
        return _of_long_table(source, choices, targets, label)
    absent = [name for name in targets if name not in source.numbered]
    if absent:
        raise InputError(
            f"no samples of {listed(absent)}: a long table needs a column that numbers them "
            f"({', '.join(SAMPLE_NAMES)}, or another that is named with {option('sample')}), a "
            f"wide one columns such as {absent[0]}_0, {absent[0]}_1, ...; there are "
            f"{listed(source.frame.columns)}"
        )
    return _of_wide_table(source, choices, targets)


def _of_long_table(
    source: SampleTable, choices: Choices, targets: tuple[str, ...], label: str
) -> SampleFile:
    frame = source.frame
    for name in targets:
        frame.column(name, " for a target")
    rows, keys, others = source.long(choices, label)

    def place(s: int, n: int, d: int) -> str:
        return f"column {targets[d]!r}, data row {rows[n, s] + 1}"

    def fill(file: Path, suffix: str, values: Values) -> None:
        columns = {name: np.empty(frame.size) for name in targets}
        for d, name in enumerate(targets):
            columns[name][rows] = values[..., d].T
        _write_table(file, suffix, frame, columns)

    values = np.stack([frame.numbers(name)[rows.T] for name in targets], axis=-1)
    key = _key(frame, keys, rows[:, 0])
    return SampleFile(frame.path, values, targets, key, others, (), _TABLES, place, fill)


def _of_wide_table(source: SampleTable, choices: Choices, targets: tuple[str, ...]) -> SampleFile:
    stack, columns = source.wide(targets, choices), source.wide_columns(targets)

    def fill(file: Path, suffix: str, values: Values) -> None:
        changed: dict[str, Values] = {}
        for names, sample in zip(columns, values, strict=True):
            changed |= dict(zip(names, sample.T, strict=True))
        _write_table(file, suffix, stack.frame, changed)

    return _of_stack(stack, _TABLES, fill)


def _of_arrays(source: SampleArrays, choices: Choices) -> SampleFile:
    stack, name, axis = source.alone(choices)
    old = source.arrays[name]

    def fill(file: Path, suffix: str, values: Values) -> None:
        new = np.moveaxis(old.reshape(*old.shape, 1) if old.ndim == 2 else old, axis, 0)
        new = new.astype(old.dtype if old.dtype.kind == "f" else np.float64)
        new[..., positions(stack.targets, stack.sampled)] = values
        new = np.moveaxis(new, 0, axis).reshape(old.shape)
        with file.open("wb") as opened:  # given a name, numpy would add a suffix to it
            if suffix == ".npy":
                np.save(opened, new)
            else:
                arrays: dict[str, Any] = {**source.arrays, name: new}
                np.savez(opened, **arrays)

    return _of_stack(stack, (".npz",) if name else (".npy",), fill)


def _of_grid(source: SampleGrid, choices: Choices, targets: tuple[str, ...]) -> SampleFile:
    stack = source.stack(targets, choices)

    def fill(file: Path, suffix: str, values: Values) -> None:
        file.write_bytes(dataset_bytes(source.replaced(values, stack)))

    return _of_stack(stack, NETCDF, fill)


def _of_stack(
    stack: Stack, layouts: tuple[str, ...], fill: Callable[[Path, str, Values], None]
) -> SampleFile:
    frame = stack.frame
    free = [name for name in frame.columns if name not in stack.taken]
    chosen = set(stack.targets)
    others = tuple(name for name in stack.sampled if name not in chosen)
    key = _key(frame, free, np.arange(frame.size))
    parts = (frame.path, stack.values, stack.targets, key, others, stack.remarks)
    return SampleFile(*parts, layouts, stack.place, fill)


def _key(
    frame: Frame, names: Sequence[str], rows: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]] | None:
    """The columns that have a value in each row, if these tell the forecasts apart."""
    import pyarrow as pa

    full = [n for n in names if family(frame.columns[n].type) != "nested"]
    full = [name for name in full if not frame.missing(name).any()]
    if not full or len(np.unique(frame.codes(*full)[rows])) < len(rows):
        return None
    return {n: decoded(frame.columns[n]).take(pa.array(rows)).to_numpy() for n in full}


def _write_table(file: Path, suffix: str, frame: Frame, changed: Mapping[str, Values]) -> None:
    """Write the columns of a table, of which some have other values now."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = dict(frame.columns)
    if suffix in DELIMITERS and frame.path.suffix.lower() not in (*PARQUET, ".arff"):
        text = read_columns(frame.path, text=columns.keys() - changed.keys())  # 007 is not 7
        if text.num_rows != frame.size:
            raise InputError(f"{frame.path}: the file has changed since it was read")
        columns = {name: text[name] for name in columns}
    for name, values in changed.items():
        old = columns[name].type
        columns[name] = as_arrow(values)
        if pa.types.is_floating(old):
            columns[name] = columns[name].cast(old, safe=False)
    table = pa.table(columns)
    if suffix in PARQUET:
        parquet.write_table(table, file, compression="zstd")
    else:  # not by pyarrow, which quotes all text
        formula_safe(table.to_pandas()).to_csv(file, sep=DELIMITERS[suffix], index=False)
