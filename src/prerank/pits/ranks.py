"""Exact PITs for evaluation: closed forms, or exchangeable randomised ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, Ensemble, draw
from prerank.distributions.noise import RowNoise, standard_uniform
from prerank.errors import InputError
from prerank.inputs import (
    as_count,
    as_generator,
    check_distribution,
    check_observations,
    full_precision,
)
from prerank.moved import old_arguments, warn_of_end
from prerank.numerics.counts import below_and_tied
from prerank.numerics.sorting import line_places
from prerank.pits.closed_forms import ProjectedCDF, closed_form, closed_form_pits
from prerank.pits.pool_members import member_pits
from prerank.pits.row_units import Frame, Frames
from prerank.preranks import Marginal, PreRank

__all__ = ["WEIGHTED", "ProjectedPIT", "labels_of", "project_pits", "rank_pit"]

WEIGHTED = "weighted ranks"
"""Method whose PITs are not exactly uniform: no p-value, and no band."""

_CHUNK_VALUES = 2**22  # points times targets at a time


@old_arguments(stand_ins="null_pits")
@dataclass(frozen=True)
class ProjectedPIT:
    """PITs of one pre-rank, and what is needed to judge them.

    Attributes:
        prerank: the pre-rank.
        z: `(*batch_shape, J)`.
        method: `"closed form"`, `"ranks"` or `"weighted ranks"`.
        ties: fraction of the samples that tie with the observation, mean over rows: `(..., J)`.
        null_pits: `(R, *batch_shape, J)`, PITs of other points of each row's pool. Where the
            predictor is right they are exchangeable with z, jointly over the components. None
            unless asked for, and for weighted samples.
        targets: `(S + 1, *batch_shape, D)`, the observation and the samples themselves. Where
            `null_pits` are asked for, for targets that are ranked among samples.
    """

    prerank: PreRank
    z: Tensor
    method: str
    ties: Tensor
    null_pits: Tensor | None = None
    targets: Tensor | None = None

    @property
    def stand_ins(self) -> Tensor | None:
        """Former name of `null_pits`."""
        warn_of_end("stand_ins", "use null_pits")
        return self.null_pits


def rank_pit(
    observed: Tensor, samples: Tensor, uniform: Tensor, weights: Tensor | None = None
) -> Tensor:
    r"""Randomised rank of an observation among samples.

    .. math:: Z = \frac{\#\{T_s < T\} + U (\#\{T_s = T\} + 1)}{S + 1}, \qquad
              Z_w = \sum_s w_s 1\{T_s < T\} + U \sum_s w_s 1\{T_s = T\}.

    If T and the S values :math:`T_s` are exchangeable, Z is exactly uniform, whatever S and however
    many ties. The weighted form has no such guarantee.

    Args:
        observed: T, `(..., J)`.
        samples: `(S, ..., J)`.
        uniform: U, broadcastable to `observed`.
        weights: `(S, ...)`, summing to one over S.

    Example:
        >>> rank_pit(torch.tensor([2.0]), torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor(0.5))
        tensor([0.5000])
    """
    if weights is None:
        below, tied = below_and_tied(observed, samples)
        return _place(below, tied, uniform, len(samples))
    below, tied = samples < observed, samples == observed
    share = weights.unsqueeze(-1)
    # Weights that sum to 1 up to rounding may carry the sum past it.
    return ((share * below).sum(0) + uniform * (share * tied).sum(0)).clamp(max=1)


def project_pits(
    dist: Distribution,
    y: object,
    preranks: tuple[PreRank, ...],
    *,
    n_samples: int = 100,
    generator: torch.Generator | RowNoise | int | None = None,
    closed_forms: bool = True,
    with_null_pits: bool = False,
    null_members: int | None = None,
    fewest_components: int = 2,
    check_precision: bool = True,
    with_stand_ins: bool | None = None,
) -> list[ProjectedPIT]:
    """Compute the PITs of several pre-ranks from one set of draws.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: `(..., N, D)`.
        preranks: see `prerank.preranks.parse`.
        n_samples: draws per row, for pre-ranks without a closed form. An `Ensemble` uses all of
            its members.
        generator: source of draws and of the randomisation of ties.
        closed_forms: False ranks samples even where the projected law is known.
        with_null_pits: also return the PITs of the other points of each pool, where a pre-rank
            has enough components.
        null_members: of how many of these points, which are chosen at random in each row; of all
            by default.
        fewest_components: how many are enough; 1 for rows with a single target among others.
        check_precision: raise where most forecasts are finer than the precision of their numbers.
        with_stand_ins: former name of `with_null_pits`.
    """
    if with_stand_ins is not None:
        warn_of_end("with_stand_ins", "use with_null_pits")
        with_null_pits = with_stand_ins
    check_distribution(dist)
    dtype = None
    if isinstance(dist, Ensemble):
        dist, dtype = dist.at_precision_of(y), dist.samples.dtype
    as_count(n_samples, "n_samples", minimum=2)
    source = generator if isinstance(generator, RowNoise) else as_generator(generator, "draw")
    with torch.no_grad(), full_precision():
        observed = check_observations(dist, y)
        for prerank in preranks:
            prerank.check(dist)
        frame = Frame(dist, observed, partial(draw, dist, n_samples, generator=source))
        frames, results = Frames(frame, check=check_precision), []
        places = [frames.of(prerank) for prerank in preranks]
        exact = [
            closed_form(at.dist, prerank) if closed_forms else None
            for at, prerank in zip(places, preranks, strict=True)
        ]
        if with_null_pits or any(cdf is None for cdf in exact):
            frame.draws()  # before the noise of any pre-rank
        fewest = fewest_components if with_null_pits else None
        for at, prerank, cdf in zip(places, preranks, exact, strict=True):
            if cdf is not None:
                result = _by_closed_form(at, prerank, cdf, source, fewest, null_members)
            else:
                result = _by_ranks(at, prerank, source, fewest, null_members)
            if _has_nan(result.z):
                raise InputError(f"pre-rank {prerank.label!r} returned NaN for some rows")
            results.append(result if dtype is None else replace(result, z=result.z.to(dtype)))
        return results


def labels_of(preranks: Sequence[PreRank]) -> list[str]:
    """Labels of pre-ranks, by which results are kept: each must occur once."""
    labels = [prerank.label for prerank in preranks]
    if len(set(labels)) < len(labels):
        raise InputError(
            f"preranks holds the same name twice: {', '.join(labels)}. Give functions names of "
            "their own with preranks.Custom(function, title=...)"
        )
    return labels


def _by_closed_form(
    at: Frame,
    prerank: PreRank,
    cdf: ProjectedCDF,
    generator: torch.Generator | RowNoise | None,
    fewest: int | None,
    null_members: int | None,
) -> ProjectedPIT:
    """PITs in closed form, and of the draws, if asked for, where there are enough components."""
    batch = at.dist.batch_shape
    [z], [tied] = closed_form_pits(cdf, at.observed.unsqueeze(0), batch, generator)
    null_pits = None
    if fewest is not None and z.shape[-1] >= fewest:
        # Some at a time: all components at once would take much memory.
        points = at.draws().points[:null_members]  # as good as any others
        blocks = points.split(max(1, _CHUNK_VALUES // points[0].numel()))
        pits = [closed_form_pits(cdf, block, batch, generator)[0] for block in blocks]
        null_pits = torch.cat(pits)
    return ProjectedPIT(prerank, z, "closed form", tied.mean(-2), null_pits)


def _by_ranks(
    at: Frame,
    prerank: PreRank,
    generator: torch.Generator | RowNoise | None,
    fewest: int | None,
    null_members: int | None,
) -> ProjectedPIT:
    draws = at.draws()
    plain = isinstance(at.dist, Ensemble) and draws.weights is None and fewest is None
    if plain and type(prerank) is Marginal:
        # T are the members themselves, all finite: no pool is needed.
        return _ranked(prerank, at.observed.to(draws.points), draws.points, draws, generator)
    if null_members is not None and isinstance(prerank, Marginal) and draws.weights is None:
        pool, weights = torch.cat([at.observed.unsqueeze(0), draws.points]), None
    else:
        pool, weights = make_pool(at.observed, draws)
    values = prerank.project(pool, at.dist, weights)  # (S + 1, *batch, J)
    if _has_nan(values):
        raise InputError(f"pre-rank {prerank.label!r} returned NaN for some points")
    if fewest is not None and values.shape[-1] >= fewest and weights is None:
        if null_members is not None and not isinstance(generator, RowNoise):
            z, ties = member_pits(values, null_members, generator)
            return ProjectedPIT(prerank, z[0], "ranks", ties, z[1:])
        everyone = _pool_ranks(values, _uniform(values, draws, generator))
        ties = _mean_over_rows(below_and_tied(values[0], values[1:])[1], draws)
        targets = values if isinstance(prerank, Marginal) else None
        return ProjectedPIT(prerank, everyone[0], "ranks", ties, everyone[1:], targets)
    return _ranked(prerank, values[0], values[1:], draws, generator)


def _ranked(
    prerank: PreRank,
    observed: Tensor,
    samples: Tensor,
    draws: Draws,
    generator: torch.Generator | RowNoise | None,
) -> ProjectedPIT:
    """PITs of T `(*batch, J)` of the observations among those of the samples `(S, *batch, J)`."""
    [uniform] = _uniform(observed.unsqueeze(0), draws, generator)
    below, tied = below_and_tied(observed, samples)
    ties = _mean_over_rows(tied, draws)
    if draws.weights is None:
        z = _place(below, tied, uniform, len(samples))
        return ProjectedPIT(prerank, z, "ranks", ties)
    return ProjectedPIT(
        prerank, rank_pit(observed, samples, uniform, draws.weights), WEIGHTED, ties
    )


def _uniform(values: Tensor, draws: Draws, generator: torch.Generator | RowNoise | None) -> Tensor:
    """Noise for values `(R, *batch, J)`, which the members of a stack share."""
    stack = [1] * (values.dim() - 3)
    shape = (len(values), *stack, *values.shape[-2:])
    return standard_uniform(shape, like=draws.points, generator=generator)


def _mean_over_rows(tied: Tensor, draws: Draws) -> Tensor:
    """Share of the samples that tie, from their numbers in each row: `(..., J)`."""
    points = draws.points
    return tied.sum(-2).to(points.dtype) / (len(points) * tied.shape[-2])


def _place(below: Tensor, tied: Tensor, uniform: Tensor, size: int) -> Tensor:
    return (below + uniform * (tied + 1)) / (size + 1)


def make_pool(observed: Tensor, draws: Draws) -> tuple[Tensor, Tensor | None]:
    """Put the observation before its samples, with the weight of an average sample."""
    # Draws last in memory, as they come from a distribution.
    columns = [observed.unsqueeze(-1).to(draws.points), draws.points.movedim(0, -1)]
    pool = torch.cat(columns, -1).movedim(-1, 0)
    if draws.weights is None:
        return pool, None
    weights = draws.weights.movedim(0, -1)
    own = torch.full_like(weights[..., :1], 1.0 / weights.shape[-1])
    return pool, torch.cat([own, weights], -1).movedim(-1, 0)


def _has_nan(values: Tensor) -> bool:
    """Whether any value is NaN; the sum, one pass, tells where none is."""
    return bool(values.sum().isnan()) and bool(values.isnan().any())


def _pool_ranks(values: Tensor, uniform: Tensor) -> Tensor:
    """`rank_pit` of every member of the pool among the others, by sorting."""
    first, last = line_places(values.movedim(0, -1))
    tied = (last - first + 1).movedim(-1, 0)  # the member itself among them
    return (first.movedim(-1, 0) + uniform * tied) / len(values)
