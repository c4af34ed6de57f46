"""Proper scores of multivariate predictions; smaller is better.

Arrays of xarray are matched by their coordinates, and their scores have the coordinates of the
rows.
"""

import math
from collections.abc import Hashable
from functools import partial
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

from prerank.adapters.dimension_matching import Names
from prerank.adapters.named_arguments import NamedCall, accepts_names, in_blocks
from prerank.distributions import Draws, GaussianMixture, draw
from prerank.distributions.availability import SubEvents, divided
from prerank.distributions.densities import log_density
from prerank.distributions.magnitudes import (
    check_ratio,
    check_resolution,
    row_factors,
    sample_spans,
    spans,
    within_bounds,
)
from prerank.distributions.noise import Noise
from prerank.errors import InputError, ShapeError
from prerank.inputs import (
    as_positive,
    as_tensor,
    check_distribution,
    check_finite,
    check_observations,
    check_same_device,
    full_precision,
)
from prerank.numerics import join, row_blocks
from prerank.numerics.matrices import pair_distances, row_norms
from prerank.numerics.sorting import line_order, sort_lines_

__all__ = ["crps", "energy_score", "nll", "variogram_score"]

_CHUNK_BYTES = 2**24  # of one pairwise term at a time
_ESTIMATORS = ("fair", "nrg")
_FAR = 40.0  # standard deviations, beyond which a normal density is 0 in float64, too


@full_precision()
def nll(dist: Distribution, y: object) -> Tensor:
    r"""Negative log-likelihood :math:`-\log \hat f(y)` of each row, `(*batch_shape,)`.

    Example:
        >>> dist = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> nll(dist, torch.zeros(1, 2))
        tensor([1.8379])
    """
    check_distribution(dist)
    observed = check_observations(dist, y)
    moved, factor = within_bounds(dist, observed)
    if factor is None:
        return -log_density(dist, observed)
    return -log_density(moved, factor * observed) - factor.log().sum(-1)


def _named_energy_scores(call: NamedCall[Tensor]) -> Any:
    return call.forecast.over_rows(in_blocks(call), "energy_score", unit=True)


