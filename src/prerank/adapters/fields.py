r"""Arrays and datasets of xarray, read as rows of events.

A field has a dimension of members or none, dimensions that span the rows, and dimensions whose
places form one event together. The V variables of a Dataset are part of the event:

.. math:: D = V \cdot \prod_{d \in \text{target}} \text{size}_d.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.coordinates import dimension_names, event_names
from prerank.errors import InputError
from prerank.extras import library

__all__ = ["Field"]


@dataclass(frozen=True, eq=False)
class Field:
    """Values with named dimensions, which are read when they are asked for.

    Attributes:
        name: of the argument, for messages.
        given: a DataArray, or a Dataset.
        variables: those of the Dataset that are targets; none of a DataArray.
        member: the dimension of the members, if there is one.
        rows: dimensions of the rows, the last one running fastest.
        target: dimensions of the event, likewise.
    """

    name: str
    given: Any
    variables: tuple[Hashable, ...]
    member: Hashable | None
    rows: tuple[Hashable, ...]
    target: tuple[Hashable, ...]

    @property
    def lead(self) -> tuple[Hashable, ...]:
        """Dimensions of members and rows."""
        return self.rows if self.member is None else (self.member, *self.rows)

    @property
    def n(self) -> int:
        """Number of rows."""
        return math.prod(self.given.sizes[dim] for dim in self.rows)

    @property
    def targets(self) -> list[str]:
        """Names of the D components: the variable of a Dataset, and labels."""
        if not self.variables and not self.target:
            return ["y0" if self.given.name is None else str(self.given.name)]
        parts = [[str(name) for name in self.variables]] if self.variables else []
        return event_names([*parts, *map(self.place_names, self.target)])

    @property
    def arrays(self) -> list[Any]:
        """The DataArray of each variable, or the only one."""
        return [self.given[name] for name in self.variables] or [self.given]

    @property
    def units(self) -> list[str | None]:
        """The attribute `units` of each array."""
        known = [array.attrs.get("units") for array in self.arrays]
        return [None if unit is None else str(unit).strip() for unit in known]

    def place_names(self, dim: Hashable) -> list[str]:
        """Labels of a dimension as text, or its name with numbers."""
        labels = self.given.indexes.get(dim)
        return dimension_names(dim, labels, self.given.sizes[dim])

    def chunks(self, dim: Hashable) -> Sequence[int]:
        """Sizes of the chunks along a dimension: those of dask, or those of the file."""
        size = self.given.sizes[dim]
        lazy = getattr(self.given, "chunksizes", {}).get(dim)
        if lazy:
            return tuple(filter(None, lazy)) or (0,)  # a chunk may be empty
        stored = self.arrays[0].encoding.get("preferred_chunks", {}).get(dim, size)
        step = max(1, min(size, int(np.max(stored))))
        return [min(step, size - start) for start in range(0, size, step)] or [size]

    def component_places(self, targets: Sequence[str], of: str) -> list[int]:
        """Where the components of these names stand; others raise.

        Args:
            targets: names of all components, in some order.
            of: what they belong to, for the message.
        """
        places = {name: d for d, name in enumerate(self.targets)}
        odd = sorted(places.keys() ^ set(targets))
        if odd:
            raise InputError(
                f"{self.name} has {len(places)} targets and {of} {len(targets)}; {len(odd)} are "
                f"only in one of the two, such as {odd[0]!r}: select those of {of}"
            )
        return [places[name] for name in targets]

    def at(self, places: Mapping[Hashable, Any]) -> "Field":
        """The field at some places, by the name of their dimension."""
        return replace(self, given=self.given.isel(places))

    def loaded(self) -> "Field":
        """The field in memory; arrays of dask are computed in this thread."""
        lazy = bool(getattr(self.given, "chunks", None))
        return replace(self, given=self.given.compute(scheduler="synchronous")) if lazy else self

    def culled(self) -> "Field":
        """The field without the tasks of dask that it does not need."""
        if not getattr(self.given, "chunks", None):
            return self
        [given] = library("dask", "diagnose").optimize(self.given)
        return replace(self, given=given)

    def values(self, *, gaps: bool = False) -> npt.NDArray[Any]:
        """Values `(*lead, D)` of the whole field, in memory, with one axis for all rows.

        Args:
            gaps: whether values may be missing.

        Returns:
            `(S, N, D)`, or `(N, D)` without members.

        Raises:
            InputError: where a value is missing or infinite; the message says how many and where.
        """
        order = (*self.lead, *self.target)
        # Values of a file are read in their own order: others would be looked up one by one.
        parts = [array.to_numpy().transpose(array.get_axis_num(order)) for array in self.arrays]
        values = np.stack(parts, len(self.lead)) if self.variables else parts[0]
        if values.dtype.kind == "f":
            self._refuse(np.isinf(values) if gaps else ~np.isfinite(values), gaps)
        return values.reshape(*self._members(), self.n, -1)

    def like(self, values: npt.NDArray[Any]) -> Any:
        """Other values, of the shape of `values()`, as what was given: with its coordinates."""
        sizes = [[self.given.sizes[dim] for dim in dims] for dims in (self.lead, self.target)]
        several = [len(self.variables)] if self.variables else []
        apart = values.reshape(*sizes[0], *several, *sizes[1])
        if not self.variables:
            return self._changed(self.given, apart)
        parts = np.moveaxis(apart, len(self.lead), 0)
        new = {
            name: self._changed(self.given[name], part)
            for name, part in zip(self.variables, parts, strict=True)
        }
        return self.given.assign(new)

    def _members(self) -> list[int]:
        return [] if self.member is None else [self.given.sizes[self.member]]

    def _changed(self, old: Any, values: npt.NDArray[Any]) -> Any:
        kept = values.astype(old.dtype) if old.dtype.kind == "f" else values
        new = old.transpose(*self.lead, *self.target).copy(data=kept).transpose(*old.dims)
        return new.drop_encoding()  # numbers that were packed may not fit into so few bits any more

    def _refuse(self, bad: npt.NDArray[np.bool_], gaps: bool) -> None:
        """Raise where values `(*lead, variables, *target)` are missing or infinite."""
        if not bad.any():
            return
        members = len(self._members())
        places = range(members + len(self.rows), bad.ndim)
        in_row = bad.any(axis=(*range(members), *places))
        names = {dim: self.place_names(dim) for dim in self.lead}
        names |= {"variable": list(map(str, self.variables))} if self.variables else {}
        names |= {dim: self.place_names(dim) for dim in self.target}
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        words = [f"{dim}={known[k]}" for (dim, known), k in zip(names.items(), first, strict=True)]
        kind = "infinite" if gaps else "missing or infinite"
        option = ", or pass missing='available' (--missing available) to diagnose, pit or a score"
        remedy = "" if gaps else option
        raise InputError(
            f"{self.name} has {int(bad.sum()):,} {kind} values of {bad.size:,}, in "
            f"{int(in_row.sum()):,} of {in_row.size:,} rows, the first at {', '.join(words)}: "
            f"leave out what has such values, as in y.dropna({str(self.rows[0])!r}), and select "
            f"the same labels of both{remedy}"
        )
