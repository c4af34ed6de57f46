"""Large netCDF files and zarr stores of samples and observations, matched before they are read."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.coordinates import dimension_names, event_names
from prerank.defaults import MANY_VALUES
from prerank.files.alignment import (
    Choices,
    Stack,
    matching_remark,
    unobserved_remarks,
    unused_remarks,
)
from prerank.files.forecast_files import check_choices, grid_of, names_of, unjudged_remarks
from prerank.files.frames import naming
from prerank.files.netcdf import NETCDF, ZARR, open_grid, stored_values
from prerank.files.sample_grids import SampleGrid
from prerank.files.user_tables import Names

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["GridPair", "open_pair"]

_AT_ONCE = 2**25  # values of one place of the rows' first dimension that may be read together


@dataclass(frozen=True, eq=False)
class GridPair:
    """Samples beside observations with the same labels, whose values are read on use.

    Attributes:
        samples: variables of the targets, with the dimension of the members.
        observations: the same variables without it, and those that name times or clusters.
        member: the dimension of the members.
        event: dimensions whose places form one event.
        rows: the other dimensions, the last one running fastest.
        targets: names of the D targets.
        remarks: sentences on how the files were matched, and on what was left out.
    """

    samples: "xr.Dataset"
    observations: "xr.Dataset"
    member: str
    event: tuple[str, ...]
    rows: tuple[str, ...]
    targets: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of members, rows and targets: S, N and D."""
        sizes = self.samples.sizes
        return sizes[self.member], math.prod(sizes[dim] for dim in self.rows), len(self.targets)


@contextmanager
def open_pair(
    samples: Path,
    observations: Path,
    *,
    targets: str | Names | None = None,
    key: str | Names | None = None,
    sample: str | None = None,
    sample_axis: int | None = None,
    target: str | Names | None = None,
    aside: Sequence[str] = (),
) -> Iterator[GridPair | None]:
    """Open two files with too many samples for the memory, and match their labels.

    The rows, targets and remarks are those of `prerank.files.read_forecasts`, which has the other
    arguments.

    Args:
        samples: path of the samples.
        observations: path of the observations.
        targets: as there.
        key: as there.
        sample: as there.
        sample_axis: as there; these files have none.
        target: as there.
        aside: names of coordinates or variables with times or clusters.

    Returns:
        None where `read_forecasts` has to read them: there are few samples, a file has another
        format, or dimensions of rows and events are not those of both files.
    """
    paths = (samples, observations)
    if not all(_is_grid(path) for path in paths) or samples.samefile(observations):
        yield None
        return
    with ExitStack() as files:
        source, observed = (
            grid_of(path, files.enter_context(open_grid(path)), target) for path in paths
        )
        if sum(values.size for values in source.dataset.data_vars.values()) <= MANY_VALUES:
            yield None  # before anything is matched: faults of small files are found when read
            return
        names = source.names() | observed.names()
        wanted = names_of(targets, "targets", names)
        wanted = None if wanted is None else observed.expanded(wanted)
        keys = names_of(key, "key", names)
        choices = Choices(wanted, keys, sample, sample_axis, aside=tuple(aside))
        check_choices(samples, source, choices)
        yield _matched(source, observed, choices)


def _is_grid(path: Path) -> bool:
    """Whether a path is that of a netCDF file or of a zarr store."""
    suffix = path.suffix.lower()
    return (suffix in NETCDF and path.is_file()) or (suffix in ZARR and path.is_dir())


