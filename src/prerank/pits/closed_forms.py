"""Projected CDFs in closed form, by type of distribution and of pre-rank."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
)

from prerank.distributions import Bounded, GaussianMixture, Rounded
from prerank.distributions.noise import Noise, row_uniform
from prerank.distributions.single_margins import margin
from prerank.errors import NotApplicableError
from prerank.numerics.matrices import row_norms
from prerank.preranks import Linear, Marginal, PreRank

__all__ = ["ProjectedCDF", "StepCDF", "closed_form", "closed_form_pits", "register_closed_form"]

ProjectedCDF = Callable[[Tensor], Tensor]
"""Maps points `(..., *batch_shape, D)` to PITs `(..., *batch_shape, J)`."""

_FAR = 40.0  # standard deviations beyond which the normal CDF is 0 or 1 in float64, too


@dataclass(frozen=True)
class StepCDF:
    r"""A projected CDF with steps, of a distribution with atoms: its PITs are randomised.

    .. math:: Z = F_T(T-) + U \, P(T)

    is uniform under the true distribution, with U uniform and independent of everything else.

    Attributes:
        limits: maps points to the CDF just below and at them.

    Example:
        >>> coin = StepCDF(lambda t: ((t > 0) * 0.5, (t >= 0) * 0.5 + (t >= 1) * 0.5))
        >>> coin(torch.tensor([0.0, 1.0]))
        tensor([0.5000, 1.0000])
    """

    limits: Callable[[Tensor], tuple[Tensor, Tensor]]

    def __call__(self, points: Tensor) -> Tensor:
        """The CDF itself."""
        return self.limits(points)[1]


Builder = Callable[[Any, Any], ProjectedCDF | None]

_BUILDERS: dict[tuple[type[Distribution], type[PreRank]], Builder] = {}


def register_closed_form(
    dist_type: type[Distribution], prerank_type: type[PreRank]
) -> Callable[[Builder], Builder]:
    """Register a closed form for a pair of types, subclasses included.

    The decorated function takes `(dist, prerank)` and returns a `ProjectedCDF` (a `StepCDF` where
    there are atoms), or None where it does not cover this instance. The nearest registered pair of
    types wins.
    """

    def register(builder: Builder) -> Builder:
        _BUILDERS[dist_type, prerank_type] = builder
        return builder

    return register


def closed_form(dist: Distribution, prerank: PreRank) -> ProjectedCDF | None:
    """Look up the exact projected CDF, or None where PITs need samples.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> from prerank.preranks import Location
        >>> dist = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> closed_form(dist, Location())(torch.zeros(1, 2))
        tensor([[0.5000]])
    """
    for dist_type in type(dist).__mro__:
        for prerank_type in type(prerank).__mro__:
            builder = _BUILDERS.get((dist_type, prerank_type))
            if builder is not None:
                return builder(dist, prerank)
    return None


def closed_form_pits(
    cdf: ProjectedCDF, points: Tensor, batch: torch.Size, noise: Noise
) -> tuple[Tensor, Tensor]:
    """PITs of S points of each row, and the probability of the value of each point.

    Args:
        cdf: from `closed_form`.
        points: `(S, *batch, D)`.
        batch: shape of the predictions.
        noise: source of the randomisation at steps.

    Returns:
        `(S, *batch, J)` and, for a `StepCDF`, as many probabilities; zeros otherwise.
    """
    if not isinstance(cdf, StepCDF):
        z = cdf(points)
        return z, torch.zeros_like(z)
    left, right = cdf.limits(points)
    uniform = row_uniform(len(points), batch, left.shape[-1:], like=left, noise=noise)
    return left + uniform * (right - left), right - left


@register_closed_form(GaussianMixture, Linear)
def _(dist: GaussianMixture, prerank: Linear) -> ProjectedCDF | None:
    directions = prerank.directions(dist)
    if directions is None:
        return None
    spread = torch.einsum("...jd,...kde->...kje", directions, dist.scale_tril)
    scale = row_norms(spread)  # (..., K, J)

    return _mixture_cdf(dist, scale, lambda centred: centred @ directions.mT)


@register_closed_form(GaussianMixture, Marginal)
def _(dist: GaussianMixture, prerank: Marginal) -> ProjectedCDF:
    return _mixture_cdf(dist, row_norms(dist.scale_tril), lambda centred: centred)


def _mixture_cdf(
    dist: GaussianMixture, scale: Tensor, along: Callable[[Tensor], Tensor]
) -> ProjectedCDF:
    def cdf(points: Tensor) -> Tensor:
        centred = along(points.unsqueeze(-2) - dist.loc)  # (..., K, J)
        # Weights that sum to 1 up to rounding may carry the sum past it.
        return (dist.probs.unsqueeze(-1) * _normal_cdf(centred, scale)).sum(-2).clamp(0, 1)

    return cdf


@register_closed_form(MultivariateNormal, Linear)
def _(dist: MultivariateNormal, prerank: Linear) -> ProjectedCDF | None:
    return _normal(dist, prerank, dist.loc, lambda v: row_norms(v @ dist.scale_tril))


@register_closed_form(LowRankMultivariateNormal, Linear)
def _(dist: LowRankMultivariateNormal, prerank: Linear) -> ProjectedCDF | None:
    def scale(directions: Tensor) -> Tensor:
        own = row_norms(directions * dist.cov_diag.sqrt().unsqueeze(-2))
        return torch.hypot(row_norms(directions @ dist.cov_factor), own)

    return _normal(dist, prerank, dist.loc, scale)


@register_closed_form(Independent, Linear)
def _(dist: Independent[Any], prerank: Linear) -> ProjectedCDF | None:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return None
    return _normal(dist, prerank, base.loc, lambda v: row_norms(v * base.scale.unsqueeze(-2)))


def _normal(
    dist: Distribution, prerank: Linear, loc: Tensor, spread: Callable[[Tensor], Tensor]
) -> ProjectedCDF | None:
    """CDF of `v . y` for normal y, given the standard deviation along directions."""
    directions = prerank.directions(dist)
    if directions is None:
        return None
    scale = spread(directions)

    def cdf(points: Tensor) -> Tensor:
        # Centred first: far from 0 the projections themselves would cancel.
        return _normal_cdf(torch.einsum("...d,...jd->...j", points - loc, directions), scale)

    return cdf


def _normal_cdf(centred: Tensor, scale: Tensor) -> Tensor:
    """Normal CDF whose gradient is 0, not 0 times infinity, where it is 0 or 1."""
    far = _FAR * scale.detach()
    return torch.special.ndtr(centred.clamp(-far, far) / scale)


@register_closed_form(Bounded, Marginal)
def _(dist: Bounded, prerank: Marginal) -> ProjectedCDF | None:
    inner = closed_form(dist.base, prerank)
    return None if inner is None else lambda points: inner(dist.points(points))


@register_closed_form(Rounded, Marginal)
def _(dist: Rounded, prerank: Marginal) -> ProjectedCDF | None:
    try:
        margin(dist.base, 0)
    except NotApplicableError:
        return None
    return StepCDF(dist.limits)
