"""Predictions in other units, and the divisors that make units of the targets comparable."""

from functools import singledispatch
from typing import Any

import numpy as np
import torch
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

from prerank.defaults import N_SAMPLES, SEED, UNITS
from prerank.distributions.draws import draw
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor, check_finite

__all__ = ["affine", "divisors_of", "of_targets", "sample_spread"]


def of_targets(dist: Distribution, part: Tensor) -> Tensor:
    """One number per target, `(D,)`, for families whose rows share what they know of a target.

    Args:
        dist: whose loc or scale it is.
        part: broadcastable to its points.
    """
    rows = part.expand(dist.batch_shape + dist.event_shape).reshape(-1, *dist.event_shape)
    if not len(rows):
        return part.new_ones(dist.event_shape)
    if not torch.equal(rows, rows[:1].expand_as(rows)):
        raise InputError(
            f"targets of a {type(dist).__name__} are too large or too small for {rows.dtype} in "
            "some rows, which cannot have units of their own: rescale the targets, or use float64"
        )
    return rows[0]


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
    moved = GaussianMixture(
        dist.logits,
        loc.unsqueeze(-2) + scale.unsqueeze(-2) * dist.loc,
        scale.unsqueeze(-1).unsqueeze(-3) * dist.scale_tril,
        validate_args=False,
    )
    moved.logits = dist.logits  # to the last digit, which normalising again would change
    return moved


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
        scale * (scale * dist.cov_diag),  # a square alone may be no number
        validate_args=False,
    )


@affine.register(Independent)
def _(dist: Independent[Any], loc: Tensor, scale: Tensor) -> Distribution:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return affine.dispatch(Distribution)(dist, loc, scale)
    moved = Normal(loc + scale * base.loc, scale * base.scale, validate_args=False)
    return Independent(moved, dist.reinterpreted_batch_ndims, validate_args=False)


def divisors_of(
    scale: object, dist: Distribution, observed: Tensor, units: str | None
) -> tuple[Tensor | None, str]:
    """Divisors of the targets, and the units that they make.

    Args:
        scale: as for `diagnose`.
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        observed: observations `(..., N, D)`.
        units: of `dist` and `observed`; `"original"` by default.

    Returns:
        `(D,)`, or None where the units stay as they are; and the units in words.
    """
    start = f"{units}, " if units else ""
    if scale is None or (isinstance(scale, str) and scale == "none"):
        return None, units or UNITS
    if isinstance(scale, str):
        if scale != "samples":
            raise InputError(f"scale must be 'none', 'samples' or divisors, got {scale!r}")
        words = f"{start}each target divided by the spread of its samples"
        return sample_spread(dist).to(observed), words
    divisors = as_tensor(scale, "scale")
    if divisors.shape != observed.shape[-1:]:
        raise ShapeError(
            f"scale has shape {tuple(divisors.shape)}, but there are {observed.shape[-1]} targets"
        )
    check_finite(divisors, "scale")
    if not bool((divisors > 0).all()):
        raise InputError("scale must be positive: it holds divisors of the targets")
    return divisors.to(observed), f"{start}each target divided by the given scale"


def sample_spread(dist: Distribution, *, n_samples: int = N_SAMPLES) -> Tensor:
    r"""Standard deviation of each target over the predictive samples of all rows.

    .. math:: s_d = \Big(\frac1{SN} \sum_{s, i} (Y_{sid} - \bar Y_d)^2\Big)^{1/2},

    and 1 where all samples of a target are equal.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`; an `Ensemble` uses its members, whatever
            their weights.
        n_samples: draws per row of other distributions.

    Returns:
        `(D,)`, in float64.

    Example:
        >>> sample_spread(Ensemble([[[0.0, 5.0]], [[4.0, 5.0]]]))
        tensor([2., 1.], dtype=torch.float64)
    """
    points = draw(dist, n_samples, generator=SEED).points.double().cpu().numpy()
    spreads = []
    for column in np.moveaxis(points, -1, 0):
        values = column[~np.isnan(column)] if np.isnan(column).any() else column
        size = np.abs(values).max(initial=0.0) or 1.0  # whose square may be too large for a number
        spreads.append(float(size * (values / size).std()) or 1.0)
    return torch.tensor(spreads, dtype=torch.float64)
