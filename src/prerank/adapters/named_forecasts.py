"""Samples beside observations with named dimensions, and results with their coordinates."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.adapters.fields import Field
from prerank.coordinates import quoted
from prerank.distributions import Ensemble
from prerank.errors import InputError, InputTypeError
from prerank.inputs import as_missing, is_named

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["NamedForecast"]

_BLOCK_VALUES = 2**23  # 32 MiB in float32


@dataclass(frozen=True, eq=False)
class NamedForecast:
    """Samples beside observations of the same rows and events, in the order of the observations.

    Attributes:
        samples: the forecast.
        observed: the observations.
        missing: `"available"` where values may be.
    """

    samples: Field
    observed: Field
    missing: str = "raise"

    @property
    def size(self) -> int:
        """Number of values of the members."""
        members = self.samples.given.sizes[self.samples.member]
        return int(members * self.observed.n * len(self.observed.targets))

    @cached_property
    def dist(self) -> Ensemble:
        """All samples, in memory: `batch_shape (N,)`, `event_shape (D,)`."""
        return self._ensemble(self.samples)

    @cached_property
    def y(self) -> "pd.DataFrame":
        """All observations `(N, D)`: columns name the components, the index the rows."""
        return self._table(self.observed)

    def blocks(self, values: int = _BLOCK_VALUES) -> Iterator[tuple[Ensemble, "pd.DataFrame"]]:
        """Samples and observations of some rows after others, read one block after the other.

        Args:
            values: about how many a block has; it has one place of the first dimension of the
                rows at least. Chunks of dask and of files are read whole, up to four times as many.

        Example:
            >>> import xarray as xr
            >>> import numpy as np
            >>> from prerank.adapters import named_forecast
            >>> samples = xr.DataArray(np.zeros((20, 30, 4)), dims=["number", "time", "station"])
            >>> found = named_forecast(samples, samples[0], target="station")
            >>> [len(y) for _, y in found.blocks(values=20 * 12 * 4)]
            [12, 12, 6]
        """
        for places in self.slices(values):
            part = self.at(places)
            yield part.dist, part.y

    def slices(self, values: int = _BLOCK_VALUES) -> list[slice]:
        """Places of the blocks in the first dimension of the rows."""
        first = self.observed.rows[0]
        size = self.observed.given.sizes[first]
        step = max(1, values * size // self.size)
        chunks = self.samples.chunks(first)
        # A chunk that is read in two blocks would be computed twice.
        ends = [0]
        for end in accumulate(chunks):
            if end - ends[-1] <= step and len(ends) > 1 and end - ends[-2] <= step:
                ends[-1] = end
            elif end - ends[-1] <= 4 * step and len(chunks) > 1:
                ends.append(end)
            else:
                ends += [*range(ends[-1] + step, end, step), end]
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def at(self, places: slice) -> "NamedForecast":
        """Some places of the first dimension of the rows."""
        part = {self.observed.rows[0]: places}
        return replace(self, samples=self.samples.at(part), observed=self.observed.at(part))

    def loaded(self) -> "NamedForecast":
        """The same with all values in memory, computed in this thread."""
        return replace(self, samples=self.samples.loaded(), observed=self.observed.loaded())

    def culled(self) -> "NamedForecast":
        """The same without the tasks of dask that compute other rows."""
        return replace(self, samples=self.samples.culled(), observed=self.observed.culled())

    def labels(self, value: object, what: str) -> Any:
        """Labels of the rows `(N,)` where a coordinate is named; other values as they are.

        Args:
            value: name of a coordinate of the observations or else of the samples, or of a part
                of a date such as `"time.season"`.
            what: name of the argument.
        """
        if is_named(value):
            raise InputTypeError(f"{what} is an array of xarray: name a coordinate of y or dist")
        if not isinstance(value, str):
            return value
        import pandas as pd

        rows = self.observed.rows
        found = self._coordinate(value, what).variable
        others = [dim for dim in found.dims if dim not in rows]
        if others:
            raise InputError(
                f"{what} {value!r} has the dimensions {quoted(found.dims)}, and {quoted(others)} "
                f"is none of the rows, which are {quoted(rows)}"
            )
        sizes = {dim: self.observed.given.sizes[dim] for dim in rows}
        labels = found.set_dims(sizes).to_numpy().ravel()
        if missing := int(pd.isna(labels).sum()):
            raise InputError(f"{what} {value!r} has no value in {missing} of {labels.size} rows")
        return labels

    def over_rows(self, values: Tensor, name: str, *, unit: bool = False) -> "xr.DataArray":
        """Values `(N,)` as an array with the dimensions and coordinates of the rows.

        Args:
            values: one for each row.
            name: of the array.
            unit: whether they have the unit of the observations.
        """
        import xarray as xr

        rows = self.observed.rows
        sizes = [self.observed.given.sizes[dim] for dim in rows]
        attrs = {"units": self.units} if unit and self.units else {}
        data = values.detach().cpu().numpy().reshape(sizes)
        return xr.DataArray(data, self._coords(rows), rows, name, attrs)

    def over_components(self, values: Tensor, name: str, labels: Sequence[str]) -> "xr.DataArray":
        """Values `(N, J)` as an array with a last dimension `component`."""
        import xarray as xr

        rows = self.observed.rows
        sizes = [self.observed.given.sizes[dim] for dim in rows]
        data = values.detach().cpu().numpy().reshape(*sizes, len(labels))
        coords = {**self._coords(rows), "component": list(labels)}
        return xr.DataArray(data, coords, (*rows, "component"), name)

    def over_events(self, values: Tensor, name: str) -> "xr.DataArray | xr.Dataset":
        """Values `(N, D)` in the unit of the observations, with all of their dimensions."""
        new = self.observed.like(values.detach().cpu().numpy())
        if not self.observed.variables:
            return new.rename(name)
        return new[list(self.observed.variables)]

    @property
    def units(self) -> str | None:
        """The attribute `units` of the observations, where all have the same."""
        known = set(self.observed.units)
        return known.pop() if len(known) == 1 else None

    def _ensemble(self, samples: Field) -> Ensemble:
        return Ensemble(samples.values(gaps=as_missing(self.missing)), missing=self.missing)

    def _table(self, observed: Field) -> "pd.DataFrame":
        import pandas as pd

        indexes = [observed.given.get_index(dim) for dim in observed.rows]
        rows: Any = indexes[0]
        if len(indexes) > 1:
            rows = pd.MultiIndex.from_product(indexes, names=observed.rows)
        values = observed.values(gaps=as_missing(self.missing))
        return pd.DataFrame(values, rows, pd.Index(observed.targets))

    def _coordinate(self, name: str, what: str) -> Any:
        for field in (self.observed, self.samples):
            with suppress(KeyError):
                return field.given[name]
        known = {str(c) for field in (self.observed, self.samples) for c in field.given.coords}
        raise InputError(
            f"{what} {name!r} is not a coordinate of y or dist; known are {quoted(sorted(known))}, "
            "and parts of dates such as 'time.season'"
        )

    def _coords(self, dims: Sequence[Hashable]) -> dict[Hashable, Any]:
        """Coordinates that depend on some dimensions alone; those of the observations first."""
        fields = (self.samples, self.observed)
        every = {name: c for field in fields for name, c in field.given.coords.items()}
        return {name: c.variable for name, c in every.items() if set(c.dims) <= set(dims)}
