r"""PITs that are counted, block by block, and not kept.

.. math:: C_{jl} = \#\{ i : e_{l-1} < Z_{ij} \le e_l \},

where the edges e are the levels of the PCE, those of the tests of uniformity and the edges of 20
bins together. All that a diagnosis says of the PITs of independent rows is a function of these
numbers. Where rows depend on each other, what is needed is the number of each unit: of a time, a
cluster, or of neighbouring ones added up where there are many (`DependentRows.cells`). Counts of
parts of the rows add up to those of all.
"""

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from prerank.calibration.curves import PITHistogram, ReliabilityCurve, level_grid, pce_of_curve
from prerank.calibration.dependent_rows import DependentRows, UnitCounts
from prerank.calibration.intervals import ErrorLimits, curve_limit_parts, curve_limits, limited
from prerank.calibration.uniformity import counted_p_values, tail_levels
from prerank.defaults import BAND_LEVEL, LEVELS, MANY_ROWS
from prerank.errors import InputError, ShapeError
from prerank.numerics.buckets import Buckets

__all__ = ["PITCounts"]

_BINS = 20


class PITCounts:
    """Counts of the PITs of J components by cell.

    Args:
        levels: number of levels of the PCE.
        dependence: which of all rows that will come depend on each other; none by default.

    Attributes:
        rows: number of rows so far.
        used: those of them with a PIT of a component at least.

    Example:
        >>> z = torch.rand(100_000, 2, generator=torch.Generator().manual_seed(0))
        >>> counts = PITCounts()
        >>> for part in z.split(30_000):
        ...     counts.add(part)
        >>> from prerank.calibration import pce
        >>> bool(torch.allclose(counts.errors(), pce(z.double())))
        True
    """

    def __init__(self, levels: int = LEVELS, dependence: DependentRows | None = None) -> None:
        self.rows = self.used = 0
        self._levels, self._dependence = levels, dependence
        self._cells = torch.empty(0)
        self._units, self._first_unit = torch.empty(0), 0  # of those units that have rows

    def __len__(self) -> int:
        """Number of rows."""
        return self.rows

    @property
    def components(self) -> int:
        """J."""
        return len(self._cells)

    @property
    def sizes(self) -> list[int]:
        """Number of PITs of each component."""
        return [int(size) for size in self._cells.sum(-1).tolist()]

    @property
    def has_gaps(self) -> bool:
        """Whether a component has no PIT in some rows."""
        return any(size < self.rows for size in self.sizes)

    def add(self, z: Tensor, rows: Tensor | None = None) -> None:
        """Count the PITs of more rows.

        Args:
            z: `(N, J)`, NaN in gaps.
            rows: numbers of these rows among all, `(N,)`, where some depend on each other; by
                default those that follow the rows so far.
        """
        n, components = z.shape
        edges, unit_edges = _edges(self._levels), _unit_edges(self._levels)
        if not self.rows:
            self._cells = torch.zeros(components, len(edges), dtype=torch.int64)
        values = z.detach().cpu()
        present = ~values.isnan()
        whole = bool(present.all())
        keys = _buckets(self._levels)(values if whole else values.masked_fill(~present, 0))
        if self._dependence is not None:
            if not whole:
                raise InputError(
                    "rows with missing values and time or cluster cannot be looked at in blocks: "
                    "diagnose all of them at once"
                )
            self._count_units(keys, rows, len(unit_edges))
        keys += len(edges) * torch.arange(components)
        found = torch.bincount((keys if whole else keys[present]).flatten(), minlength=0)
        self._cells.view(-1)[: len(found)] += found
        self.rows += n
        self.used += n if whole else int(present.any(-1).sum())

    def merge(self, other: "PITCounts") -> None:
        """Add the counts of other rows."""
        if not other.rows:
            return
        if not self.rows:
            self._cells = torch.zeros_like(other._cells)
        if self._cells.shape != other._cells.shape:
            raise ShapeError(
                f"counts of {other.components} components and {other._levels} levels cannot be "
                f"added to those of {self.components} components and {self._levels} levels"
            )
        self._cells = self._cells + other._cells
        if self._dependence is not None:
            units, first = other._units, other._first_unit
            self._units_between(first, first + len(units), *units.shape[1:]).add_(units)
        self.rows += other.rows
        self.used += other.used

    def curve(self, levels: int) -> ReliabilityCurve:
        """The empirical CDF of each component, as `reliability_curve`."""
        grid = level_grid(levels)
        sizes = self._cells.sum(-1).double()
        return ReliabilityCurve(grid, (self._below(grid).double() / sizes.unsqueeze(-1)).mT)

    def histogram(self, bins: int) -> PITHistogram:
        """The density of each component, as `pit_histogram`; `bins` divides 20."""
        if _BINS % bins:
            raise InputError(
                f"PITs of so many rows are counted in {_BINS} bins: bins must divide {_BINS}, got "
                f"{bins}"
            )
        edges = level_grid(_BINS + 1)[:: _BINS // bins].contiguous()
        cdf = (self._below(edges).double() / self._cells.sum(-1, keepdim=True)).mT
        density = torch.diff(cdf, dim=0) * bins
        density[0] += cdf[0] * bins
        return PITHistogram(level_grid(bins + 1), density)

    def errors(self) -> Tensor:
        """PCE of each component, `(J,)`."""
        return pce_of_curve(self.curve(self._levels).observed)

    def p_values(self) -> Tensor:
        """P-value of each component by itself, `(J,)`, as `component_p_values`."""
        below = self._below(tail_levels(MANY_ROWS))
        total = self._cells.sum(-1, keepdim=True)
        counts = torch.cat([below, total], -1).diff(dim=-1, prepend=torch.zeros_like(total))
        return counted_p_values(counts, MANY_ROWS)

    def limits(self, level: float = BAND_LEVEL) -> ErrorLimits:
        """Limits of the true error of each component, as `pce_limits`."""
        none = ErrorLimits(*torch.full((2, 1), torch.nan, dtype=torch.float64))
        parts = [curve_limits(*one, level=level) if one[1] else none for one in self._parts()]
        return ErrorLimits(*(torch.cat(limit) for limit in zip(*parts, strict=True)))

    def mean_limits(self) -> ErrorLimits:
        """Limits of the mean of the true errors, as `mean_pce_limits`."""
        if self.components == 1:
            return ErrorLimits(*(limit[0] for limit in self.limits()))
        parts = [curve_limit_parts(*one) for one in self._parts() if one[1]]
        error, area, above = torch.cat(parts, -1).mean(-1).unbind()
        return limited(error, area + above, above)

    def of_components(self, places: list[int]) -> "PITCounts":
        """The counts of some components, by their numbers."""
        some = PITCounts(self._levels, self._dependence)
        some.rows, some.used, some._cells = self.rows, self.used, self._cells[places]
        if len(self._units):
            some._units, some._first_unit = self._units[:, places], self._first_unit
        return some

    def in_units(self) -> Iterator[UnitCounts]:
        """The counts of each component by unit, where rows depend on each other."""
        edges = _unit_edges(self._levels)
        assert self._dependence is not None
        every = int(self._dependence.cells.max()) + 1
        units = self._units_between(0, every, *self._units.shape[1:])
        for counts in units.unbind(1):
            yield UnitCounts(counts, edges)

    def _parts(self) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Curve, number and spread of the PITs of each component; NaN where it has none."""
        curve = self.curve(self._levels).observed
        index = torch.arange(self._levels, dtype=torch.float64)
        for column, size in zip(curve.split(1, -1), self.sizes, strict=True):
            shares = column.diff(dim=0, prepend=torch.zeros(1, 1)) * size
            shares[[0, -1]] += 1  # one more PIT at each end, as in `pce_limits`
            mean = (index @ shares) / (size + 2)
            variance = ((index.unsqueeze(-1) - mean).square() * shares).sum(0) / (size + 1)
            yield column, size, variance.sqrt() / self._levels

    def _below(self, edges: Tensor) -> Tensor:
        """Number of PITs at or below some of the edges, `(J, L)`."""
        at = torch.searchsorted(_edges(self._levels), edges)
        return self._cells.cumsum(-1)[:, at]

    def _count_units(self, places: Tensor, rows: Tensor | None, size: int) -> None:
        n, components = places.shape
        assert self._dependence is not None
        if rows is None:
            rows = torch.arange(self.rows, self.rows + n)
        own = self._dependence.cells[rows]
        first = int(own.min())
        units = self._units_between(first, int(own.max()) + 1, components, size)
        keys = _unit_places(self._levels)[places]
        keys += size * torch.arange(components)
        keys += (components * size * (own - first)).unsqueeze(-1)
        ones = torch.ones(keys.numel(), dtype=torch.int32)
        units.view(-1).scatter_add_(0, keys.flatten(), ones)

    def _units_between(self, start: int, stop: int, components: int, size: int) -> Tensor:
        """Counts of the units from start to stop, for which room is made; parts have few of all."""
        if not len(self._units):
            self._units = torch.zeros(0, components, size, dtype=torch.int32)
            self._first_unit = start
        last = self._first_unit + len(self._units)
        if start < self._first_unit or stop > last:
            assert self._dependence is not None
            # Twice the room that is needed, since more units will follow.
            most = int(self._dependence.cells.max()) + 1
            first, end = min(start, self._first_unit), max(stop, last)
            end = max(end, min(most, 2 * end - first)) if self.rows else end
            units = self._units.new_zeros(end - first, components, size)
            units[self._first_unit - first : last - first] = self._units
            self._units, self._first_unit = units, first
        return self._units[start - self._first_unit : stop - self._first_unit]


@lru_cache(maxsize=16)
def _edges(levels: int) -> Tensor:
    return torch.cat([_unit_edges(levels), tail_levels(MANY_ROWS)]).unique()


@lru_cache(maxsize=16)
def _unit_edges(levels: int) -> Tensor:
    """Of units, which are not tested as independent rows are."""
    return torch.cat([level_grid(levels), level_grid(_BINS + 1)]).unique()


@lru_cache(maxsize=16)
def _buckets(levels: int) -> Buckets:
    return Buckets(_edges(levels))


@lru_cache(maxsize=16)
def _unit_places(levels: int) -> Tensor:
    """The cell of units that each cell lies in."""
    return torch.searchsorted(_unit_edges(levels), _edges(levels))