def _matched(source: SampleGrid, observed: SampleGrid, choices: Choices) -> GridPair | None:
    """Both grids at the places they share; None where dimensions do not allow that."""
    with naming(source.path):
        member = source.member(choices)
    known = source.sampled(member, choices)
    sampled = set(known)
    targets = choices.targets or tuple(n for n in observed.offered(choices) if n in sampled)
    if not targets:
        return None
    with naming(observed.path):
        rows = observed.dimensions(targets)
    with naming(source.path):
        dims = source.dimensions(targets)
    variables = tuple(dict.fromkeys(source.components[name][0] for name in targets))
    if sum(source.dataset[name].size for name in variables) <= MANY_VALUES:
        return None
    event = _event_places(source, observed, variables, targets)
    alike = {*dims} - {member} == {*rows} == {*(choices.key or rows)}
    alike &= all(_labelled(source, dim) == _labelled(observed, dim) for dim in rows)
    if event is None or not rows or not alike or {*variables, member} & {*choices.aside}:
        return None
    ours, theirs = event
    for dim in rows:
        ours[dim], theirs[dim] = _row_places(source, observed, dim)
    aside = [name for name in choices.aside if name not in observed.dataset.variables]
    samples = _variables(source, variables, aside).isel(ours)
    truth = _variables(observed, variables, choices.aside).isel(theirs)
    labels = {dim: truth.variables[dim] for dim in (*rows, *source.event) if dim in truth.coords}
    samples = samples.assign_coords(labels)
    n, forecasts, observations = (
        math.prod(grid.sizes[dim] for dim in rows)
        for grid in (truth, source.dataset, observed.dataset)
    )
    remarks: tuple[str, ...] = ()
    if not choices.key:
        remarks = (matching_remark(_in_order(observed, rows)),)
    remarks += unused_remarks(observations - n, observations)
    remarks += unobserved_remarks(forecasts - n, forecasts)
    if choices.targets is None:
        taken = source.names() | {*choices.aside}
        others = [name for name in observed.offered(choices) if name not in taken]
        remarks += unjudged_remarks(observed.path, known, others, targets)
    each = samples.sizes[member] * len(targets) * n // samples.sizes[rows[0]]
    if each > _AT_ONCE:  # rows are read by the places of the first dimension
        rows = tuple(sorted(rows, key=lambda dim: -samples.sizes[dim]))
    return GridPair(samples, truth, member, source.event, rows, targets, remarks)


def _event_places(
    source: SampleGrid, observed: SampleGrid, variables: Sequence[str], targets: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Places of the targets in the dimensions of the event; None unless they span these."""
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    common = [list(variables)]
    for dim in source.event:
        if dim not in observed.dataset.sizes:
            return None
        places = [
            {name: k for k, name in enumerate(dimension_names(dim, index, size))}
            for index, size in (
                (grid.dataset.indexes.get(dim), grid.dataset.sizes[dim])
                for grid in (source, observed)
            )
        ]
        both = [name for name in places[1] if name in places[0]]
        ours[dim], theirs[dim] = (
            _as_slice(np.array([own[name] for name in both], int)) for own in places
        )
        common.append(both)
    return (ours, theirs) if tuple(event_names(common)) == targets else None


def _labelled(grid: SampleGrid, dim: str) -> bool:
    return dim in grid.dataset.coords


def _row_places(source: SampleGrid, observed: SampleGrid, dim: str) -> tuple[Any, Any]:
    """Places of a dimension in the samples, and those of the same labels in the observations."""
    ours, theirs = (grid.dataset.indexes.get(dim) for grid in (source, observed))
    bare = ours is None and source.dataset.sizes[dim] == observed.dataset.sizes[dim]
    if bare or (ours is not None and ours.equals(theirs) and ours.is_unique and not ours.hasnans):
        return slice(None), slice(None)
    frame = source.labels(dim)

    def place(s: int, r: int, d: int) -> str:
        return frame.described((dim,), r)

    stack = Stack(frame, np.empty((0, frame.size, 0)), (), place, ())
    with naming(source.path, observed.path):
        found = stack.match(observed.labels(dim), Choices(key=(dim,)))
    return _as_slice(found.origins), _as_slice(found.rows)


def _as_slice(places: npt.NDArray[np.int64]) -> Any:
    """Neighbouring places as a slice, of which files are read faster."""
    whole = len(places) > 0 and bool((np.diff(places) == 1).all())
    return slice(int(places[0]), int(places[-1]) + 1) if whole else places


def _in_order(grid: SampleGrid, rows: Sequence[str]) -> list[str]:
    """Dimensions as `read_forecasts` lists them: those without labels come first."""
    labelled = [str(name) for name in grid.dataset.coords if name in rows]
    return [*(dim for dim in rows if dim not in labelled), *labelled]


def _variables(grid: SampleGrid, names: Sequence[str], aside: Sequence[str]) -> "xr.Dataset":
    """Some variables; without their units, since targets are judged as they are."""
    kept = [*names, *(name for name in aside if name in grid.dataset.data_vars)]
    stored = {name: stored_values(grid.path, grid.dataset.variables[name]) for name in names}
    return grid.dataset[kept].assign(stored).set_coords(kept[len(names) :])
