"""How central observations are by their forecasts, and the conformal quantile of that."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import rows_of
from prerank.distributions.noise import standard_uniform
from prerank.errors import InputError
from prerank.recalibration.corrections import interpolate
from prerank.recalibration.level_sets import LevelTable
from prerank.recalibration.region_shapes import RegionShape

__all__ = ["CentralScores", "ConformalScores", "Cut", "conformal_rank", "tie_breakers"]


class Cut(NamedTuple):
    """The least score inside, and the least tie-breaker of those that equal it."""

    score: float
    tie: float


class ConformalScores(NamedTuple):
    """Scores of calibration rows and their tie-breakers, `(m,)` each."""

    scores: Tensor
    ties: Tensor

    def cut(self, level: float) -> Cut:
        """The k-th largest score."""
        scores, ties = self.scores.cpu().numpy(), self.ties.cpu().numpy()
        order = np.lexsort((ties, scores))[::-1]
        last = order[conformal_rank(len(order), level) - 1]
        return Cut(float(scores[last]), float(ties[last]))


class CentralScores(NamedTuple):
    """Normal scores of H: how central points are by the forecast's own standards."""

    shape: RegionShape
    table: LevelTable

    @classmethod
    def made(
        cls, dist: Distribution, kind: type[RegionShape], n: int, source: torch.Generator | None
    ) -> "CentralScores":
        """From n draws of each row.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            kind: what is central.
            n: number of draws.
            source: of the draws.
        """
        shape = kind(dist, n_samples=n, generator=source)
        return cls(shape, LevelTable.of(shape.pool(n, source)))

    @property
    def device(self) -> torch.device:
        """Where the scores are."""
        return self.table.levels.device

    def of(self, y: Tensor) -> Tensor:
        """Scores of points `(..., N, D)`: `(..., N)`."""
        return self.of_values(self.shape.statistic(y))

    def of_values(self, values: Tensor) -> Tensor:
        """Scores of values of T `(..., N)`; of tied ones the mass up to the last."""
        return self.table.score(values, torch.ones_like(values))

    def threshold(self, score: float) -> Tensor:
        """T at a score, `(N,)`; below the table the inverse of `LevelTable.score`."""
        lowest = self.table.scores[0]
        wanted = self.table.levels.new_full(self.table.levels.shape[:1], score)
        inner, _ = interpolate(wanted.maximum(lowest), self.table.scores, self.table.levels)
        fall = (score**2 - lowest.square()) / 2
        return torch.where(wanted < lowest, self.table.levels[:, 0] - fall, inner)

    def of_row(self, row: int) -> "CentralScores | None":
        """Those of one row, or None where the forecast of a row cannot be taken out."""
        dist = rows_of(self.shape.dist, slice(row, row + 1))
        if dist is None:
            return None
        table = LevelTable(self.table.scores, self.table.levels[row : row + 1])
        return CentralScores(self.shape.of_row(dist, row), table)


def tie_breakers(like: Tensor, kind: type[RegionShape], source: torch.Generator | None) -> Tensor:
    """What breaks the ties of scores; equal numbers keep them inside."""
    if not kind.randomised:
        return torch.zeros_like(like)
    return standard_uniform(like.shape, like=like, generator=source)


def conformal_rank(rows: int, level: float) -> int:
    """K, the rank among calibration rows that gives the coverage."""
    rank = max(1, math.ceil((rows + 1) * level - 1e-9))  # 0.9 * 10 is 9, whatever its last digit
    if rank > rows:
        raise InputError(
            f"calibration has {rows} rows: a level of {level:g} needs at least "
            f"{math.ceil(level / (1 - level) - 1e-9)}"
        )
    return rank
