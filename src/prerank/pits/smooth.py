"""Differentiable PITs for training."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, draw_differentiable
from prerank.errors import GradientError, InputError
from prerank.inputs import as_generator, check_distribution, check_observations
from prerank.pits.closed_forms import closed_form
from prerank.pits.ranks import make_pool
from prerank.preranks import PreRank, PreRankLike, parse

__all__ = ["Widths", "smooth_pit", "smoothing_widths"]


class Widths(NamedTuple):
    """Smoothing widths, constants for the gradient.

    Attributes:
        points: `(*batch_shape, D)`, for comparisons of points inside a pooled pre-rank.
        values: `(*batch_shape, J)`, for the comparison of T with the samples' values.
    """

    points: Tensor
    values: Tensor


def smooth_pit(
    dist: Distribution,
    y: object,
    prerank: PreRankLike,
    *,
    n_samples: int = 100,
    tau: float = 30.0,
    generator: torch.Generator | int | None = None,
    draws: Draws | None = None,
    widths: Widths | None = None,
    closed_forms: bool = True,
) -> Tensor:
    r"""Projected PIT with gradients to the parameters of the distribution.

    Where the projected law has a closed form, that is the PIT: no samples, no smoothing.
    Otherwise, with weighted draws (weights :math:`w_s` summing to one),

    .. math:: \hat F(T) = \sum_s w_s \, \sigma\Big(\frac{T - T_s}{h}\Big), \quad
              h = \frac{\mathrm{sd}(T_s)}{\tau}, \qquad
              Z = \frac{n \hat F(T) + 1/2}{n + 1}, \quad n = \frac{1}{\sum_s w_s^2}.

    The width follows the spread of :math:`T_s` at each row, so the PIT does not depend on the units
    of T; it is a constant for the gradient. The last step is the mid-rank of T among itself and n
    samples: without it the PIT of a calibrated predictor would be too variable, and training would
    answer by widening the forecast.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`, with `rsample` (or an `Ensemble` whose
            samples carry gradients) where no closed form exists.
        y: `(..., N, D)`.
        prerank: one pre-rank, or a sum whose components are put side by side.
        n_samples: draws per row in total.
        tau: sharpness; larger is closer to the rank and noisier in the gradient.
        generator: source of the draws.
        draws: use these instead of drawing, for instance to share them between calls.
        widths: use these instead of `smoothing_widths`.
        closed_forms: False smooths samples even where the projected law is known.

    Returns:
        `(*batch_shape, J)`.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> loc = torch.zeros(4, 3, requires_grad=True)
        >>> z = smooth_pit(
        ...     MultivariateNormal(loc, torch.eye(3)), torch.ones(4, 3), "scale", generator=0
        ... )
        >>> z.shape, torch.autograd.grad(z.sum(), loc)[0].shape
        (torch.Size([4, 1]), torch.Size([4, 3]))
    """
    terms = parse(prerank)
    observed = _checked(dist, y, terms, tau)
    source = as_generator(generator)
    parts = []
    for term in terms:
        cdf = closed_form(dist, term) if closed_forms else None
        if cdf is not None:
            parts.append(cdf(observed))
            continue
        if not term.differentiable:
            raise GradientError(
                f"pre-rank {term.label!r} counts points, so it has no gradient: it can be "
                "diagnosed but not trained through; 'copula' has a smooth form"
            )
        if draws is None:
            draws = draw_differentiable(dist, n_samples, generator=source)
        parts.append(_smoothed(dist, observed, term, draws, tau, widths))
    return torch.cat(parts, -1)


def smoothing_widths(
    dist: Distribution, y: object, prerank: PreRankLike, *, draws: Draws, tau: float = 30.0
) -> Widths:
    """Compute the widths that `smooth_pit` uses for one pre-rank and a set of draws."""
    terms = parse(prerank)
    if len(terms) > 1:
        raise InputError(f"widths belong to one pre-rank, got {len(terms)}")
    observed = _checked(dist, y, terms, tau)
    with torch.no_grad():
        pool, weights = make_pool(observed, draws)
        inner = _spread(draws.points, draws.weights) / tau
        values = terms[0].smooth_project(pool, dist, weights, inner)
        return Widths(inner, _spread(values[1:], draws.weights) / tau)


def _smoothed(
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    draws: Draws,
    tau: float,
    widths: Widths | None,
) -> Tensor:
    pool, weights = make_pool(observed, draws)
    inner = _spread(draws.points, draws.weights) / tau if widths is None else widths.points
    values = prerank.smooth_project(pool, dist, weights, inner)
    width = _spread(values[1:], draws.weights) / tau if widths is None else widths.values
    indicator = torch.sigmoid((values[0] - values[1:]) / width)  # (S, *batch, J)
    if draws.weights is None:
        size: Tensor | int = indicator.shape[0]
        cdf = indicator.mean(0)
    else:
        size = (1 / draws.weights.square().sum(0)).unsqueeze(-1)
        cdf = (draws.weights.unsqueeze(-1) * indicator).sum(0)
    return (size * cdf + 0.5) / (size + 1)


def _spread(values: Tensor, weights: Tensor | None) -> Tensor:
    """Standard deviation over the sample axis, as a constant, never zero."""
    values = values.detach()
    if weights is None:
        spread = values.std(0, correction=0)
    else:
        share = weights.detach().unsqueeze(-1)
        share = share / share.sum(0)
        centred = values - (share * values).sum(0)
        spread = (share * centred.square()).sum(0).sqrt()
    return spread.clamp_min(torch.finfo(values.dtype).tiny ** 0.5)


def _checked(dist: Distribution, y: object, terms: tuple[PreRank, ...], tau: float) -> Tensor:
    check_distribution(dist)
    if not tau > 0:
        raise InputError(f"tau must be positive, got {tau}")
    for term in terms:
        term.check(dist)
    return check_observations(dist, y)
