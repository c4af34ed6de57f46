"""Shapes of predictive regions: how central an observation is, as one number."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.mixtures import as_gaussian_mixture
from prerank.distributions import Bounded, GaussianMixture, Rounded, draw
from prerank.errors import NotApplicableError
from prerank.preranks import HDR
from prerank.recalibration.marginal import MarginTable
from prerank.recalibration.mixture_margins import MixtureMargins
from prerank.recalibration.proposals import Pool, Proposal
from prerank.recalibration.value_masses import ValueMasses, preimages

__all__ = ["SHAPES", "BoxShape", "DensityShape", "RegionShape"]

_EDGE = 1e-9
_FARTHEST = 1e12  # squared score of what lies at infinity


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
        self.dist = dist
        self._proposal = Proposal(base, generator=generator)
        self._masses: ValueMasses | None = None
        if isinstance(dist, Rounded):
            margins = MarginTable.of(base, n_samples=n_samples, generator=generator)
            self._masses = ValueMasses(dist, margins, self._proposal)

    def statistic(self, y: Tensor) -> Tensor:
        """Log-density."""
        if self._masses is None:
            return self._proposal.log_density(y)
        return self._masses.log_prob(y)

    def pool(self, n: int, generator: torch.Generator | None) -> Pool:
        """Points that reach far beyond those of the forecast."""
        pool = self._proposal.draw(n, generator=generator)
        if self._masses is None:
            return pool
        log_p = self.statistic(self._masses.dist.snap(pool.points))
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
        if self._masses is not None:
            values = self.statistic(self._masses.dist.snap(pool.points))
            log_size = self._masses.log_share(pool.points) - pool.log_q
        return torch.where(inside(values), log_size.exp(), 0).mean(0)

    def of_row(self, dist: Distribution, row: int) -> Self:
        """The shape of one row, for its distribution."""
        own = super().of_row(dist, row)
        base = dist.base if isinstance(dist, Rounded) else dist
        own._proposal = Proposal(base, generator=torch.Generator().manual_seed(0))
        if isinstance(dist, Rounded) and self._masses is not None:
            margins = row_of(self._masses.margins, row)
            own._masses = ValueMasses(dist, margins, own._proposal)
        return own


class BoxShape(RegionShape):
    r"""Boxes of central intervals of all targets, at one level in a row.

    .. math:: T = -\tfrac12 \max_d w_d^2, \qquad w_d = \Phi^{-1}(F_d(y_d \mid x)),

    so the box for t has the limits :math:`F_d^{-1}(\Phi(\pm\sqrt{-2 t}))`. A value of a discrete
    target has the score nearest to 0 of its cell: it is in the box if any part of its cell is.
    """

    def __init__(
        self, dist: Distribution, *, n_samples: int, generator: torch.Generator | None
    ) -> None:
        base = dist.base if isinstance(dist, Rounded) else dist
        self.dist, self._bounds = dist, base if isinstance(base, Bounded) else None
        base = base.base if isinstance(base, Bounded) else base  # whose quantiles move with it
        normal = as_gaussian_mixture(base)
        self._margins: MixtureMargins | MarginTable
        if isinstance(normal, GaussianMixture):
            self._margins = MixtureMargins(normal)
        else:
            self._margins = MarginTable.of(base, n_samples=n_samples, generator=generator)

    def distances(self, y: Tensor) -> Tensor:
        """Absolute normal scores of each target, `(..., N, D)`."""
        if not isinstance(self.dist, Rounded):
            return self._score(y).abs()
        low, high = (self._score(edge) for edge in preimages(self.dist, y))
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
        return torch.stack([self._quantile(w) for w in (-distances, distances)], -1)

    def snapped(self, intervals: Tensor) -> Tensor:
        """Intervals `(N, D, 2)` between values of discrete targets."""
        if not isinstance(self.dist, Rounded):
            return intervals
        return self.dist.snap(intervals.mT).mT

    def limits(self, threshold: Tensor) -> Tensor:
        """Intervals of the box for thresholds t `(N,)`, not rounded: `(N, D, 2)`."""
        distance = (-2 * threshold).clamp_min(0).sqrt().unsqueeze(-1)
        return self.intervals(distance.expand(-1, self.dist.event_shape[0]))

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

    def of_row(self, dist: Distribution, row: int) -> Self:
        """The shape of one row, for its distribution."""
        own = super().of_row(dist, row)
        if isinstance(self._margins, MarginTable):
            own._margins = row_of(self._margins, row)
        else:
            own._margins = self._margins.of_row(row)
        return own

    def _score(self, y: Tensor) -> Tensor:
        found = self._margins.score(y if self._bounds is None else self._bounds.points(y))
        return found[0] if isinstance(found, tuple) else found

    def _quantile(self, w: Tensor) -> Tensor:
        found = self._margins.quantile(w)
        found = found[0] if isinstance(found, tuple) else found
        return found if self._bounds is None else self._bounds.values(found)


def row_of(table: MarginTable, row: int) -> MarginTable:
    """The table of one row."""
    return MarginTable(table.scores[row : row + 1], table.values[row : row + 1])


SHAPES: dict[str, type[RegionShape]] = {"density": DensityShape, "box": BoxShape}
"""Shapes by name."""
