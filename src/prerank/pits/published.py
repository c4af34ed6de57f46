r"""PITs as the published runs computed them, flaws included.

For the `as_published` protocol only. Against `smooth_pit`: samples are relaxed blends of the
components; the smooth indicator :math:`\sigma(100 (T - T_s))` acts in the units of T; every term
draws its own samples; principal components are those of all rows of the batch pooled, weighted by
their share of the variance in training; the copula draws a fresh set of reference points for each
sample; the dependency of two targets, which is constant, is replaced by their squared difference.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, GaussianMixture, RelaxedMixture, draw_differentiable
from prerank.distributions.noise import Noise, as_noise, row_normal, row_uniform
from prerank.errors import NotApplicableError
from prerank.inputs import check_distribution, check_observations
from prerank.numerics.matrices import symmetric_eigen
from prerank.pits.smooth import SmoothPIT
from prerank.preranks import PCA, Copula, Dependency, PreRank

__all__ = ["published_pit"]

_TAU = 100.0
_SETS = 10  # of references that are drawn together; noise is drawn so, whatever the device is


def published_pit(
    dist: Distribution,
    y: object,
    prerank: PreRank,
    *,
    n_samples: int = 100,
    tau: float = _TAU,
    generator: Noise | int = None,
) -> SmoothPIT:
    """Compute the published PIT of one pre-rank."""
    check_distribution(dist)
    observed = check_observations(dist, y)
    noise = as_noise(generator)
    points = _draw(dist, n_samples, noise)
    weights: Tensor | None = None
    if prerank.pooled and type(prerank) is not Copula:
        raise NotApplicableError(
            f"the published runs had no {prerank.label!r}: use CalibrationPenalty(...)"
        )
    if isinstance(prerank, PCA):
        values, sampled, weights = _pooled_components(observed, points, prerank)
    elif isinstance(prerank, Copula):
        both = torch.cat([observed.expand(1, *points.shape[1:]), points])
        parts = [_fresh_cdfs(dist, part, n_samples, tau, noise) for part in both.split(_SETS)]
        values, sampled = torch.cat(parts).split([1, n_samples])
    else:
        values = _project(dist, observed, prerank)
        sampled = _project(dist, points, prerank)
    z = torch.sigmoid(tau * (values - sampled)).mean(0)
    return SmoothPIT(z, weights)


def _draw(dist: Distribution, n: int, noise: Noise) -> Tensor:
    if isinstance(dist, GaussianMixture):
        components, dim = dist.loc.shape[-2:]
        uniform = row_uniform(n, dist.batch_shape, (components,), like=dist.loc, noise=noise)
        normal = row_normal(n, dist.batch_shape, (components, dim), like=dist.loc, noise=noise)
        return RelaxedMixture(dist).blend(uniform, normal)
    draws: Draws = draw_differentiable(dist, n, generator=noise)
    return draws.points


def _project(dist: Distribution, points: Tensor, prerank: PreRank) -> Tensor:
    if isinstance(prerank, Dependency) and dist.event_shape[0] == 2:
        return (points[..., :1] - points[..., 1:]).square()
    prerank.check(dist)
    lead = points if points.dim() > len(dist.batch_shape) + 1 else points.unsqueeze(0)
    return prerank.project(lead, dist).reshape(*points.shape[:-1], -1)


def _pooled_components(
    observed: Tensor, points: Tensor, prerank: PCA
) -> tuple[Tensor, Tensor, Tensor]:
    """Components of the samples of all rows together, as constants."""
    with torch.no_grad():
        pooled = points.movedim(0, -2).flatten(-3, -2)  # (*stack, N S, D)
        centred = pooled - pooled.mean(-2, keepdim=True)
        covariance = centred.mT @ centred / (centred.shape[-2] - 1)
        values, directions = symmetric_eigen(covariance)  # (*stack, D), (*stack, D, D)
        share = values / values.sum(-1, keepdim=True)
        counted = prerank.shares(share.unsqueeze(-2))
        if counted is None:
            count = prerank.count(share)
            directions, share = directions[..., :count, :], share[..., :count]
        else:  # the number differs between the members of a stack: no weight past it
            share = torch.where(counted > 0, share, 0)
    along = torch.einsum("...nd,...jd->...nj", observed, directions)
    sampled = torch.einsum("s...nd,...jd->s...nj", points, directions)
    return along, sampled, share


def _fresh_cdfs(dist: Distribution, at: Tensor, n: int, tau: float, noise: Noise) -> Tensor:
    """Smoothed joint CDFs at points `(m, *batch_shape, D)`, each from n samples of its own."""
    drawn = _draw(dist, len(at) * n, noise).unflatten(0, (len(at), n))
    # A product over targets would make its gradient wait for the device, to look for zeros.
    below = torch.nn.functional.logsigmoid(tau * (at.unsqueeze(1) - drawn)).sum(-1)
    return below.exp().mean(1).unsqueeze(-1)
