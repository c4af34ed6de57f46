"""Exact PITs for evaluation: closed forms, or exchangeable randomised ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws, Ensemble, draw
from prerank.distributions.noise import standard_uniform
from prerank.errors import InputError
from prerank.inputs import (
    as_count,
    as_generator,
    check_distribution,
    check_observations,
    full_precision,
)
from prerank.moved import old_arguments, warn_of_end
from prerank.pits.closed_forms import ProjectedCDF, closed_form, closed_form_pits
from prerank.preranks import PreRank

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
    """

    prerank: PreRank
    z: Tensor
    method: str
    ties: Tensor
    null_pits: Tensor | None = None

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
    below, tied = samples < observed, samples == observed
    if weights is None:
        counts = below.sum(0) + uniform * (tied.sum(0) + 1)
        return counts / (samples.shape[0] + 1)
    share = weights.unsqueeze(-1)
    # Weights that sum to 1 up to rounding may carry the sum past it.
    return ((share * below).sum(0) + uniform * (share * tied).sum(0)).clamp(max=1)


def project_pits(
    dist: Distribution,
    y: object,
    preranks: tuple[PreRank, ...],
    *,
    n_samples: int = 100,
    generator: torch.Generator | int | None = None,
    closed_forms: bool = True,
    with_null_pits: bool = False,
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
            has several components.
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
    source = as_generator(generator, "draw")
    with torch.no_grad(), full_precision():
        observed = check_observations(dist, y)
        for prerank in preranks:
            prerank.check(dist)
        exact = [closed_form(dist, p) if closed_forms else None for p in preranks]
        needed = with_null_pits or any(cdf is None for cdf in exact)
        draws = draw(dist, n_samples, generator=source) if needed else None
        results = []
        for prerank, cdf in zip(preranks, exact, strict=True):
            if cdf is not None:
                result = _by_closed_form(
                    dist, observed, prerank, cdf, draws if with_null_pits else None, source
                )
            elif draws is not None:
                result = _by_ranks(dist, observed, prerank, draws, source, with_null_pits)
            if bool(result.z.isnan().any()):
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
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    cdf: ProjectedCDF,
    draws: Draws | None,
    generator: torch.Generator | None,
) -> ProjectedPIT:
    """PITs in closed form, and of the draws, if any, where there are several components."""
    [z], [tied] = closed_form_pits(cdf, observed.unsqueeze(0), dist.batch_shape, generator)
    null_pits = None
    if draws is not None and z.shape[-1] > 1:
        # Some at a time: all components at once would take much memory.
        blocks = draws.points.split(max(1, _CHUNK_VALUES // draws.points[0].numel()))
        pits = [closed_form_pits(cdf, block, dist.batch_shape, generator)[0] for block in blocks]
        null_pits = torch.cat(pits)
    return ProjectedPIT(prerank, z, "closed form", tied.mean(-2), null_pits)


def _by_ranks(
    dist: Distribution,
    observed: Tensor,
    prerank: PreRank,
    draws: Draws,
    generator: torch.Generator | None,
    with_null_pits: bool,
) -> ProjectedPIT:
    pool, weights = make_pool(observed, draws)
    values = prerank.project(pool, dist, weights)  # (S + 1, *batch, J)
    if bool(values.isnan().any()):
        raise InputError(f"pre-rank {prerank.label!r} returned NaN for some points")
    ties = (values[1:] == values[0]).to(pool.dtype).mean((0, -2))
    several = with_null_pits and values.shape[-1] > 1 and draws.weights is None
    members = values.shape[0] if several else 1
    stack = [1] * (observed.dim() - 2)
    uniform = standard_uniform(
        (members, *stack, *values.shape[-2:]), like=pool, generator=generator
    )
    if several:
        everyone = _pool_ranks(values, uniform)
        return ProjectedPIT(prerank, everyone[0], "ranks", ties, everyone[1:])
    z = rank_pit(values[0], values[1:], uniform[0], draws.weights)
    method = "ranks" if draws.weights is None else WEIGHTED
    return ProjectedPIT(prerank, z, method, ties)


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


def _pool_ranks(values: Tensor, uniform: Tensor) -> Tensor:
    """`rank_pit` of every member of the pool among the others, by sorting."""
    last = values.movedim(0, -1).contiguous()
    ordered, order = last.sort(-1)
    places = torch.arange(len(values), dtype=values.dtype, device=values.device)
    below = torch.empty_like(last).scatter_(-1, order, places.expand_as(last))
    tied = torch.ones_like(below)  # the member itself among them
    where = (ordered[..., 1:] == ordered[..., :-1]).any(-1)
    if bool(where.any()):
        ordered, last = ordered[where], last[where]
        below[where] = torch.searchsorted(ordered, last).to(below)
        tied[where] = torch.searchsorted(ordered, last, right=True).to(below) - below[where]
    return (below.movedim(-1, 0) + uniform * tied.movedim(-1, 0)) / len(values)
