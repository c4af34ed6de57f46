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

__all__ = ["STAND_INS", "StandIns", "ThinnedRows"]

STAND_INS = 5
"""Random members of each pool that stand in for its observation, M."""

_GROUPS = 256
_TABLE_VALUES = 2**24  # of all groups, which are fewer where there are many components
_KEPT_ROWS, _KEPT_VALUES = 2**15, 2**22
_PILOT = 200  # replicates for the units of the two statistics
_STEP = 100


class StandIns:
    """Counts of the PITs of observations and of their stand-ins, in groups of rows.

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

    def __init__(self) -> None:
        self.rows = 0
        self._group_rows = 1
        self._tables = torch.empty(0)

    def add(self, z: Tensor) -> None:
        """Count the PITs of the next rows.

        Args:
            z: of the observations, then of M stand-ins, `(M + 1, N, J)`. Gaps, which all of a row
                have in common, are not counted.
        """
        sets, n, components = z.shape
        if not self.rows:
            self._tables = _empty_tables(sets, components)
        n_cells = self._tables.shape[-1]
        while self.rows + n > len(self._tables) * self._group_rows:
            pairs = self._tables[0::2] + self._tables[1::2]
            self._tables = torch.cat([pairs, torch.zeros_like(pairs)])
            self._group_rows *= 2
        groups = torch.arange(self.rows, self.rows + n) // self._group_rows
        first, last = int(groups[0]), int(groups[-1]) + 1
        present = ~z.isnan().cpu()
        keys = tail_buckets(MANY_ROWS)(z.cpu().masked_fill(~present, 0))
        keys += n_cells * torch.arange(components)
        keys += components * n_cells * torch.arange(sets).reshape(-1, 1, 1)
        keys += sets * components * n_cells * (groups - first).unsqueeze(-1)
        part = self._tables[first:last]
        part += torch.bincount(keys[present], minlength=part.numel()).reshape(part.shape)
        self.rows += n

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

    def _replicates(self, source: torch.Generator | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Statistics of replicates, without end."""
        groups = min(len(self._tables), -(-self.rows // self._group_rows))
        sets, *shape = self._tables.shape[1:]
        tables = self._tables[:groups].double().flatten(2).flatten(0, 1)  # sums are exact
        starts = sets * torch.arange(groups)
        while True:
            choice = torch.randint(sets, (_STEP, groups), generator=source)
            counts = embedding_bag(starts + choice, tables, mode="sum")
            yield cell_statistics(counts.round().long().reshape(_STEP, *shape), MANY_ROWS)


def _empty_tables(sets: int, components: int) -> Tensor:
    """Counts of no rows yet, `(groups, M + 1, J, L)`; the number of groups is a power of two."""
    n_cells = len(tail_levels(MANY_ROWS)) + 1
    most = max(64, _TABLE_VALUES // (sets * components * n_cells))
    groups = min(_GROUPS, 2 ** int(math.log2(most)))
    return torch.zeros(groups, sets, components, n_cells, dtype=torch.int32)


class ThinnedRows:
    """Every k-th row, with k doubled whenever there would be too many.

    Example:
        >>> thinned = ThinnedRows()
        >>> for block in torch.arange(100_000.0).reshape(1, -1, 1).split(30_000, 1):
        ...     thinned.add(block)
        >>> thinned.values.shape, thinned.values[0, :3, 0]
        (torch.Size([1, 25000, 1]), tensor([0., 4., 8.]))
    """

    def __init__(self) -> None:
        self._seen, self._every = 0, 1
        self._parts: list[Tensor] = []

    @property
    def values(self) -> Tensor:
        """Those that are kept, `(R, n, J)`."""
        return torch.cat(self._parts, 1)

    def add(self, *values: Tensor, coming: int = 0) -> None:
        """Add the values of the next rows.

        Args:
            values: `(R, N, J)`, in one part or more.
            coming: number of rows that are known to follow.
        """
        n, components = values[0].shape[1:]
        sets = sum(map(len, values))
        if self._parts and sets != len(self._parts[0]):
            return  # they cannot stand beside the others
        most = max(1, min(_KEPT_ROWS, _KEPT_VALUES // (sets * components)))
        while self._seen + n + coming > most * self._every:
            self._every *= 2
            self._parts = [self.values[:, ::2].clone()] if self._parts else []
        rows = slice(-self._seen % self._every, None, self._every)
        self._parts.append(torch.cat([part[:, rows] for part in values]))
        self._seen += n
