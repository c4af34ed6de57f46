"""Projected CDFs in closed form, by type of distribution and of pre-rank."""

from collections.abc import Callable
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

from prerank.distributions import GaussianMixture
from prerank.preranks import PCA, Linear, PreRank
from prerank.preranks.linear import predictive_covariance

__all__ = ["ProjectedCDF", "closed_form", "register_closed_form"]

ProjectedCDF = Callable[[Tensor], Tensor]
"""Maps points `(..., *batch_shape, D)` to PITs `(..., *batch_shape, J)`."""

Builder = Callable[[Any, Any], ProjectedCDF | None]

_BUILDERS: dict[tuple[type[Distribution], type[PreRank]], Builder] = {}


def register_closed_form(
    dist_type: type[Distribution], prerank_type: type[PreRank]
) -> Callable[[Builder], Builder]:
    """Register a closed form for a pair of types, subclasses included.

    The decorated function takes `(dist, prerank)` and returns a `ProjectedCDF`, or None where it
    does not cover this instance. The nearest registered pair of types wins.
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


@register_closed_form(GaussianMixture, Linear)
def _(dist: GaussianMixture, prerank: Linear) -> ProjectedCDF | None:
    return _projected(dist, prerank, lambda directions: dist.project(directions).cdf)


@register_closed_form(MultivariateNormal, Linear)
def _(dist: MultivariateNormal, prerank: Linear) -> ProjectedCDF | None:

    def cdf(directions: Tensor) -> Callable[[Tensor], Tensor]:
        spread = torch.linalg.vector_norm(directions @ dist.scale_tril, dim=-1)
        return _normal_cdf(_along(dist.loc, directions), spread)

    return _projected(dist, prerank, cdf)


@register_closed_form(LowRankMultivariateNormal, Linear)
def _(dist: LowRankMultivariateNormal, prerank: Linear) -> ProjectedCDF | None:

    def cdf(directions: Tensor) -> Callable[[Tensor], Tensor]:
        common = (directions @ dist.cov_factor).square().sum(-1)
        own = (directions.square() * dist.cov_diag.unsqueeze(-2)).sum(-1)
        return _normal_cdf(_along(dist.loc, directions), (common + own).sqrt())

    return _projected(dist, prerank, cdf)


@register_closed_form(Independent, Linear)
def _(dist: Independent[Any], prerank: Linear) -> ProjectedCDF | None:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return None

    def cdf(directions: Tensor) -> Callable[[Tensor], Tensor]:
        spread = torch.linalg.vector_norm(directions * base.scale.unsqueeze(-2), dim=-1)
        return _normal_cdf(_along(base.loc, directions), spread)

    return _projected(dist, prerank, cdf)


def _projected(
    dist: Distribution, prerank: Linear, cdf: Callable[[Tensor], Callable[[Tensor], Tensor]]
) -> ProjectedCDF | None:
    """Project once, then evaluate as often as needed."""
    if isinstance(prerank, PCA) and predictive_covariance(dist) is None:
        return None
    directions = prerank.directions(dist)
    projected = cdf(directions)
    # Weights that sum to 1 up to rounding may carry a mixture's CDF past it.
    return lambda points: projected(_along(points, directions)).clamp(0, 1)


def _along(points: Tensor, directions: Tensor) -> Tensor:
    return torch.einsum("...d,...jd->...j", points, directions)


def _normal_cdf(loc: Tensor, scale: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda t: torch.special.ndtr((t - loc) / scale)
