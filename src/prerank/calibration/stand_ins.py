r"""The null of several components from stand-ins that are counted, block by block, and not kept.

In each row M random members of the pool stand in for the observation. Rows are divided into groups
of neighbours, of which only the counts of PITs by component and cell are kept: one table of the
observations, and M of their stand-ins. If the forecast is right, the M + 1 tables of a group are
exchangeable, given the pools. So a replicate takes one of them at random in every group,

.. math:: C^*_{jl} = \sum_g C^{(m_g)}_{gjl}, \qquad m_g \in \{0, \dots, M\},

and the observed counts, all :math:`m_g = 0`, are exchangeable with it. A group has one row as long
as there are few; then two neighbours are added up, table by table, so that there are between 128
and 256 of them however many rows there are, and a replicate costs the same.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from prerank.calibration.nulls import sequential_p_value
from prerank.calibration.uniformity import cell_statistics, tail_buckets, tail_levels
from prerank.defaults import MANY_ROWS
from prerank.inputs import as_generator

__all__ = ["STAND_INS", "StandIns"]

STAND_INS = 5
"""Random members of each pool that stand in for its observation, M."""

_GROUPS = 256
_TABLE_VALUES = 2**24  # of all groups, which are fewer where there are many components
_PILOT = 200  # replicates for the units of the two statistics
_STEP = 100


class StandIns:
    """Counts of the PITs of observations and of their stand-ins, in groups of rows.

    Args:
        expected: number of rows that will come here and elsewhere, if it is known: groups are as
            large as all of them need.

    Attributes:
        rows: number of rows so far.

    Example:
        >>> source = torch.Generator().manual_seed(0)
        >>> calibrated, shifted = StandIns(), StandIns()
        >>> for _ in range(10):
        ...     z = torch.rand(6, 100, 2, generator=source)
        ...     calibrated.add(z)
        ...     shifted.add(torch.cat([z[:1].sqrt(), z[1:]]))
        >>> calibrated.p_value(most=999) > 0.05, shifted.p_value(most=999)
        (True, 0.001)
    """

    def __init__(self, expected: int = 0) -> None:
        self.rows = 0
        self._expected = expected
        self._place = 0  # the first row that is not yet in a group
        self._most, self._group_rows = 0, 1
        self._tables = torch.empty(0)

    def add(self, z: Tensor) -> None:
        """Count the PITs of the next rows.

        Args:
            z: of the observations, then of M stand-ins, `(M + 1, N, J)`. Gaps, which all of a row
                have in common, are not counted.
        """
        sets, n, components = z.shape
        if not self.rows:
            self._start(sets, components)
        end = self._place + n
        while end > self._most * self._group_rows:
            self._tables = _pairs(self._tables)
            self._group_rows *= 2
        last = -(-end // self._group_rows)
        if last > len(self._tables):
            size = min(self._most, 2 ** math.ceil(math.log2(last)))
            empty = self._tables.new_zeros(size - len(self._tables), *self._tables.shape[1:])
            self._tables = torch.cat([self._tables, empty])
        n_cells = self._tables.shape[-1]
        first = self._place // self._group_rows
        groups = torch.arange(self._place, end) // self._group_rows - first
        tables = n_cells * torch.arange(sets * components).reshape(sets, 1, components)
        values = z.cpu()
        gaps = values.isnan()
        some = bool(gaps.any())
        keys = tail_buckets(MANY_ROWS)(values.masked_fill(gaps, 0) if some else values)
        keys += tables + (sets * components * n_cells * groups).unsqueeze(-1)
        part = self._tables[first:last]
        found = keys[~gaps] if some else keys.flatten()
        part += torch.bincount(found, minlength=part.numel()).reshape(part.shape)
        self.rows += n
        self._place = end

    def merge(self, other: "StandIns") -> None:
        """Add the counts of other rows, whose groups follow."""
        if not other.rows:
            return
        if not self.rows:
            self._start(*other._tables.shape[1:3])
        parts, size = [], max(self._group_rows, other._group_rows)
        for one in (self, other):
            tables = one._tables[: one._groups]
            for _ in range(int(math.log2(size // one._group_rows))):
                tables = _pairs(tables)
            parts.append(tables)
        self._tables, self._group_rows = torch.cat(parts), size
        while len(self._tables) > self._most:
            self._tables = _pairs(self._tables)
            self._group_rows *= 2
        self._place = len(self._tables) * self._group_rows
        self.rows += other.rows

    def p_value(self, *, most: int, generator: torch.Generator | int | None = None) -> float:
        """P-value of all components together, from at most so many replicates.

        The statistics are those of `prerank.calibration.uniformity.joint_p_value`. The mean of A
        and the smallest p-value are brought to one scale, of p-values, by a gamma distribution with
        the moments of some replicates that are not used again, and the smaller of them counts.

        Args:
            most: number of replicates after which to stop, see `sequential_p_value`.
            generator: source of the choices.
        """
        replicates = self._replicates(as_generator(generator, "null"))
        pilot = torch.cat([next(replicates)[0] for _ in range(_PILOT // _STEP)])
        mean = max(float(pilot.mean()), 1e-300)
        variance = max(float(pilot.var()), 1e-9 * mean**2)

        def extremeness(statistics: tuple[Tensor, Tensor]) -> Tensor:
            area, smallest = statistics
            shape = torch.tensor(mean**2 / variance, dtype=torch.float64)
            p_area = torch.special.gammaincc(shape, area * (mean / variance))
            p_smallest = -torch.expm1(self._tables.shape[2] * torch.log1p(-smallest))
            return -torch.minimum(p_area, p_smallest)

        own = self._tables[:, 0].sum(0, dtype=torch.int64).unsqueeze(0)
        observed = float(extremeness(cell_statistics(own, MANY_ROWS)))
        return sequential_p_value(observed, map(extremeness, replicates), most=most)

    @property
    def _groups(self) -> int:
        """Number of groups with rows."""
        return -(-self._place // self._group_rows)

    def _start(self, sets: int, components: int) -> None:
        """Make room for tables of so many sets and components, as many as will come."""
        n_cells = len(tail_levels(MANY_ROWS)) + 1
        most = max(64, _TABLE_VALUES // (sets * components * n_cells))
        self._most = min(_GROUPS, 2 ** int(math.log2(most)))
        while self._expected > self._most * self._group_rows:
            self._group_rows *= 2
        self._tables = torch.zeros(0, sets, components, n_cells, dtype=torch.int32)

    def _replicates(self, source: torch.Generator | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Statistics of replicates, without end."""
        groups = self._groups
        sets, *shape = self._tables.shape[1:]
        tables = self._tables[:groups].double().flatten(2).flatten(0, 1)  # sums are exact
        starts = sets * torch.arange(groups)
        while True:
            choice = torch.randint(sets, (_STEP, groups), generator=source)
            counts = embedding_bag(starts + choice, tables, mode="sum")
            yield cell_statistics(counts.round().long().reshape(_STEP, *shape), MANY_ROWS)


def _pairs(tables: Tensor) -> Tensor:
    """Each two neighbouring tables added up."""
    if len(tables) % 2:
        tables = torch.cat([tables, torch.zeros_like(tables[:1])])
    return tables[0::2] + tables[1::2]
