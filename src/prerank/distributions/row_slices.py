"""Some of the rows of a predictive distribution."""

from copy import copy

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
)

from prerank.distributions.bounded import Bounded
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture
from prerank.distributions.rounded import Rounded

__all__ = ["rows_of"]


def rows_of(dist: Distribution, rows: slice | Tensor) -> Distribution | None:
    """The forecasts of some rows.

    None for a family that is not known here, and for subclasses: what they add may have rows, too.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        rows: a slice of the N rows, or their numbers.

    Example:
        >>> dist = MultivariateNormal(torch.arange(6.0).reshape(3, 2), torch.eye(2))
        >>> rows_of(dist, slice(1, 3)).loc
        tensor([[2., 3.],
                [4., 5.]])
    """
    part: Distribution | None = None
    if type(dist) is Ensemble:
        weights = None if dist.weights is None else dist.weights[:, rows]
        samples = dist.samples[:, rows]
        part = _changed(dist, samples.shape[1], samples=samples, weights=weights)
    elif type(dist) is GaussianMixture:
        loc, factors = dist.loc[rows], dist.scale_tril[rows]
        part = _changed(dist, len(loc), logits=dist.logits[rows], loc=loc, scale_tril=factors)
    elif type(dist) is MultivariateNormal:
        factor = dist.scale_tril[rows]
        part = MultivariateNormal(dist.loc[rows], scale_tril=factor, validate_args=False)
    elif type(dist) is LowRankMultivariateNormal:
        factor, diagonal = dist.cov_factor[rows], dist.cov_diag[rows]
        part = LowRankMultivariateNormal(dist.loc[rows], factor, diagonal, validate_args=False)
    elif isinstance(dist, Independent) and type(dist.base_dist) is Normal:
        base = Normal(dist.base_dist.loc[rows], dist.base_dist.scale[rows], validate_args=False)
        part = Independent(base, dist.reinterpreted_batch_ndims, validate_args=False)
    elif isinstance(dist, Rounded):
        inner = rows_of(dist.base, rows)
        part = None if inner is None else Rounded(inner, dist.cells)
    elif isinstance(dist, Bounded):
        inner = rows_of(dist.base, rows)
        part = None if inner is None else Bounded(inner, dist.links)
    return part


def _changed(dist: Distribution, count: int, **parts: Tensor | None) -> Distribution:
    """A copy with parameters of fewer rows, not made anew: they have been checked."""
    part = copy(dist)
    for name, value in parts.items():
        setattr(part, name, value)
    part._batch_shape = torch.Size([count])
    return part
