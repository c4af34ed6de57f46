"""Reading forecasts made elsewhere, and what was observed, from files of several formats."""

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.extras import needed_by
from prerank.files.alignment import Choices, Matched
from prerank.files.column_files import ROW_NUMBERS, TABLES, read_frame
from prerank.files.disk import as_path
from prerank.files.frames import Frame, listed, naming, option
from prerank.files.input_tables import match_inputs
from prerank.files.netcdf import NETCDF, ZARR, read_grid
from prerank.files.sample_arrays import SampleArrays, read_arrays
from prerank.files.sample_grids import SampleGrid
from prerank.files.sample_tables import SampleTable
from prerank.files.user_tables import Names, pick_names
from prerank.inputs import as_missing, repeated

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = [
    "Forecasts",
    "check_choices",
    "check_samples",
    "grid_of",
    "names_of",
    "open_samples",
    "read_forecasts",
    "unjudged_remarks",
]

_ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Samples of N forecasts beside what was observed, row by row.

    Attributes:
        samples: `(S, N, D)`.
        observations: `(N, D)`.
        targets: names of the targets, D of them.
        groups: the group of each row, N of them; None where none were asked for.
        remarks: sentences on how the files were read, and on what was left out.
        sample_axis: the axis of the samples in a file of arrays.
        inputs: of each row, N of them; None where none were asked for.
        times: the time of each row, as text; None where none were asked for.
        clusters: the cluster of each row, likewise.
        rows: `(N,)`, the row of the observations that belongs to each forecast, increasing.

    Example:
        >>> forecasts = Forecasts(np.zeros((20, 5, 2)), np.ones((5, 2)), ("wind", "rain"))
        >>> forecasts.samples.shape, forecasts.targets
        ((20, 5, 2), ('wind', 'rain'))
    """

    samples: npt.NDArray[np.float64]
    observations: npt.NDArray[np.float64]
    targets: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()
    sample_axis: int | None = None
    inputs: "pd.DataFrame | None" = None
    times: tuple[str, ...] | None = None
    clusters: tuple[str, ...] | None = None
    rows: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        shape = self.observations.shape
        if self.samples.ndim != 3 or self.samples.shape[1:] != shape:
            raise ShapeError(
                f"samples have shape {self.samples.shape} and observations {shape}: they must be "
                "(S, N, D) and (N, D)"
            )
        rows = shape[0] if self.groups is None else len(self.groups)
        if (rows, len(self.targets)) != shape:
            raise ShapeError(
                f"observations have shape {shape}, but there are {rows} groups and "
                f"{len(self.targets)} names of targets"
            )


@needed_by("read_forecasts")
def read_forecasts(
    samples: str | os.PathLike[str],
    observations: str | os.PathLike[str] | None,
    *,
    targets: str | Names | None = None,
    key: str | Names | None = None,
    sample: str | None = None,
    sample_axis: int | None = None,
    by: str | None = None,
    inputs: str | os.PathLike[str] | None = None,
    time: str | None = None,
    cluster: str | None = None,
    target: str | Names | None = None,
    missing: str = "raise",
) -> Forecasts:
    r"""Read samples of forecasts and what was observed, and put them side by side.

    Samples and observations may be of different formats, by their suffixes:

    - Tables (CSV, ARFF, Parquet). *Long* ones have a row for each forecast and sample, with a
      column `sample`, `member`, `realization`, `number`, `draw` or `ensemble` and one for each
      target. *Wide* ones have a row for each forecast, with columns `rain_0`, `rain_1`, ... (or
      `rain.0`, `rain-0`, `rain 0`, `rain[0]`) for a target `rain`.
    - Arrays (`.npy`, `.npz`): `(S, N, D)`, or `(S, N)` for a single target. An .npz file names
      them `samples` and `observations`; it may name the targets in an array `targets`, the axis
      of the samples in `sample_axis`, and hold a key such as `day` in an array `key_day`.
    - netCDF (`.nc`) and zarr (a folder `.zarr`): variables are targets, one dimension has one of
      the names above, and the others span the rows. Places of the dimensions that `target` names
      are targets too, such as `t2m/Bonn/6`. Needs the libraries of the extra `netcdf`, and zarr.

    Forecasts find their observations by the columns or coordinates that both files have; else by a
    column `row` of the samples, which counts the rows of the observations from 0; else by their
    order, unless the table is long. What has no counterpart is left out, with a remark.

    Args:
        samples: path of the samples.
        observations: path of the observations; None where they are in the file of the samples.
        targets: names of the targets, or a function that gives them once all names in the files
            are known; by default all numeric columns of the observations for which there are
            samples.
        key: names of the columns that identify a forecast; by default those that both files have
            and that are nothing else.
        sample: the column or dimension that numbers the samples, if it has another name.
        sample_axis: the axis of the samples in an array; by default the first that fits.
        by: a column whose values, as text, are the groups of the rows.
        inputs: path of a table of inputs, which finds the rows of the observations as forecasts
            do.
        time: a column with the time of each row.
        cluster: a column with the cluster of each row.
        target: dimensions of netCDF files or zarr stores whose places form one event.
        missing: `"available"` reads NaN where a sample or an observation has no value.

    Raises:
        InputError: when a file cannot be read or used; the message begins with its path.
        MissingLibraryError: when a library that reads the format is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file, truth = Path(folder, "samples.csv"), Path(folder, "observations.csv")
        ...     _ = file.write_text("day,rain_0,rain_1\n2,0.5,0.7\n1,0.1,0.2\n")
        ...     _ = truth.write_text("day,rain\n1,0.3\n2,0.6\n3,0.4\n")
        ...     forecasts = read_forecasts(file, truth)
        >>> forecasts.samples[..., 0]
        array([[0.1, 0.5],
               [0.2, 0.7]])
        >>> forecasts.remarks[1]
        '1 of 3 rows of the observations have no forecast and were left out'
    """
    gaps = as_missing(missing)
    path = as_path(samples)
    truth = path if observations is None else as_path(observations)
    source = open_samples(path, target)
    alone = truth == path or (truth.exists() and truth.samefile(path))
    observed = source if alone else open_samples(truth, target)
    with naming(path):
        names = source.names()
    with naming(truth):
        names |= observed.names()
    aside = tuple(name for name in (time, cluster) if name is not None)
    wanted = names_of(targets, "targets", names)
    if wanted is not None:
        grids = (one for one in (observed, source) if isinstance(one, SampleGrid))
        wanted = next((grid.expanded(wanted) for grid in grids), wanted)
    choices = Choices(
        wanted,
        names_of(key, "key", names),
        sample,
        sample_axis,
        by,
        aside,
    )
    check_choices(path, source, choices)
    if alone and not source.has_observations:
        raise InputError(
            f"{path}: there are no observations beside the samples: an .npz file can hold them in "
            "an array 'observations', a wide table in columns of their own; or name another file"
        )
    with naming(path):
        offered = () if alone else _sampled(source, choices)
    with naming(truth):
        frame = observed.observations(choices, offered)
        for name, what in ((time, "time"), (cluster, "cluster")):
            _check_aside(name, what, frame, source, isinstance(observed, SampleArrays))
    with naming(path, truth):
        matched = source.match(frame, choices)
        check_samples(matched.values, matched.place, gaps=gaps)
    values = _observed_values(frame, matched, gaps)
    groups, times, clusters = (
        None if name is None else _groups(frame, matched, name, what)
        for name, what in ((by, "groups"), (time, "times"), (cluster, "clusters"))
    )
    remarks = matched.remarks
    if choices.targets is None and not alone:
        ours = source.names() | {*(choices.key or ()), by, *aside}
        # Of a grid only what has samples was read.
        known = observed.offered(choices) if isinstance(observed, SampleGrid) else frame.numeric
        others = [name for name in known if name not in ours]
        remarks += unjudged_remarks(truth, matched.sampled, others, matched.targets)
    table = None
    if inputs is not None:
        table, unused = match_inputs(inputs, frame, matched.rows, matched.targets, choices)
        remarks = (*remarks, *unused)
    return Forecasts(
        matched.values,
        values,
        matched.targets,
        groups,
        remarks,
        matched.sample_axis,
        table,
        times,
        clusters,
        matched.rows,
    )


def unjudged_remarks(
    truth: Path, sampled: Iterable[str], observed: Iterable[str], judged: Collection[str]
) -> tuple[str, ...]:
    """Sentences on targets that one of two files has, such as a name that is spelt differently.

    Args:
        truth: path of the observations.
        sampled: names of all targets that have samples.
        observed: names of those that may be observations of others.
        judged: names of the targets in both.
    """
    unjudged = {
        f"samples without a column in {truth.name}": sampled,
        f"columns of {truth.name} without samples": observed,
    }
    left = {what: [n for n in names if n not in judged] for what, names in unjudged.items()}
    return tuple(
        f"{what} were not judged: {listed(names)}" for what, names in left.items() if names
    )


def open_samples(
    path: Path, target: str | Names | None = None
) -> SampleTable | SampleArrays | SampleGrid:
    """Read a file; the suffix determines its format.

    Args:
        path: of the file, or of the folder of a zarr store.
        target: dimensions of an event, for netCDF and zarr.
    """
    suffix = path.suffix.lower()
    known = TABLES + _ARRAYS + NETCDF + ZARR
    if suffix not in known:
        raise InputError(
            f"{path}: a file that ends in {suffix!r} cannot be read: known are {', '.join(known)}"
        )
    if target is not None and suffix not in NETCDF + ZARR:
        raise InputError(
            f"{path}: {option('target')} names dimensions of netCDF files and zarr stores: name "
            f"columns with {option('targets')}"
        )
    if suffix in ZARR and path.is_dir():
        return grid_of(path, read_grid(path), target)
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except (OSError, ValueError) as error:  # the latter where the path is no text for the system
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {reason}") from error
    if empty:
        raise InputError(f"{path}: the file is empty")
    if suffix in _ARRAYS:
        return SampleArrays(path, read_arrays(path))
    if suffix in NETCDF:
        return grid_of(path, read_grid(path), target)
    table = read_frame(path)
    columns = {n: c for n, c in table.columns.items() if not ROW_NUMBERS.fullmatch(n)}
    return SampleTable(Frame(path, table.size, columns))


def grid_of(path: Path, dataset: "xr.Dataset", target: str | Names | None) -> SampleGrid:
    """What a netCDF file or zarr store holds, with the dimensions of the event that are named."""
    with naming(path):
        dims = {str(dim) for dim in dataset.dims}
        return SampleGrid(path, dataset, names_of(target, "target", dims) or ())


def check_choices(path: Path, source: object, choices: Choices) -> None:
    """Refuse what says nothing about a file of this format."""
    forms = {"sample": "tables and netCDF", "sample_axis": "arrays"}
    wrong, right = forms if isinstance(source, SampleArrays) else reversed(forms)
    if getattr(choices, wrong) is not None:
        raise InputError(
            f"{path}: {option(wrong)} is for {forms[wrong]}: use {option(right)} for {forms[right]}"
        )


def check_samples(
    values: npt.NDArray[np.float64],
    place: Callable[[int, int, int], str],
    *,
    gaps: bool | None = None,
) -> None:
    """Refuse samples `(S, N, D)` that are too few or not finite, and say where one stands.

    Args:
        values: samples.
        place: words for the place of one of them.
        gaps: whether they may be missing; None where no option of the reader allows it.
    """
    if len(values) < 2:
        raise InputError(f"{len(values)} sample for each forecast, where 2 are needed")
    bad = np.isinf(values) if gaps else ~np.isfinite(values)
    if bad.any():
        s, n, d = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        raise InputError(
            f"{int(bad.sum())} of {bad.size} values are {_kinds(gaps)}, the first in "
            f"{place(s, n, d)}: remove those forecasts, or mend them{_way_out(gaps)}"
        )


def _kinds(gaps: bool | None) -> str:
    return "infinite" if gaps else "missing, NaN or infinite"


def _way_out(gaps: bool | None) -> str:
    return f", or diagnose with {option('missing')} available" if gaps is False else ""


def _sampled(source: SampleTable | SampleArrays | SampleGrid, choices: Choices) -> tuple[str, ...]:
    """Names of targets that a file has samples of, as far as it says; bounds of times are none."""
    if isinstance(source, SampleGrid):
        return source.sampled(source.member(choices), choices)
    return source.offered(choices)


def _check_aside(
    name: str | None,
    what: str,
    frame: Frame,
    source: SampleTable | SampleArrays | SampleGrid,
    in_arrays: bool,
) -> None:
    """Refuse a target as times or clusters, and arrays that have none."""
    if name is None:
        return
    if isinstance(source, SampleTable) and name in source.numbered:
        raise InputError(
            f"{option(what)} {name!r} is a target, which has samples: name the column that says "
            "which rows depend on each other"
        )
    if in_arrays and name not in frame.columns and name not in source.names():
        raise InputError(
            f"{option(what)}: an array holds no {name!r}: give the observations as a table "
            f"({', '.join(TABLES)}) with that column"
        )


def _observed_values(frame: Frame, matched: Matched, gaps: bool) -> npt.NDArray[np.float64]:
    """Observations of the forecasts, `(N, D)`."""
    columns = [frame.numbers(name, " for a target")[matched.rows] for name in matched.targets]
    values = np.stack(columns, axis=-1)
    bad = np.isinf(values) if gaps else ~np.isfinite(values)
    if bad.any():
        rows = np.any(bad, axis=1)
        n = int(rows.argmax())
        where = frame.described(tuple(frame.dims), int(matched.rows[n]))
        raise InputError(
            f"{frame.path}: {int(rows.sum())} of {len(rows)} observations are {_kinds(gaps)}, "
            f"the first in column {matched.targets[int(bad[n].argmax())]!r}, {where}: "
            f"remove those rows first{_way_out(gaps)}"
        )
    return values


def _groups(frame: Frame, matched: Matched, by: str, what: str) -> tuple[str, ...]:
    """The group, time or cluster of each row: from the observations, or else from the samples."""
    source = matched.source
    if by in matched.sampled:
        raise InputError(f"{source.path}: {by!r} for the {what} is a target, which has samples")
    if by not in source.columns:
        return frame.text(by, matched.rows, what)
    origins = matched.origins.reshape(len(matched.rows), -1)  # (N, S) for a long table
    codes = source.codes(by)[origins]
    mixed = (codes != codes[:, :1]).any(axis=1)
    if mixed.any():
        first = int(origins[int(mixed.argmax()), 0])
        raise InputError(
            f"{source.path}: column {by!r} for the {what} differs among the samples of a forecast, "
            f"that of data row {first + 1}: {what} are {what} of forecasts"
        )
    if by in frame.columns:
        return frame.text(by, matched.rows, what)
    return source.text(by, origins[:, 0], what)


def names_of(
    value: str | Names | None, what: str, known: Collection[str]
) -> tuple[str, ...] | None:
    """Names that an argument gives; None where it is left out."""
    if value is None:
        return None
    names = [value] if isinstance(value, str) else pick_names(value, known)
    again = repeated(names)
    if again:
        raise InputError(f"{option(what)} names {', '.join(again)} more than once: name each once")
    if not names:
        raise InputError(f"{option(what)} is empty: name a column at least")
    return tuple(names)
