"""Shapes of predictive regions: how central an observation is, as one number."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Rounded, draw
from prerank.errors import NotApplicableError
from prerank.preranks import HDR
from prerank.recalibration.marginal import MarginTable
from prerank.recalibration.proposals import Pool, Proposal
from prerank.recalibration.value_masses import ValueMasses, preimages

__all__ = ["SHAPES", "BoxShape", "DensityShape", "RegionShape"]

_EDGE = 1e-9
_FARTHEST = 1e6  # squared score of what lies at infinity


class RegionShape(ABC):
    r"""Family of nested sets :math:`\{y : T(x, y) \ge t\}` of each row.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        n_samples: draws per row, where there is no closed form.
        generator: of the draws.
    """

    randomised: ClassVar[bool] = False
    """Whether ties are broken at random, or lie inside."""

    dist: Distribution
    margins: MarginTable | None

    @abstractmethod
    def __init__(
        self, dist: Distribution, *, n_samples: int, generator: torch.Generator | None
    ) -> None: ...

    @abstractmethod
    def statistic(self, y: Tensor) -> Tensor:
        """T at `(..., N, D)`, in float64: `(..., N)`."""

    @abstractmethod
    def pool(self, n: int, generator: torch.Generator | None) -> Pool:
        """Points with their T in place of the log-density, and weights that make them forecasts."""

    @abstractmethod
    def volume(
        self,
        threshold: Tensor,
        inside: Callable[[Tensor], Tensor],
        n: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Size of the set, `(N,)`, from n points where it has no formula.

        Args:
            threshold: t, `(N,)`.
            inside: says of values `(S, N)` of T whether they belong to it.
            n: number of points.
            generator: of the points.
        """

    def of_row(self, dist: Distribution, row: int) -> Self:
        """The shape of one row, for its distribution."""
        own = copy(self)
        own.dist = dist
        if self.margins is not None:
            parts = (self.margins.scores, self.margins.values)
            own.margins = MarginTable(*(part[row : row + 1] for part in parts))
        return own


