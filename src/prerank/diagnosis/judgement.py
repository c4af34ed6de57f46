"""PITs of every pre-rank, not yet judged, and their judgement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from prerank.calibration.causes import causes_of
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.error_table import findings_of
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.serial_correlation import SerialCorrelation, serial_correlations
from prerank.calibration.stand_ins import StandIns
from prerank.diagnosis.diagnoses import Diagnosis
from prerank.distributions import affine
from prerank.distributions.availability import SubEvents
from prerank.errors import InputError
from prerank.pits import ProjectedPIT, project_pits
from prerank.pits.incomplete_events import NO_ROWS, available_pits, refuse_without_rows
from prerank.pits.ranks import labels_of
from prerank.preranks import PreRank, PreRankLike, applicable, is_all
from prerank.preranks.base import refuse_given_rows

__all__ = [
    "Measurement",
    "asked_for",
    "asked_of_batches",
    "gapped_pits",
    "scaled_pits",
    "without_rows",
]

_SAME_FOR_ONE = ("location", "pca", "copula")


@dataclass(frozen=True)
class Measurement:
    """PITs of every pre-rank, not yet judged.

    Attributes:
        results: PITs, and those of their pools, of each pre-rank.
        targets: names.
        skipped: label and reason of each pre-rank that does not apply.
        remarks: what else was noticed.
        null_seed: of the replicates.
        units: of the targets.
        dependence: which rows depend on each other.
        whole: whether these are all rows, whose order is looked at too.
        stand_ins: counts of the pools of each pre-rank by label, where those are not kept.
        pools: makes those of the rows by which the dependence of the targets is tested, and gives
            the numbers of these rows.
        kept: numbers of the rows whose PITs are there, `(n,)`; None for all.
        counts: of the PITs of all rows by label, where some of them are there.
        opening: PITs of the first rows in their order, likewise.
        ensemble: whether the forecast is made of samples.
    """

    results: tuple[ProjectedPIT, ...]
    targets: tuple[str, ...]
    skipped: dict[str, str]
    remarks: tuple[str, ...]
    null_seed: int
    units: str
    dependence: DependentRows | None
    whole: bool = True
    stand_ins: Mapping[str, StandIns] = field(default_factory=dict)
    pools: Callable[[], tuple[ProjectedPIT, Tensor] | None] | None = None
    kept: Tensor | None = None
    counts: Mapping[str, PITCounts] = field(default_factory=dict)
    opening: Mapping[str, Tensor] | None = None
    ensemble: bool = False

    def of_rows(self, rows: Tensor, group: str) -> "Measurement":
        """The rows of a group, by their numbers; the share of ties stays that of all."""

        def part(result: ProjectedPIT) -> ProjectedPIT:
            at = rows.to(result.z.device)
            pool, values = (
                None if every is None else every[..., at, :]
                for every in (result.null_pits, result.targets)
            )
            return replace(result, z=result.z[..., at, :], null_pits=pool, targets=values)

        results = tuple(part(result) for result in self.results)
        depend = self.dependence
        if depend is not None:
            depend = depend.of_rows(rows, f" in group {group!r}")
        return replace(self, results=results, dependence=depend, whole=False)

    def judged(self, *, levels: int, n_null: int, tests: int | None = None) -> Diagnosis:
        """Errors, and their evidence."""
        depend = self.dependence
        options: dict[str, Any] = {"levels": levels, "n_null": n_null, "tests": tests}
        options |= {"seed": self.null_seed, "dependence": depend, "stand_ins": self.stand_ins}
        options |= {"counts": self.counts}
        findings = findings_of(self.results, self.targets, **options)
        pits = {result.prerank.label: result.z for result in self.results}
        return Diagnosis(
            findings,
            pits,
            self.skipped,
            levels,
            self.remarks,
            tests,
            self.units,
            depend,
            self._serials(pits) if self.whole else {},
            causes_of(
                findings,
                self.results,
                self.targets,
                seed=self.null_seed,
                rows=depend,
                kept=self.kept,
                pools=self.pools,
            ),
            counts=dict(self.counts),
            kept=self.kept,
            ensemble=self.ensemble,
        )

    def _serials(self, pits: Mapping[str, Tensor]) -> dict[int, SerialCorrelation]:
        """Correlations of neighbouring rows, of the first ones where not all PITs are there."""
        if self.opening is None:
            return serial_correlations(pits, self.dependence)
        depend, n = self.dependence, min(map(len, self.opening.values()), default=0)
        try:
            first = None if depend is None else depend.of_rows(torch.arange(n))
        except InputError:  # of too few times or clusters
            return {}
        return serial_correlations({k: z[:n] for k, z in self.opening.items()}, first) if n else {}


def scaled_pits(
    dist: Distribution,
    observed: Tensor,
    terms: tuple[PreRank, ...],
    divisors: Tensor | None,
    **options: Any,
) -> list[ProjectedPIT]:
    """PITs of several pre-ranks with targets divided by numbers.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        observed: `(..., N, D)`.
        terms: the pre-ranks.
        divisors: of the targets, `(D,)`; none by default.
        options: of `project_pits`.
    """
    if divisors is None:
        return project_pits(dist, observed, terms, **options)
    factor = 1 / divisors  # one for predictions and observations, so that ties stay ties
    scaled = affine(dist, torch.zeros_like(factor), factor)
    # Densities rank alike in all units. Those of a distribution that affine can only wrap are
    # looked up in the original ones: y / scale * scale may miss an atom.
    wrapped = isinstance(scaled, TransformedDistribution)
    moved = tuple(term for term in terms if not (wrapped and term.needs_log_prob))
    kept = tuple(term for term in terms if term not in moved)
    by_term = dict(
        zip(moved, project_pits(scaled, factor * observed, moved, **options), strict=True)
    )
    if kept:
        by_term |= zip(kept, project_pits(dist, observed, kept, **options), strict=True)
    return [by_term[term] for term in terms]


def gapped_pits(
    dist: Distribution,
    observed: Tensor,
    terms: tuple[PreRank, ...],
    divisors: Tensor | None,
    **options: Any,
) -> dict[PreRank, ProjectedPIT]:
    """`scaled_pits` of rows with missing values, by pre-rank; see `available_pits`.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`, see `separable`.
        observed: `(N, D)`, NaN for missing values.
        terms: the pre-ranks.
        divisors: of the targets, `(D,)`; none by default.
        options: of `project_pits`.
    """
    for term in terms:
        term.check(dist)

    def projecting(
        part: SubEvents, preranks: tuple[PreRank, ...], **own: Any
    ) -> list[ProjectedPIT]:
        divided = None if divisors is None else divisors[part.targets]
        return scaled_pits(part.dist, part.y, preranks, divided, **options, **own)

    return available_pits(dist, observed, terms, projecting)


def without_rows(
    terms: Sequence[PreRank], found: Mapping[PreRank, Any], preranks: PreRankLike | None
) -> dict[str, str]:
    """Label and reason of pre-ranks for which no row has enough targets; asked for, they raise."""
    if preranks is not None and not is_all(preranks):
        refuse_without_rows(terms, found)
    return {term.label: NO_ROWS for term in terms if term not in found}


def asked_for(
    dist: Distribution, preranks: PreRankLike | None
) -> tuple[tuple[PreRank, ...], dict[str, str]]:
    """Pre-ranks to diagnose, and label and reason of each that is skipped."""
    terms, skipped = applicable("all" if preranks is None else preranks, dist)
    if dist.event_shape[0] == 1 and (preranks is None or is_all(preranks)):
        # One question asked several times would cost power after the correction.
        same = [term.label for term in terms if term.label in _SAME_FOR_ONE]
        terms = tuple(term for term in terms if term.label not in same)
        skipped |= dict.fromkeys(same, "the same as marginal for a single target")
    labels_of(terms)
    return terms, skipped


def asked_of_batches(
    dist: Distribution, preranks: PreRankLike | None
) -> tuple[tuple[PreRank, ...], dict[str, str]]:
    """As `asked_for`, for rows that come in batches: pre-ranks of given rows are refused."""
    terms, skipped = asked_for(dist, preranks)
    refuse_given_rows(terms, "each batch has others")
    return terms, skipped
