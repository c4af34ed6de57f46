"""PITs of events of which some targets are missing: those of the targets that are there."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions.availability import SubEvents, sub_events
from prerank.errors import NotApplicableError
from prerank.pits.ranks import ProjectedPIT
from prerank.preranks import Marginal, PreRank

__all__ = ["NO_ROWS", "available_pits", "refuse_without_rows"]

NO_ROWS = "no row has enough targets without missing values"
"""Why a pre-rank is left out."""


class Projecting(Protocol):
    """Makes the PITs of some rows; the options are for `project_pits`."""

    def __call__(
        self,
        part: SubEvents,
        preranks: tuple[PreRank, ...],
        *,
        fewest_components: int,
        check_precision: bool,
    ) -> Sequence[ProjectedPIT]: ...


def available_pits(
    dist: Distribution, y: Tensor, preranks: tuple[PreRank, ...], projecting: Projecting
) -> dict[PreRank, ProjectedPIT]:
    """PITs of several pre-ranks, NaN where a row has not the targets that one needs.

    Rows with the same available targets are looked at together. Pre-ranks that are not divisible
    take the complete rows, `marginal` each target where it is available, and others the event of
    the available targets. Given which values are missing, all of these PITs are uniform if the
    forecast is calibrated.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`, see `separable`.
        y: observations `(N, D)`, NaN where there are none.
        preranks: those of which PITs are made.
        projecting: makes the PITs of some rows and pre-ranks, with other noise at each call.

    Returns:
        Results by pre-rank, `null_pits` and `targets` likewise with NaN. Pre-ranks that no row has
        enough targets for are not among them.
    """
    n, dim = y.shape
    parts: dict[PreRank, list[tuple[SubEvents, ProjectedPIT]]] = {term: [] for term in preranks}
    groups = sub_events(dist, y)
    most = max((len(part.rows) for part in groups), default=0)
    for part in groups:
        own = {term: term.for_rows(part.rows) if len(part.rows) < n else term for term in preranks}
        terms = tuple(term for term in preranks if _applies(own[term], part, dim))
        if not terms:
            continue
        found = projecting(
            part,
            tuple(own[term] for term in terms),
            fewest_components=min(2, len(part.targets)),
            check_precision=len(part.rows) == most,  # a few odd rows are no reason to raise
        )
        for term, result in zip(terms, found, strict=True):
            parts[term].append((part, result))
    return {term: _together(term, found, n, dim) for term, found in parts.items() if found}


def refuse_without_rows(preranks: Sequence[PreRank], found: Mapping[PreRank, object]) -> None:
    """Raise if no row has enough targets for one of the pre-ranks."""
    without = [term.label for term in preranks if term not in found]
    if without:
        raise NotApplicableError(f"{', '.join(without)}: {NO_ROWS}")


def _applies(prerank: PreRank, part: SubEvents, dim: int) -> bool:
    if len(part.targets) == dim:
        return True
    if prerank.divisible:
        with suppress(NotApplicableError):
            prerank.check(part.dist)
            return True
    return False


def _together(
    prerank: PreRank, parts: Sequence[tuple[SubEvents, ProjectedPIT]], n: int, dim: int
) -> ProjectedPIT:
    """One result for all rows; the components of `marginal` are put where their targets are."""
    marginal = isinstance(prerank, Marginal)
    first = parts[0][1]
    size = dim if marginal else first.z.shape[-1]

    def scattered(name: str) -> Tensor | None:
        values = [getattr(found, name) for _, found in parts]
        if any(one is None for one in values) or (size == 1 and name != "z"):
            return None
        whole = values[0].new_full((*values[0].shape[:-2], n, size), torch.nan)
        for (part, _), one in zip(parts, values, strict=True):
            if marginal:
                whole[..., part.rows.unsqueeze(-1), part.targets] = one
            else:
                whole[..., part.rows, :] = one
        return whole

    ties, counts = first.ties.new_zeros(size), first.ties.new_zeros(size)
    for part, found in parts:
        at = part.targets if marginal else slice(None)
        ties[at] += found.ties * len(part.rows)
        counts[at] += len(part.rows)
    z = scattered("z")
    assert z is not None
    pools = (scattered("null_pits"), scattered("targets"))
    return ProjectedPIT(prerank, z, first.method, ties / counts, *pools)