class DensityShape(RegionShape):
    r"""Highest-density regions, the smallest sets of their probability: :math:`T = \log f(y)`.

    Where targets are discrete, f is the probability of their values (see `ValueMasses`).
    """

    randomised = True

    def __init__(
        self, dist: Distribution, *, n_samples: int, generator: torch.Generator | None
    ) -> None:
        base = dist.base if isinstance(dist, Rounded) else dist
        try:
            HDR().check(base)
        except NotApplicableError as error:
            raise NotApplicableError(
                f"a density region needs a density and {type(dist).__name__} has none: use "
                "shape='box', whose limits are quantiles of each target"
            ) from error
        self.dist, self.margins = dist, None
        self._proposal = Proposal(base, generator=generator)
        if isinstance(dist, Rounded):
            self.margins = MarginTable.of(base, n_samples=n_samples, generator=generator)
            self._masses = ValueMasses(dist, self.margins, self._proposal)

    def statistic(self, y: Tensor) -> Tensor:
        """Log-density."""
        if self.margins is None:
            return self._proposal.log_density(y)
        return self._masses.log_prob(y)

    def pool(self, n: int, generator: torch.Generator | None) -> Pool:
        """Points that reach far beyond those of the forecast."""
        pool = self._proposal.draw(n, generator=generator)
        if self.margins is None:
            return pool
        log_p = self.statistic(self._snapped(pool.points))
        return Pool(pool.points, log_p.unsqueeze(0), pool.log_q + log_p - pool.log_density)

    def volume(
        self,
        threshold: Tensor,
        inside: Callable[[Tensor], Tensor],
        n: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        r"""Points of a proposal q stand for :math:`1 / (n q)` of the space each."""
        pool = self._proposal.draw(n, generator=generator)
        values, log_size = pool.log_density, -pool.log_q
        if self.margins is not None:
            values = self.statistic(self._snapped(pool.points))
            log_size = self._masses.log_share(pool.points) - pool.log_q
        return torch.where(inside(values), log_size.exp(), 0).mean(0)

    def of_row(self, dist: Distribution, row: int) -> Self:
        """The shape of one row, for its distribution."""
        own = super().of_row(dist, row)
        base = dist.base if isinstance(dist, Rounded) else dist
        own._proposal = Proposal(base, generator=torch.Generator().manual_seed(0))
        if isinstance(dist, Rounded) and own.margins is not None:
            own._masses = ValueMasses(dist, own.margins, own._proposal)
        return own

    def _snapped(self, points: Tensor) -> Tensor:
        assert isinstance(self.dist, Rounded)
        return self.dist.snap(points)


class BoxShape(RegionShape):
    r"""Boxes of central intervals of all targets, at one level in a row.

    .. math:: T = -\tfrac12 \max_d w_d^2, \qquad w_d = \Phi^{-1}(F_d(y_d \mid x)),

    so the box for t has the limits :math:`F_d^{-1}(\Phi(\pm\sqrt{-2 t}))`. A value of a discrete
    target has the score nearest to 0 of its cell: it is in the box if any part of its cell is.
    """

    margins: MarginTable

    def __init__(
        self, dist: Distribution, *, n_samples: int, generator: torch.Generator | None
    ) -> None:
        base = dist.base if isinstance(dist, Rounded) else dist
        self.dist = dist
        self.margins = MarginTable.of(base, n_samples=n_samples, generator=generator)

    def distances(self, y: Tensor) -> Tensor:
        """Absolute normal scores of each target, `(..., N, D)`."""
        if not isinstance(self.dist, Rounded):
            return self.margins.score(y)[0].abs()
        low, high = (self.margins.score(edge)[0] for edge in preimages(self.dist, y))
        return low.maximum(-high).clamp_min(0)

    def statistic(self, y: Tensor) -> Tensor:
        """Minus half of the largest squared score: it falls as the log-probability of tails."""
        return -self.distances(y).amax(-1).square().clamp_max(_FARTHEST) / 2

    def pool(self, n: int, generator: torch.Generator | None) -> Pool:
        """Draws of the forecast; the members of an ensemble."""
        draws = draw(self.dist, n, generator=generator)
        values = self.statistic(draws.points)
        weights = 0 if draws.weights is None else draws.weights.double().log()
        return Pool(draws.points, values.unsqueeze(0), values - weights)

    def intervals(self, distances: Tensor) -> Tensor:
        """Quantiles of each target at normal scores of both signs, `(N, D, 2)`, not rounded."""
        # Cells that end exactly there belong to them.
        distances = distances * (1 + _EDGE) + _EDGE
        return torch.stack([self.margins.quantile(w)[0] for w in (-distances, distances)], -1)

    def snapped(self, intervals: Tensor) -> Tensor:
        """Intervals `(N, D, 2)` between values of discrete targets."""
        if not isinstance(self.dist, Rounded):
            return intervals
        return self.dist.snap(intervals.mT).mT

    def limits(self, threshold: Tensor) -> Tensor:
        """Intervals of the box for thresholds t `(N,)`, not rounded: `(N, D, 2)`."""
        distance = (-2 * threshold).clamp_min(0).sqrt().unsqueeze(-1)
        return self.intervals(distance.expand(self.margins.values.shape[:-1]))

    def sizes(self, limits: Tensor) -> Tensor:
        """Lengths of intervals `(N, D, 2)`: of the continuous parts, and 1 for each value."""
        low, high = limits.unbind(-1)
        lengths = high - low
        if not isinstance(self.dist, Rounded):
            return lengths
        columns = list(lengths.unbind(-1))
        for d, cells in enumerate(self.dist.cells):
            if cells is not None:
                start, end = cells.lower.to(low), cells.upper.to(low)
                first, last = low[:, d, None].maximum(start), high[:, d, None].minimum(end)
                overlap = (last - first).clamp_min(0).sum(-1)
                columns[d] = columns[d] - overlap + (first <= last).sum(-1)
        return torch.stack(columns, -1)

    def volume(
        self,
        threshold: Tensor,
        inside: Callable[[Tensor], Tensor],
        n: int,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Product of the lengths of the intervals."""
        return self.sizes(self.limits(threshold)).prod(-1)


SHAPES: dict[str, type[RegionShape]] = {"density": DensityShape, "box": BoxShape}
"""Shapes by name."""
