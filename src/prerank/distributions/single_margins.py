"""Distributions of single targets, in closed form."""

from functools import singledispatch
from typing import Any

from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
)

from prerank.distributions.mixture import GaussianMixture
from prerank.errors import NotApplicableError
from prerank.numerics.matrices import row_norms

__all__ = ["margin"]


@singledispatch
def margin(dist: Distribution, target: int) -> Distribution:
    """Distribution of one target, with a `cdf` and a `mean` in closed form: `batch_shape (...)`."""
    raise NotApplicableError(
        f"the margins of {type(dist).__name__} have no closed form: use samples instead"
    )


@margin.register
def _(dist: GaussianMixture, target: int) -> Distribution:
    scale = row_norms(dist.scale_tril[..., target, :])
    return MixtureSameFamily(
        Categorical(logits=dist.logits, validate_args=False),
        Normal(dist.loc[..., target], scale, validate_args=False),
        validate_args=False,
    )


@margin.register(MultivariateNormal)
@margin.register(LowRankMultivariateNormal)
def _(dist: Any, target: int) -> Distribution:
    scale = dist.variance[..., target].sqrt()
    return Normal(dist.loc[..., target], scale, validate_args=False)


@margin.register(Independent)
def _(dist: Independent[Any], target: int) -> Distribution:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return margin.dispatch(Distribution)(dist, target)
    return Normal(base.loc[..., target], base.scale[..., target], validate_args=False)
