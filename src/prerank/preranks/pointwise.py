"""Nonlinear pre-ranks that look at one point at a time."""

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Ensemble, Rounded
from prerank.distributions.densities import in_support, log_density
from prerank.errors import InputError, NotApplicableError
from prerank.numerics import QuickFunction, join
from prerank.preranks.base import PreRank, Reference, require_dim

__all__ = ["HDR", "Dependency", "Scale", "ThresholdExceedance"]

_CHUNK_VALUES = 2**24  # points times targets per call of log_prob, 128 MB in float64


@dataclass(frozen=True)
class Scale(PreRank):
    r"""Variance across the targets: :math:`\rho(y) = \frac1D \sum_d (y_d - \bar y)^2`.

    Sensitive to: wrong spread, and to wrong dependence. Depends on units.
    """

    name: ClassVar[str] = "scale"
    divisible: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True

    def check(self, dist: Distribution) -> None:
        """Raise for one target, whose variance across targets is always 0."""
        require_dim(dist, 2, self.name, "use 'marginal' for a single target")

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Compute the population variance over the last axis."""
        return _variance(pool)

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        """Compute the standard deviation: the same ranks, but no mass piled up near 0.

        For two targets the density of the variance is infinite at 0, where any smoothing would
        bias the PIT.
        """
        spread: Tensor = _Spread.apply(points)
        return spread


@dataclass(frozen=True)
class Dependency(PreRank):
    r"""Minus the lag-h variogram over the variance across targets.

    .. math:: \rho(y) = -\frac{\gamma_y(h)}{s_y^2}, \qquad
              \gamma_y(h) = \frac{1}{2(D-h)} \sum_{d=1}^{D-h} (y_d - y_{d+h})^2.

    Where all targets are equal (:math:`s_y^2 = 0`) T = 0, its largest value. For two targets the
    ratio is constant, so there is nothing to rank.

    Sensitive to: wrong dependence between targets h apart. Depends on units and order.

    Args:
        lag: h, between 1 and D - 1.
    """

    lag: int = 1
    name: ClassVar[str] = "dependency"
    divisible: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the lag."""
        if isinstance(self.lag, bool) or not isinstance(self.lag, int) or self.lag < 1:
            raise InputError(f"dependency lag must be an int >= 1, got {self.lag!r}")

    def check(self, dist: Distribution) -> None:
        """Raise for fewer than three targets, or a lag that does not fit."""
        require_dim(dist, 3, self.name, "use 'scale', 'pca' or 'copula' instead")
        dim = dist.event_shape[0]
        if self.lag >= dim:
            raise NotApplicableError(
                f"dependency lag is {self.lag}, but D = {dim}: use a lag of at most {dim - 1}"
            )

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Compute the normalised variogram."""
        return _ratio(pool, self.lag)[0]

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        """Compute the normalised variogram, with its gradient written out."""
        ratio: Tensor = _Variogram.apply(points, self.lag)  # type: ignore[no-untyped-call]
        return ratio


@dataclass(frozen=True)
class ThresholdExceedance(PreRank):
    r"""Fraction of targets above a threshold: :math:`\rho(y) = \frac1D \sum_d 1\{y_d > t\}`.

    Sensitive to: how often, and how many at once, the targets exceed t.

    Args:
        threshold: t, in units of the targets.
    """

    threshold: float = 0.0
    name: ClassVar[str] = "threshold_exceedance"
    divisible: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the threshold."""
        number = isinstance(self.threshold, int | float) and not isinstance(self.threshold, bool)
        if not number or not math.isfinite(self.threshold):
            raise InputError(f"threshold must be a finite number, got {self.threshold!r}")

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Count the exceedances."""
        return (pool > self.threshold).to(pool.dtype).mean(-1, keepdim=True)


@dataclass(frozen=True)
class HDR(PreRank):
    r"""Predictive log-density: :math:`\rho(x, y) = \log \hat f(y \mid x)`.

    A small Z means that the observation lies where the density is low, outside most
    highest-density regions. (The density itself is the same pre-rank: ranks do not change under
    increasing transforms, and the logarithm does not underflow.)

    Sensitive to: overall spread and shape, in all directions at once. Free of units.
    """

    name: ClassVar[str] = "hdr"
    divisible: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True
    unitless: ClassVar[bool] = True
    needs_log_prob: ClassVar[bool] = True

    def check(self, dist: Distribution) -> None:
        """Raise for distributions without a density."""
        if isinstance(dist, Ensemble):
            raise NotApplicableError(
                "hdr needs a density, which samples alone do not have: 'copula' and 'energy_score' "
                "look at all targets at once without one"
            )
        if isinstance(dist, Rounded):
            raise NotApplicableError(
                "hdr needs the joint probability of the values of all targets, which a rounded "
                "forecast has not in closed form: use 'copula' or 'energy_score'"
            )
        if type(dist).log_prob is Distribution.log_prob:
            raise NotApplicableError(
                f"hdr needs a density and {type(dist).__name__} has none: use 'copula' or "
                "'energy_score', or pass a distribution with log_prob"
            )

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Evaluate the log-density at every member of the pool."""
        inside = in_support(dist, pool)
        if inside is None or bool(inside.all()):
            return self._log_density(pool, dist)
        safe = torch.where(inside.unsqueeze(-1), pool, pool[-1])  # a draw lies inside
        values = self._log_density(safe, dist)
        return torch.where(inside.unsqueeze(-1), values, -torch.inf)

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        """Evaluate the log-density; training through points outside the support is an error."""
        return self._log_density(points, dist)

    @staticmethod
    def _log_density(points: Tensor, dist: Distribution) -> Tensor:
        chunks = points.split(max(1, _CHUNK_VALUES // max(1, points[0].numel())))
        return join([log_density(dist, chunk) for chunk in chunks]).unsqueeze(-1)


class _Spread(QuickFunction):
    r"""Standard deviation over the last axis, with its gradient written out.

    .. math:: s = \Big(\frac1D \sum_d (y_d - \bar y)^2\Big)^{1/2}, \qquad
              \frac{\partial s}{\partial y_d} = \frac{y_d - \bar y}{D s}.
    """

    @staticmethod
    def forward(points: Tensor) -> Tensor:
        tiny = torch.finfo(points.dtype).tiny
        return _variance(points).clamp_min(tiny).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        points, spread = ctx.saved_tensors
        slope = gradient / (points.shape[-1] * spread)
        return (points - _mean(points)) * slope


_ROOM = 2.0**16  # for gradients above 1


class _Variogram(torch.autograd.Function):
    r"""Minus variogram over variance, :math:`T = -\gamma / s^2`, with its gradient written out.

    .. math:: \frac{\partial T}{\partial y} = -\frac{1}{s^2} \Big(
              \frac{\partial \gamma}{\partial y} + T \frac{\partial s^2}{\partial y} \Big), \quad
              \frac{\partial \gamma}{\partial y_d}
              = \frac{(y_d - y_{d-h}) - (y_{d+h} - y_d)}{D - h}, \quad
              \frac{\partial s^2}{\partial y_d} = \frac{2 (y_d - \bar y)}{D},

    where differences that reach outside are 0; there is no gradient where all targets are equal, or
    so close that squares of their differences vanish.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, lag: int) -> Tensor:
        ratio, variance, centred, steps = _ratio(points, lag)
        ctx.save_for_backward(points, ratio, variance, centred, steps)
        return ratio

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        points, ratio, variance, centred, steps = ctx.saved_tensors
        dim, lag = centred.shape[-1], centred.shape[-1] - steps.shape[-1]
        if torch.is_grad_enabled():  # a graph has to lead to the points
            ratio, variance, centred, steps = _ratio(points, lag)
        # A gradient over a variance that vanishes, or nearly so, may be infinite.
        tiny = _ROOM * torch.finfo(points.dtype).tiny
        scale = torch.where(variance < tiny, 0, -gradient / variance.clamp_min(tiny))
        slope = centred * (2 / dim * ratio)
        steps = steps / (dim - lag)
        slope[..., lag:] += steps
        slope[..., :-lag] -= steps
        return slope * scale, None


def _ratio(points: Tensor, lag: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """T, the variance, the centred targets, and the differences of targets `lag` apart."""
    centred = points - _mean(points)
    variance = _mean(centred.square())
    steps = points[..., lag:] - points[..., :-lag]
    # Where all targets are equal, so are those `lag` apart: 0 over a tiny number is 0.
    tiny = torch.finfo(points.dtype).tiny
    return -0.5 * _mean(steps.square()) / variance.clamp_min(tiny), variance, centred, steps


def _variance(points: Tensor) -> Tensor:
    """Population variance over the last axis; torch's own is slow for short axes."""
    return _mean((points - _mean(points)).square())


def _mean(points: Tensor) -> Tensor:
    """Mean over the last axis, target by target while they are few: their values lie apart."""
    if points.shape[-1] > 8:
        return points.mean(-1, keepdim=True)
    total = functools.reduce(torch.add, points.unbind(-1))
    return (total / points.shape[-1]).unsqueeze(-1)