@accepts_names(_named_energy_scores)
@full_precision()
def energy_score(
    dist: Distribution,
    y: object,
    *,
    estimator: str = "fair",
    n_samples: int = 100,
    generator: Noise | int = None,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    missing: str = "raise",
) -> Tensor:
    r"""Energy score of each row, from samples.

    .. math:: \mathrm{ES}(F, y) = E|Y - y| - \tfrac12 E|Y - Y'|.

    `fair` averages the second term over pairs of different samples and, where their weights are
    equal, is unbiased for every number of them; `nrg` averages over all pairs, the zero distances
    included, and is the score of the empirical law itself. The words are those of scoringrules.
    Depends on units.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: `(..., N, D)`.
        estimator: `"fair"` or `"nrg"`.
        n_samples: draws per row; an `Ensemble` uses its members.
        generator: source of the draws.
        member: the dimension of the members, where `dist` and `y` are of xarray
            (`prerank.adapters.named_forecast`).
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.
        missing: `"available"` takes NaN in `y`, and in an `Ensemble` that does. The score is that
            of the targets that are there, NaN without any: compare it over the same ones.

    Returns:
        `(*batch_shape,)`, one value per row, differentiable where `dist` has `rsample` or is an
        `Ensemble` of differentiable samples.

    Example:
        >>> from prerank.distributions import Ensemble
        >>> members = torch.tensor([[[0.0, 0.0]], [[0.0, 2.0]]])
        >>> energy_score(Ensemble(members), torch.zeros(1, 2), estimator="nrg")
        tensor([0.5000])
    """
    _check_estimator(estimator)
    division = divided(dist, y, missing, n_samples=n_samples, generator=generator)
    if division is not None:
        of_part = partial(energy_score, estimator=estimator, **division.noise)
        return division.scattered(lambda part: of_part(part.dist, part.y))
    observed, draws = _score_inputs(dist, y, n_samples, generator)
    found = sample_spans(draws.points)
    factor, by_target = row_factors(found, observed)
    if by_target is not None and draws.points.requires_grad and isinstance(dist, GaussianMixture):
        check_ratio(found, observed, gradient=True)  # its draws have slopes along each other
    if factor is not None:  # distances of very large and very small numbers have no squares
        observed, draws = factor * observed, Draws(factor * draws.points, draws.weights)
    size, batch, dim = draws.points.shape[0], observed.shape[:-1], observed.shape[-1]
    points = draws.points.reshape(size, -1, dim).movedim(0, 1)  # (rows, S, D)
    at = observed.reshape(-1, 1, dim)
    share = _shares(draws)
    mass = share.expand(size, *batch).reshape(size, -1).mT
    rows = max(1, _CHUNK_BYTES // (size * max(size, dim) * points.element_size()))
    blocks = zip(points.split(rows), at.split(rows), mass.split(rows), strict=True)
    parts = [_distances(*block) for block in blocks]
    first, second = (torch.cat(values).reshape(batch) for values in zip(*parts, strict=True))
    score = first - 0.5 * second / _pair_mass(estimator, share)
    return score if factor is None else score / factor.squeeze(-1)


def _distances(points: Tensor, at: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean distance of points `(rows, S, D)` to `at`, and weighted sum over pairs."""
    error = torch.linalg.vector_norm(points - at, dim=-1)
    pairs = (pair_distances(points, points) @ mass.unsqueeze(-1)).squeeze(-1)
    return (mass * error).sum(-1), (mass * pairs).sum(-1)


def _named_variogram_scores(call: NamedCall[Tensor]) -> Any:
    return call.forecast.over_rows(in_blocks(call), "variogram_score")


@accepts_names(_named_variogram_scores)
@full_precision()
def variogram_score(
    dist: Distribution,
    y: object,
    *,
    p: float = 0.5,
    weights: object = None,
    n_samples: int = 100,
    generator: Noise | int = None,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    missing: str = "raise",
) -> Tensor:
    r"""Variogram score of each row (Scheuerer and Hamill, 2015).

    .. math:: \mathrm{VS}_p(F, y) = \sum_{i,j} w_{ij} \big( |y_i - y_j|^p - E|Y_i - Y_j|^p \big)^2.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: `(..., N, D)`.
        p: order, positive.
        weights: `(D, D)`, non-negative; ones by default.
        n_samples: draws per row; an `Ensemble` uses its members.
        generator: source of the draws.
        member: the dimension of the members, where `dist` and `y` are of xarray
            (`prerank.adapters.named_forecast`).
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.
        missing: `"available"` takes NaN in `y`, and in an `Ensemble` that does. The score is that
            of the pairs of targets that are there, NaN without any: compare it over the same ones.

    Returns:
        `(*batch_shape,)`. The sum runs over ordered pairs, as in scoringrules. The mean over
        samples stands for the expectation, which adds the variance of that mean to the score.
    """
    as_positive(p, "p")
    division = divided(dist, y, missing, n_samples=n_samples, generator=generator)
    if division is not None:
        of_part = partial(variogram_score, p=p, **division.noise)
        return division.scattered(
            lambda part: of_part(part.dist, part.y, weights=_of_targets(weights, part)), fewest=2
        )
    observed, draws = _score_inputs(dist, y, n_samples, generator)
    dim = observed.shape[-1]
    pair = torch.triu_indices(dim, dim, 1, device=observed.device)
    pair_weights = torch.full((pair.shape[1],), 2.0, dtype=observed.dtype, device=observed.device)
    if weights is not None:
        matrix = as_tensor(weights, "weights")
        check_finite(matrix, "weights")
        matrix = matrix.to(observed)
        if matrix.shape != (dim, dim):
            raise ShapeError(f"weights must be ({dim}, {dim}), got {tuple(matrix.shape)}")
        if bool((matrix < 0).any()):
            raise InputError("weights must be non-negative")
        pair_weights = (matrix + matrix.mT)[pair[0], pair[1]]
    share = _shares(draws)
    # Members are added up in chunks: S x N x D x D values would not fit for wide targets.
    step = max(1, _CHUNK_BYTES // max(1, observed[..., 0].numel() * pair.shape[1] * 8))
    expected = sum(
        (part_share.unsqueeze(-1) * _differences(part, pair, p)).sum(0)
        for part, part_share in zip(draws.points.split(step), share.split(step), strict=True)
    )
    score = (pair_weights * (_differences(observed, pair, p) - expected).square()).sum(-1)
    check_finite(score, "the variogram score", "lower p, change the units or use float64")
    return score


def _named_crps(call: NamedCall[Tensor]) -> Any:
    return call.forecast.over_events(in_blocks(call), "crps")


@accepts_names(_named_crps)
@full_precision()
def crps(
    dist: Distribution,
    y: object,
    *,
    estimator: str = "fair",
    n_samples: int = 100,
    generator: Noise | int = None,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    missing: str = "raise",
) -> Tensor:
    r"""Continuous ranked probability score of each target.

    .. math:: \mathrm{CRPS}(F, y) = E|Y - y| - \tfrac12 E|Y - Y'|.

    Exact for Gaussian mixtures and normals. For samples the time grows with S log S, by sorting.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: `(..., N, D)`.
        estimator: `"fair"` or `"nrg"`, for samples.
        n_samples: draws per row where there is no closed form.
        generator: source of the draws.
        member: the dimension of the members, where `dist` and `y` are of xarray
            (`prerank.adapters.named_forecast`).
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.
        missing: `"available"` takes NaN in `y`, and in an `Ensemble` that does. The score is NaN
            where a target is missing.

    Returns:
        `(*batch_shape, D)`.
    """
    _check_estimator(estimator)
    division = divided(dist, y, missing, n_samples=n_samples, generator=generator)
    if division is not None:
        of_part = partial(crps, estimator=estimator, **division.noise)
        return division.scattered(lambda part: of_part(part.dist, part.y), of_targets=True)
    check_distribution(dist)
    margins = _gaussian_margins(dist)
    if margins is not None:
        at = check_observations(dist, y)
        if (found := spans(dist)) is not None:
            check_resolution(found, at)
        return _crps_mixture(at, *margins)
    observed, draws = _score_inputs(dist, y, n_samples, generator)
    share = _shares(draws)
    size, at = draws.points.shape[0], observed.reshape(-1)
    points = draws.points.reshape(size, -1)
    if draws.weights is None:
        mass = share.reshape(size, 1).expand_as(points)
    else:
        mass = share.unsqueeze(-1).expand_as(draws.points).reshape(size, -1)
    blocks = row_blocks(len(at), size, at)
    parts = [_line_distances(points[:, b], at[b], mass[:, b]) for b in blocks]
    first, second = (join(list(part)).reshape(observed.shape) for part in zip(*parts, strict=True))
    pairs = _pair_mass(estimator, share)
    return first - 0.5 * second / (pairs if isinstance(pairs, float) else pairs.unsqueeze(-1))


def _line_distances(points: Tensor, at: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean distance of points `(S, n)` to `at`, and mean over pairs, by sorting.

    .. math:: \sum_s w_s |x_s - y|, \qquad \sum_{s,t} w_s w_t |x_s - x_t|
              = 2 \sum_s w_{(s)} (x_{(s)} - y) \Big( 2 \sum_{t \le s} w_{(t)} - w_{(s)} - 1 \Big).
    """
    centred = points - at  # far from 0 the second sum would cancel
    lines = centred.mT.clone(memory_format=torch.contiguous_format)
    if mass.stride(1) or lines.requires_grad:
        order = line_order(lines).mT
        ordered, share = centred.gather(0, order), mass.gather(0, order)
    else:  # all weigh the same
        ordered, share = sort_lines_(lines).mT.contiguous(), mass[:, :1]
    signed = 2 * share.cumsum(0) - share - 1
    return (mass * centred.abs()).sum(0), 2 * (share * ordered * signed).sum(0)


def _of_targets(weights: object, part: SubEvents) -> Tensor | None:
    """Weights `(D, D)` of the pairs of available targets."""
    if weights is None:
        return None
    return as_tensor(weights, "weights")[part.targets][:, part.targets]


def _score_inputs(
    dist: Distribution, y: object, n_samples: int, generator: Noise | int
) -> tuple[Tensor, Draws]:
    check_distribution(dist)
    observed = check_observations(dist, y)
    draws = draw(dist, n_samples, generator=generator, gradient=True)
    check_same_device(draws.points, observed, ("dist", "y"))
    observed = observed.to(draws.points.dtype)
    check_resolution(spans(dist) or sample_spans(draws.points), observed)
    return observed, draws


def _shares(draws: Draws) -> Tensor:
    """Weights `(S, *batch_shape)`, or `(S, 1, ...)` where they are all equal."""
    if draws.weights is not None:
        return draws.weights
    size, dims = draws.points.shape[0], draws.points.dim()
    return draws.points.new_full((size, *[1] * (dims - 2)), 1.0 / size)


def _check_estimator(estimator: str) -> None:
    if estimator not in _ESTIMATORS:
        raise InputError(f"estimator must be one of {_ESTIMATORS}, got {estimator!r}")


def _pair_mass(estimator: str, share: Tensor) -> Tensor | float:
    """Total weight of the pairs that count: all of them, or those of different samples."""
    if estimator == "nrg":
        return 1.0
    mass = 1.0 - share.square().sum(0)
    if bool((mass <= torch.finfo(mass.dtype).eps).any()):
        raise InputError(
            "weights put all mass of a row on one sample, and the fair estimator needs two: use "
            "estimator='nrg'"
        )
    return mass


def _differences(points: Tensor, pair: Tensor, p: float) -> Tensor:
    gap = (points[..., pair[0]] - points[..., pair[1]]).abs()
    zero = gap == 0  # the power has no finite slope there for p < 1
    return torch.where(zero, 0, torch.where(zero, 1, gap) ** p)


def _gaussian_margins(dist: Distribution) -> tuple[Tensor, Tensor, Tensor] | None:
    """Weights, means and standard deviations of the margins, `(*batch_shape, D or 1, K)`."""
    if isinstance(dist, GaussianMixture):
        return dist.probs.unsqueeze(-2), dist.loc.mT, row_norms(dist.scale_tril).mT
    if isinstance(dist, MultivariateNormal):
        loc, scale = dist.loc, row_norms(dist.scale_tril)
    elif isinstance(dist, LowRankMultivariateNormal):
        loc, scale = dist.loc, torch.hypot(row_norms(dist.cov_factor), dist.cov_diag.sqrt())
    elif isinstance(dist, Independent) and isinstance(dist.base_dist, Normal):
        loc, scale = dist.base_dist.loc, dist.base_dist.scale
    else:
        return None
    return torch.ones_like(loc[..., :1, None]), loc.unsqueeze(-1), scale.unsqueeze(-1)


def _crps_mixture(observed: Tensor, probs: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    first = (probs * _mean_distance(observed.unsqueeze(-1) - loc, scale)).sum(-1)
    gap = loc.unsqueeze(-1) - loc.unsqueeze(-2)
    spread = torch.hypot(scale.unsqueeze(-1), scale.unsqueeze(-2))
    between = _mean_distance(gap, spread)
    second = (probs.unsqueeze(-1) * probs.unsqueeze(-2) * between).sum((-2, -1))
    return first - 0.5 * second


def _mean_distance(mean: Tensor, scale: Tensor) -> Tensor:
    """E|X| for X normal."""
    far = _FAR * scale.detach()
    z = mean.clamp(-far, far) / scale  # before the division, whose slope may be infinite
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return 2 * scale * density + mean * (2 * torch.special.ndtr(z) - 1)
