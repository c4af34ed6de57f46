"""Differentiable PITs for training."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, Ensemble, draw_differentiable
from prerank.distributions.noise import Noise, as_noise, row_uniform
from prerank.errors import GradientError, InputError
from prerank.inputs import (
    as_count,
    as_positive,
    check_distribution,
    check_observations,
    full_precision,
)
from prerank.numerics.comparisons import sample_spread, smooth_rank
from prerank.pits.closed_forms import closed_form, closed_form_pits
from prerank.pits.ranks import make_pool
from prerank.preranks import PCA, PreRank, PreRankLike, Projection, applicable, parse
from prerank.preranks.base import Reference

__all__ = ["SmoothPIT", "Widths", "smooth_pit", "smooth_pits", "smoothing_widths"]


class SmoothPIT(NamedTuple):
    """PITs of one pre-rank.

    Attributes:
        z: `(*batch_shape, J)`.
        weights: of the components, one set for each member of a stack, `(*stack, J)`; None where
            they are equal.
    """

    z: Tensor
    weights: Tensor | None


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
    terms, _ = applicable(prerank, check_distribution(dist))
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
        if bool(part.z.isnan().any()):
            raise InputError(f"pre-rank {term.label!r} gives NaN for some rows")
    # Components that no member of the stack counts are left out.
    return torch.cat(
        [
            z if shares is None else z[..., (shares > 0).reshape(-1, z.shape[-1]).any(0)]
            for z, shares in parts
        ],
        -1,
    )


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
) -> list[SmoothPIT]:
    """`smooth_pit` of several pre-ranks from one set of draws.

    A `pca(fraction)` gives all D components here, with weights that are 0 past the number that
    explains the fraction: that number differs between the members of a stack, and need not be
    known before the computation.
    """
    observed = _checked(dist, y, terms, tau)
    as_count(n_samples, "n_samples", minimum=2)
    source = as_noise(generator)

    @cache
    def drawn() -> Draws:
        return draws or draw_differentiable(dist, n_samples, generator=source)

    parts = []
    with full_precision():
        for asked in terms:
            term, shares = _resolved(asked, dist, observed, drawn)
            cdf = closed_form(dist, term) if closed_forms else None
            if cdf is None and not term.differentiable:
                raise GradientError(
                    f"pre-rank {term.label!r} counts points, so it has no gradient: it can be "
                    "diagnosed but not trained through; 'copula' has a smooth form"
                )
            if cdf is not None:
                z = closed_form_pits(cdf, observed.unsqueeze(0), dist.batch_shape, source)[0][0]
            else:
                z = _smoothed(dist, observed, term, drawn(), tau=tau, widths=widths, noise=source)
            parts.append(SmoothPIT(z, shares))
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
        inner = sample_spread(*draws) / tau
        ranked, values = _project(dist, observed, terms[0], draws, inner, as_noise(generator))
        return Widths(inner, sample_spread(values[1:], ranked.weights) / tau)


def _resolved(
    term: PreRank, dist: Distribution, observed: Tensor, drawn: Callable[[], Draws]
) -> tuple[PreRank, Tensor | None]:
    """A pre-rank with a given number of components, and their weights where they are unequal."""
    if not (isinstance(term, PCA) and isinstance(term.components, float)):
        return term, None
    decomposition = term.decompose(dist) or term.decompose(dist, *make_pool(observed, drawn()))
    assert decomposition is not None  # there is a pool
    values, vectors = decomposition
    return Projection(vectors), term.shares(values)


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
    inner = widths.points if widths is not None else None
    if inner is None and prerank.pooled:
        inner = sample_spread(*draws) / tau
    ranked, values = _project(dist, observed, prerank, draws, inner, noise)
    width = sample_spread(values[1:], ranked.weights) / tau if widths is None else widths.values
    return smooth_rank(values, ranked.weights, width)


def _project(
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    draws: Draws,
    inner: Tensor | None,
    noise: Noise,
) -> tuple[Draws, Tensor]:
    """The draws that are ranked, and T of the observation and of each of them."""
    if not prerank.pooled:
        pool, weights = make_pool(observed, draws)
        nothing = pool.new_empty(0)
        return draws, prerank.smooth_project(
            pool, dist, Reference(draws, nothing, nothing, weights)
        )
    assert inner is not None
    if isinstance(dist, Ensemble):
        draws = _shuffled(draws, noise)  # members may come in an order that means something
    held_out, ranked = _hold_out(draws)
    pool, weights = make_pool(observed, ranked)
    uniform = row_uniform(len(pool), observed.shape[:-1], like=pool, noise=noise)
    return ranked, prerank.smooth_project(pool, dist, Reference(held_out, inner, uniform, weights))


def _shuffled(draws: Draws, noise: Noise) -> Draws:
    """The draws of each row in an order of its own."""
    points, weights = draws
    keys = row_uniform(len(points), points.shape[1:-1], like=points, noise=noise)
    order = keys.expand(points.shape[:-1]).argsort(0)
    points = points.gather(0, order.unsqueeze(-1).expand_as(points))
    return Draws(points, None if weights is None else weights.gather(0, order))


def _hold_out(draws: Draws) -> tuple[Draws, Draws]:
    """Every fourth draw, as references, and the others; the weights of each sum to one again.

    Stratified draws sweep through the components: every fourth is spread over them as evenly as
    all are, and in each row the sweep begins at another place.
    """
    parts = []
    for firsts in ([0], range(1, _REFERENCE_EVERY)):
        slices = [slice(first, None, _REFERENCE_EVERY) for first in firsts]
        points = torch.cat([draws.points[part].movedim(0, -1) for part in slices], -1)
        share = None
        if draws.weights is not None:
            share = torch.cat([draws.weights[part] for part in slices])
            total = share.sum(0)  # all members of a part may weigh nothing
            share = share / torch.where(total > 0, total, 1)
        parts.append(Draws(points.movedim(-1, 0), share))
    return parts[0], parts[1]


def _checked(dist: Distribution, y: object, terms: tuple[PreRank, ...], tau: float) -> Tensor:
    check_distribution(dist)
    as_positive(tau, "tau")
    for term in terms:
        term.check(dist)
    return check_observations(dist, y)
