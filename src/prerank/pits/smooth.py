"""Differentiable PITs for training."""

from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, Ensemble, GaussianMixture, draw_differentiable
from prerank.distributions.draws import Sweep, draw_sweep
from prerank.distributions.magnitudes import safe_factors
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
from prerank.pits.compiled_ranks import compiled_rank, kernel_applies
from prerank.pits.ranks import make_pool
from prerank.pits.row_units import Frame, Frames
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
    def swept() -> Sweep:
        assert isinstance(dist, GaussianMixture)
        return draw_sweep(dist, n_samples, source)

    def drawn() -> Draws:
        if draws is None and isinstance(dist, GaussianMixture):
            return Draws(*dist.stratify(*swept()))
        return draws or draw_differentiable(dist, n_samples, generator=source)

    # Training may go through forecasts of any size: those that skip their own checks skip this one.
    check = bool(dist._validate_args) or isinstance(dist, Ensemble)
    # Widths are in units of the targets.
    frames = Frames(Frame(dist, observed, drawn), rescale=widths is None, check=check)
    parts = []
    with full_precision():
        for asked in terms:
            at = frames.of(asked)
            term, shares = _resolved(asked, at)
            cdf = closed_form(at.dist, term) if closed_forms else None
            if cdf is None and not term.differentiable:
                raise GradientError(
                    f"pre-rank {term.label!r} counts points, so it has no gradient: it can be "
                    "diagnosed but not trained through; 'copula' has a smooth form"
                )
            if cdf is not None:
                z = closed_form_pits(cdf, at.observed.unsqueeze(0), dist.batch_shape, source)[0][0]
            else:
                plain = partial(_smoothed, prerank=term, tau=tau, widths=widths, noise=source)
                fast = kernel_applies(at, term, n_samples) and draws is None and widths is None
                z = compiled_rank(at, term, swept(), source, tau, plain) if fast else plain(at)
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


def _resolved(term: PreRank, at: Frame) -> tuple[PreRank, Tensor | None]:
    """A pre-rank with a given number of components, and their weights where they are unequal."""
    if not (isinstance(term, PCA) and isinstance(term.components, float)):
        return term, None
    decomposition = term.decompose(at.dist) or term.decompose(
        at.dist, *make_pool(at.observed, at.draws())
    )
    assert decomposition is not None  # there is a pool
    values, vectors = decomposition
    return Projection(vectors), term.shares(values)


def _smoothed(
    at: Frame,
    prerank: PreRank,
    *,
    tau: float,
    widths: Widths | None,
    noise: Noise,
    ties: Tensor | None = None,
) -> Tensor:
    draws = at.draws()
    inner = widths.points if widths is not None else None
    if inner is None and prerank.pooled:
        inner = sample_spread(*draws) / tau
    ranked, values = _project(at.dist, at.observed, prerank, draws, inner, noise, ties)
    if widths is None and not prerank.homogeneous:  # its values may have any size
        factor = safe_factors(values.detach().abs().amax(0))
        values = values if factor is None else factor * values
    width = sample_spread(values[1:], ranked.weights) / tau if widths is None else widths.values
    return smooth_rank(values, ranked.weights, width)


def _project(
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    draws: Draws,
    inner: Tensor | None,
    noise: Noise,
    ties: Tensor | None = None,
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
    if ties is None:
        ties = row_uniform(len(pool), observed.shape[:-1], like=pool, noise=noise)
    return ranked, prerank.smooth_project(pool, dist, Reference(held_out, inner, ties, weights))


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
