"""Differentiable PITs for training."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, draw_differentiable
from prerank.distributions.noise import Noise, as_noise, row_uniform
from prerank.errors import GradientError, InputError
from prerank.inputs import (
    as_count,
    as_positive,
    check_distribution,
    check_observations,
    full_precision,
)
from prerank.pits.closed_forms import closed_form
from prerank.pits.ranks import make_pool
from prerank.preranks import PreRank, PreRankLike, parse
from prerank.preranks.base import Reference

__all__ = ["Widths", "smooth_pit", "smooth_pits", "smoothing_widths"]


_REFERENCE_EVERY = 4


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
    tau: float = 100.0,
    generator: Noise | int = None,
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
    parts = smooth_pits(
        dist,
        y,
        terms,
        n_samples=n_samples,
        tau=tau,
        generator=generator,
        draws=draws,
        widths=widths,
        closed_forms=closed_forms,
    )
    for term, part in zip(terms, parts, strict=True):
        if bool(part.isnan().any()):
            raise InputError(f"pre-rank {term.label!r} gives NaN for some rows")
    return torch.cat(parts, -1)


def smooth_pits(
    dist: Distribution,
    y: object,
    terms: tuple[PreRank, ...],
    *,
    n_samples: int = 100,
    tau: float = 100.0,
    generator: Noise | int = None,
    draws: Draws | None = None,
    widths: Widths | None = None,
    closed_forms: bool = True,
) -> list[Tensor]:
    """`smooth_pit` of several pre-ranks from one set of draws, each `(*batch_shape, J)`."""
    observed = _checked(dist, y, terms, tau)
    as_count(n_samples, "n_samples", minimum=2)
    source = as_noise(generator)
    parts = []
    with full_precision():
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
            parts.append(
                _smoothed(dist, observed, term, draws, tau=tau, widths=widths, noise=source)
            )
    return parts


def smoothing_widths(
    dist: Distribution,
    y: object,
    prerank: PreRankLike,
    *,
    draws: Draws,
    tau: float = 100.0,
    generator: Noise | int = None,
) -> Widths:
    """Compute the widths that `smooth_pit` uses for one pre-rank and a set of draws."""
    terms = parse(prerank)
    if len(terms) > 1:
        raise InputError(f"widths belong to one pre-rank, got {len(terms)}")
    observed = _checked(dist, y, terms, tau)
    with torch.no_grad():
        inner = _spread(draws) / tau
        ranked, values = _project(dist, observed, terms[0], draws, inner, as_noise(generator))
        return Widths(inner, _spread(Draws(values[1:], ranked.weights)) / tau)


def _smoothed(
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    draws: Draws,
    *,
    tau: float,
    widths: Widths | None,
    noise: Noise,
) -> Tensor:
    inner = _spread(draws) / tau if widths is None else widths.points
    ranked, values = _project(dist, observed, prerank, draws, inner, noise)
    sampled = Draws(values[1:], ranked.weights)
    width = _spread(sampled) / tau if widths is None else widths.values
    indicator = torch.sigmoid((values[0] - values[1:]) / width)  # (S, *batch, J)
    if ranked.weights is None:
        size: Tensor | int = indicator.shape[0]
        cdf = indicator.mean(0)
    else:
        tiny = torch.finfo(indicator.dtype).tiny ** 0.5
        size = (1 / ranked.weights.square().sum(0).clamp_min(tiny)).unsqueeze(-1)
        cdf = (ranked.weights.unsqueeze(-1) * indicator).sum(0)
    return (size * cdf + 0.5) / (size + 1)


def _project(
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    draws: Draws,
    inner: Tensor,
    noise: Noise,
) -> tuple[Draws, Tensor]:
    """The draws that are ranked, and T of the observation and of each of them."""
    if not prerank.pooled:
        pool, weights = make_pool(observed, draws)
        nothing = pool.new_empty(0)
        return draws, prerank.smooth_project(pool, dist, Reference(draws, inner, nothing, weights))
    batch = observed.shape[:-1]
    shift = row_uniform(1, batch, like=observed, noise=noise)
    ranked, held_out = _hold_out(draws, shift)
    pool, weights = make_pool(observed, ranked)
    uniform = row_uniform(len(pool), batch, like=pool, noise=noise)
    return ranked, prerank.smooth_project(pool, dist, Reference(held_out, inner, uniform, weights))


def _hold_out(draws: Draws, shift: Tensor) -> tuple[Draws, Draws]:
    """Make every fourth draw a reference, beginning at a random one of the first four.

    Stratified draws sweep through the components in order. A random beginning in each row leaves
    both parts with every component in proportion to its weight.

    Args:
        draws: all draws.
        shift: uniforms, broadcastable to `(1, *batch_shape)`.
    """
    points, weights = draws
    size = len(points)
    start = (shift * _REFERENCE_EVERY).floor().to(torch.int64)
    index = torch.arange(size, device=points.device).reshape(-1, *[1] * (points.dim() - 2))
    index = ((index + start) % size).expand(points.shape[:-1])
    points = points.gather(0, index.unsqueeze(-1).expand_as(points))
    chosen = torch.arange(size, device=points.device) % _REFERENCE_EVERY == 0
    parts = []
    for mask in (~chosen, chosen):
        share = None
        if weights is not None:
            share = weights.gather(0, index)[mask]
            tiny = torch.finfo(share.dtype).tiny  # all members of a part may weigh nothing
            share = share / share.sum(0).clamp_min(tiny)
        parts.append(Draws(points[mask], share))
    return parts[0], parts[1]


def _spread(draws: Draws) -> Tensor:
    """Standard deviation over the sample axis, as a constant, never zero."""
    values = draws.points.detach()
    if draws.weights is None:
        spread = values.std(0, correction=0)
    else:
        share = draws.weights.detach().unsqueeze(-1)
        share = share / share.sum(0)
        centred = values - (share * values).sum(0)
        spread = (share * centred.square()).sum(0).sqrt()
    return spread.clamp_min(torch.finfo(values.dtype).tiny ** 0.5)


def _checked(dist: Distribution, y: object, terms: tuple[PreRank, ...], tau: float) -> Tensor:
    check_distribution(dist)
    as_positive(tau, "tau")
    for term in terms:
        term.check(dist)
    return check_observations(dist, y)
