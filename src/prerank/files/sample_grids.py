"""Samples and observations in netCDF files and zarr stores, through xarray."""

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.coordinates import SAMPLE_NAMES, dimension_names, event_names
from prerank.errors import InputError
from prerank.files.alignment import Choices, Matched, Stack
from prerank.files.columns import as_arrow
from prerank.files.frames import Frame, did_you_mean, find_name, listed, option
from prerank.files.sample_tables import find_sample_name

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["SampleGrid"]


@dataclass(frozen=True, eq=False)
class SampleGrid:
    """A netCDF file or zarr store of samples or observations.

    Attributes:
        path: of the file.
        dataset: what it holds.
        event: dimensions whose places are targets, and not rows.
    """

    path: Path
    dataset: "xr.Dataset"
    event: tuple[str, ...] = ()

    has_observations = False

    def __post_init__(self) -> None:
        """Check that the dimensions of the event are there."""
        dims = [str(dim) for dim in self.dataset.dims]
        unknown = [name for name in self.event if name not in dims]
        if unknown:
            raise InputError(
                f"{option('target')}: no dimension {listed(unknown)}; {did_you_mean(unknown, dims)}"
            )

    @cached_property
    def components(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Possible targets by name: a variable, and its place in each dimension of the event."""
        sizes, labels = self.dataset.sizes, self.dataset.indexes
        parts = {dim: dimension_names(dim, labels.get(dim), sizes[dim]) for dim in self.event}
        found: dict[str, tuple[str, dict[str, int]]] = {}
        for name in map(str, self.dataset.data_vars):
            own = [dim for dim in self.event if dim in self.dataset.variables[name].dims]
            places = product(*(range(sizes[dim]) for dim in own))
            names = event_names([[name], *(parts[dim] for dim in own)])
            found |= {
                one: (name, dict(zip(own, at, strict=True)))
                for one, at in zip(names, places, strict=True)
            }
        return found

    def expanded(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names of targets, with those of its components in the place of a variable."""
        parts = {name: [n for n, (v, _) in self.components.items() if v == name] for name in names}
        return tuple(one for name in names for one in parts[name] or [name])

    def names(self) -> set[str]:
        """All names: of targets, variables and dimensions."""
        every = (*self.components, *self.dataset.variables, *self.dataset.dims)
        return {str(name) for name in every}

    def offered(self, choices: Choices) -> tuple[str, ...]:
        """The components with numbers, which may be targets."""
        return tuple(name for name in self.components if self._variable(name).dtype.kind in "fiu")

    def observations(self, choices: Choices, offered: Collection[str]) -> Frame:
        """Turn variables that span the same dimensions, and their coordinates, into columns."""
        known, wanted = self.offered(choices), set(offered)
        names = choices.targets or tuple(name for name in known if name in wanted) or known
        if not names:
            raise InputError("there is no variable with numbers for a target")
        dims = self.dimensions(names)
        frame = self._coordinates(dims, choices)
        columns = {name: as_arrow(self._values(name, dims).ravel()) for name in names}
        return replace(frame, columns={**frame.columns, **columns})

    def match(self, observations: Frame, choices: Choices) -> Matched:
        """Match the samples with observations."""
        member = self.member(choices)
        known = self.sampled(member, choices)
        named = set(known)
        targets = choices.targets or tuple(n for n in observations.columns if n in named)
        if not targets:
            raise InputError(
                f"none of the variables {listed(known) or '(there are none)'} with dimension "
                f"{member!r} is in {observations.path.name}, which has "
                f"{listed(observations.columns)}: name them alike"
            )
        return self.stack(targets, choices).match(observations, choices)

    def stack(self, targets: tuple[str, ...], choices: Choices) -> Stack:
        """The samples of some targets, with a row for each place of the grid."""
        member = self.member(choices)
        known = self.sampled(member, choices)
        dims = self.dimensions(targets)
        if member not in dims:
            raise InputError(f"variable {targets[0]!r} has no dimension {member!r} of samples")
        rows = tuple(name for name in dims if name != member)
        frame = self._coordinates(rows, choices)
        values = [self._values(n, (member, *rows)).reshape(-1, frame.size) for n in targets]

        def place(s: int, r: int, d: int) -> str:
            where = frame.described(rows, r)
            return f"sample {s}, counted from 0, of {targets[d]!r} for {where}"

        return Stack(frame, np.stack(values, axis=-1), targets, place, known, (member,))

    def labels(self, dim: str) -> Frame:
        """One row for each place of a dimension, with its label, or its number from 0."""
        variables, size = self.dataset.variables, self.dataset.sizes[dim]
        bare = dim not in self.dataset.coords
        values = np.arange(size) if bare else variables[dim].to_numpy()
        return Frame(
            self.path, size, {dim: as_arrow(values)}, {dim: size}, frozenset([dim] if bare else [])
        )

    def replaced(self, values: npt.NDArray[np.float64], stack: Stack) -> "xr.Dataset":
        """The dataset with other samples `(S, N, D)` in the place of those of a stack."""
        import xarray as xr

        changed: dict[str, Any] = {}
        (member,) = stack.taken
        dims = (member, *stack.frame.dims)
        for d, target in enumerate(stack.targets):
            name, places = self.components[target]
            old = self.dataset.variables[name]
            if name not in changed:
                kept = old.dtype if old.dtype.kind == "f" else np.dtype(np.float64)
                changed[name] = old.copy(data=old.to_numpy().astype(kept))
                changed[name].encoding = {}  # packed numbers may not fit into so few bits any more
            part = values[..., d].reshape(-1, *stack.frame.dims.values())
            changed[name][places] = xr.Variable(dims, part)
        return self.dataset.assign(changed)

    def sampled(self, member: str, choices: Choices) -> tuple[str, ...]:
        """The variables with the dimension of the samples."""
        return tuple(name for name in self.offered(choices) if member in self._variable(name).dims)

    def _variable(self, name: str) -> "xr.Variable":
        """The values of a component; an item of `dataset` would ask for all dimensions."""
        variable, places = self.components[name]
        return self.dataset.variables[variable].isel(places)

    def member(self, choices: Choices) -> str:
        """The dimension of the samples."""
        sizes = {str(name): size for name, size in self.dataset.sizes.items()}
        member = find_sample_name(sizes, choices.sample, "dimension")
        if member is None:
            raise InputError(
                f"no dimension numbers the samples; there are {listed(sizes) or 'none'}: call it "
                f"{', '.join(SAMPLE_NAMES)}, or name it with {option('sample')}"
            )
        return member

    def dimensions(self, names: Sequence[str]) -> tuple[str, ...]:
        """The dimensions of the first variable, which the others must have too; none is empty."""
        for name in names:
            find_name(name, self.components, " for a target")
        first = tuple(str(dim) for dim in self._variable(names[0]).dims)
        for name in names[1:]:
            dims = tuple(str(dim) for dim in self._variable(name).dims)
            if set(dims) != set(first):
                raise InputError(
                    f"{names[0]!r} has dimensions {listed(first)} and {name!r} "
                    f"{listed(dims) or 'none'}: all targets need the same"
                )
        for name in names:
            shape = self._variable(name).shape
            if 0 in shape:
                raise InputError(f"variable {name!r} is empty: its shape is {shape}")
        return first

    def _values(self, name: str, dims: tuple[str, ...]) -> npt.NDArray[np.float64]:
        variable = self._variable(name)
        if variable.dtype.kind not in "fiub":
            raise InputError(
                f"variable {name!r} holds {variable.dtype}: only numbers can be used for a target"
            )
        return variable.transpose(*dims).to_numpy().astype(np.float64)

    def _coordinates(self, dims: tuple[str, ...], choices: Choices) -> Frame:
        """One row for each place of the grid, with all coordinates that depend on nothing else.

        Groups and times may also be variables, or parts of dates such as `time.season`.
        """
        import xarray as xr

        sizes = {dim: self.dataset.sizes[dim] for dim in dims}
        bare = frozenset(dim for dim in dims if dim not in self.dataset.coords)
        variables: dict[str, Any] = {dim: xr.Variable(dim, np.arange(sizes[dim])) for dim in bare}
        variables |= {str(name): values.variable for name, values in self.dataset.coords.items()}
        for name in filter(None, (choices.by, *choices.aside)):
            if name not in variables:
                with suppress(KeyError):
                    variables[name] = self.dataset[name].variable
        columns = {
            name: as_arrow(variable.set_dims(sizes).to_numpy().ravel())
            for name, variable in variables.items()
            if set(variable.dims) <= set(dims)
        }
        return Frame(self.path, math.prod(sizes.values()), columns, sizes, bare)
