"""Predictions in other units."""

from functools import singledispatch
from typing import Any

from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)

from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture

__all__ = ["affine"]


@singledispatch
def affine(dist: Distribution, loc: Tensor, scale: Tensor) -> Distribution:
    r"""Return the law of `loc + scale * y` for y following `dist`.

    Families that are closed under the map keep their type, and with it their closed forms;
    others are wrapped in a `TransformedDistribution`.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        loc: `(D,)` or broadcastable to the points.
        scale: `(D,)`, positive.

    Example:
        >>> import torch
        >>> dist = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> affine(dist, torch.zeros(2), torch.tensor([1.0, 3.0])).variance
        tensor([[1., 9.]])
    """
    return TransformedDistribution(
        dist, [AffineTransform(loc, scale, event_dim=1)], validate_args=False
    )


@affine.register
def _(dist: GaussianMixture, loc: Tensor, scale: Tensor) -> GaussianMixture:
    return GaussianMixture(
        dist.logits,
        loc.unsqueeze(-2) + scale.unsqueeze(-2) * dist.loc,
        scale.unsqueeze(-1).unsqueeze(-3) * dist.scale_tril,
        validate_args=False,
    )


@affine.register
def _(dist: Ensemble, loc: Tensor, scale: Tensor) -> Ensemble:
    return Ensemble(loc + scale * dist.samples, dist.weights)


@affine.register
def _(dist: MultivariateNormal, loc: Tensor, scale: Tensor) -> MultivariateNormal:
    return MultivariateNormal(
        loc + scale * dist.loc,
        scale_tril=scale.unsqueeze(-1) * dist.scale_tril,
        validate_args=False,
    )


@affine.register
def _(dist: LowRankMultivariateNormal, loc: Tensor, scale: Tensor) -> LowRankMultivariateNormal:
    return LowRankMultivariateNormal(
        loc + scale * dist.loc,
        scale.unsqueeze(-1) * dist.cov_factor,
        scale.square() * dist.cov_diag,
        validate_args=False,
    )


@affine.register(Independent)
def _(dist: Independent[Any], loc: Tensor, scale: Tensor) -> Distribution:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return affine.dispatch(Distribution)(dist, loc, scale)
    moved = Normal(loc + scale * base.loc, scale * base.scale, validate_args=False)
    return Independent(moved, dist.reinterpreted_batch_ndims, validate_args=False)
