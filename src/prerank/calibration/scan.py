r"""A scan over boxes of inputs: where do scores of rows differ from those of the others?

.. math:: T_k(R) = \tfrac12 z_k(R)^2 - \log\frac{n}{m_R} - \log\binom{p}{d_R}, \qquad
          z_k(R) = \frac{\sum_{i \in R} s_{ik}}{\sqrt{m_R (n - m_R) / (n - 1)}}

for scores :math:`s_k` of mean 0 and variance 1 over the n rows, and a region :math:`R` of
:math:`m_R` rows that :math:`d_R` of the p inputs bound.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from prerank.calibration.axes import Axis

__all__ = ["Grid", "Peak", "Scan"]

_BLOCK = 2**21  # scores that are summed at once


@dataclass(frozen=True)
class Peak:
    """The region and score with the largest statistic.

    Attributes:
        statistic: penalised.
        score: its number.
        grid: number of the grid of boxes.
        ranges: first bin and the bin after the last, for each axis of the grid.
    """

    statistic: float
    score: int
    grid: int
    ranges: tuple[tuple[int, int], ...]


class Grid:
    """All boxes that are bounded by each of a few inputs.

    Args:
        axes: the inputs, cut into bins.
        n: number of rows.
        least: fewest rows of a box.
        penalty: logarithm of the number of such grids.
    """

    def __init__(self, axes: Sequence[Axis], *, n: int, least: int, penalty: float) -> None:
        self.axes, self.n = tuple(axes), n
        self.shape = tuple(axis.bins for axis in self.axes)
        codes = np.ravel_multi_index([axis.codes for axis in self.axes], self.shape)
        self.codes = torch.from_numpy(codes)
        self.sides = [torch.from_numpy(axis.ranges[1:]) for axis in self.axes]
        counts = torch.bincount(self.codes, minlength=math.prod(self.shape)).double()
        sizes = self._boxes(counts.unsqueeze(-1)).squeeze(-1)
        self.kept = ((sizes >= least) & (sizes <= n / 2)).nonzero().squeeze(-1)
        m = sizes[self.kept]
        self.weight = ((n - 1) / (2 * m * (n - m))).sqrt().float().unsqueeze(-1)
        self.penalty = (penalty + (n / m).log()).float().unsqueeze(-1)

    def statistics(self, cells: Tensor) -> Tensor:
        """Statistics of all boxes and scores, `(boxes, K)`, from sums over the cells."""
        sums = self._boxes(cells)[self.kept]
        return sums.mul_(self.weight).square_().sub_(self.penalty)

    def _boxes(self, cells: Tensor) -> Tensor:
        """Sums over all boxes, `(boxes, K)`: one difference of cumulative sums for each side."""
        values = cells.reshape(*self.shape, -1)
        for d, sides in enumerate(self.sides):
            head = values.new_zeros(*values.shape[:d], 1, *values.shape[d + 1 :])
            sums = torch.cat([head, values.cumsum(d)], d)
            values = sums.index_select(d, sides[:, 1]) - sums.index_select(d, sides[:, 0])
        return values.flatten(0, len(self.sides) - 1)

    def box(self, place: int) -> tuple[tuple[int, int], ...]:
        """The ranges of a box, by its number."""
        where = np.unravel_index(int(self.kept[place]), [len(side) for side in self.sides])
        return tuple(
            (int(side[i, 0]), int(side[i, 1])) for side, i in zip(self.sides, where, strict=True)
        )

    def coverage(self, weights: Tensor) -> Tensor:
        """Sum of the weights of the boxes that hold each row, `(N,)`."""
        values = weights.new_zeros(math.prod(len(side) for side in self.sides))
        values[self.kept] = weights
        values = values.reshape([len(side) for side in self.sides])
        for side, bins in zip(self.sides, self.shape, strict=True):
            cells = torch.arange(bins)
            covers = (side[:, :1] <= cells) & (cells < side[:, 1:])
            values = torch.tensordot(values, covers.to(weights), ([0], [0]))  # goes to the end
        return values.reshape(-1)[self.codes]


class Scan:
    """All boxes of several grids, over the same rows.

    Args:
        grids: of boxes, one at least in each.
    """

    def __init__(self, grids: Sequence[Grid]) -> None:
        self.grids = tuple(grids)
        self.n = grids[0].n
        sizes = [math.prod(grid.shape) for grid in grids]
        self.sizes = sizes
        # One sparse matrix sums the rows of every cell of every grid.
        starts = np.cumsum([0, *sizes[:-1]])
        cells = [grid.codes.numpy() + start for grid, start in zip(grids, starts, strict=True)]
        rows = np.tile(np.arange(self.n), len(grids))
        ones = np.ones(len(rows), dtype=np.float32)
        shape = (sum(sizes), self.n)
        self.adder = csr_array((ones, (np.concatenate(cells), rows)), shape=shape)

    def peak(self, scores: Tensor) -> Peak:
        """The largest statistic of scores `(N, K)`."""
        best = Peak(-math.inf, 0, 0, ())
        for number, (grid, cells) in enumerate(zip(self.grids, self._cells(scores), strict=True)):
            statistics = grid.statistics(cells)
            box, score = divmod(int(statistics.argmax()), scores.shape[1])
            value = float(statistics[box, score])
            if value > best.statistic:
                best = Peak(value, score, number, grid.box(box))
        return best

    def null(self, replicates: Iterator[Tensor]) -> Tensor:
        """Largest statistic of each of several scores `(N, K)`."""
        found = []
        for first in replicates:
            several = [first, *islice(replicates, max(0, _BLOCK // first.numel() - 1))]
            together = torch.cat(several, 1)  # (N, count * K)
            block = together.new_full((len(several),), -math.inf)
            for grid, cells in zip(self.grids, self._cells(together), strict=True):
                largest = grid.statistics(cells).amax(0).reshape(len(several), -1).amax(1)
                block = torch.maximum(block, largest)
            found.append(block)
        return torch.cat(found)

    def weights(self, scores: Tensor) -> Tensor:
        r"""How much each row belongs to what stands out, from 0 to 1, `(N,)`.

        .. math:: w_i = \frac{\sum_{R \ni i} \sum_k e^{T_k(R)}}{\sum_R \sum_k e^{T_k(R)}}
        """
        logs = [
            grid.statistics(cells).double().logsumexp(1)
            for grid, cells in zip(self.grids, self._cells(scores), strict=True)
        ]
        total = torch.cat(logs).logsumexp(0)
        parts = zip(self.grids, logs, strict=True)
        return sum((grid.coverage((log - total).exp()) for grid, log in parts), torch.zeros(self.n))

    def _cells(self, scores: Tensor) -> Sequence[Tensor]:
        return torch.from_numpy(self.adder @ scores.numpy()).split(self.sizes)
