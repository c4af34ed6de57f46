"""Errors and p-values of every pre-rank and component, as rows of a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.error import pce_floor
from prerank.calibration.gapped_rotations import gapped_evidence
from prerank.calibration.gaps import (
    errors_of,
    gap_sizes,
    limits_of,
    mean_limits_of,
    p_values_of,
    used_rows,
)
from prerank.calibration.nulls import holm
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.rotations import ROTATIONS
from prerank.calibration.stand_ins import StandIns
from prerank.calibration.uniformity import joint_p_value
from prerank.defaults import LEVELS, N_NULL, SIGNIFICANCE
from prerank.inputs import as_count
from prerank.pits import ProjectedPIT
from prerank.pits.ranks import WEIGHTED

__all__ = [
    "ALL",
    "POWERLESS_TIES",
    "Finding",
    "corrected_findings",
    "findings_of",
    "pits_of_model",
]

ALL = "all"
"""Component of the row for a whole pre-rank; a target of that name becomes `target all`."""

POWERLESS_TIES = 0.9
"""Share of samples that tie with the observation from which on a check has no power."""

_MOST_NULL = 200_000
_BLUNT_NOTE = "n_null is too small to reject at 5 % after Holm's correction"


@dataclass(frozen=True)
class Finding:
    """One row of the table; `Diagnosis.table` says what the fields mean."""

    model: int
    prerank: str
    component: str
    pce: float
    floor: float
    excess: float
    p_value: float
    p_holm: float
    ties: float
    method: str
    note: str
    lower: float = math.nan
    upper: float = math.nan
    n: int | None = None


def findings_of(
    results: Sequence[ProjectedPIT],
    targets: Sequence[str],
    *,
    levels: int = LEVELS,
    n_null: int = N_NULL,
    tests: int | None = None,
    seed: int = 0,
    dependence: DependentRows | None = None,
    stand_ins: Mapping[str, StandIns] | None = None,
    counts: Mapping[str, PITCounts] | None = None,
) -> tuple[Finding, ...]:
    """Errors, floors and p-values of PITs.

    Args:
        results: PITs of each pre-rank, with those of their pools.
        targets: names of the targets.
        levels: number of levels of the PCE.
        n_null: replicates for the mean over several components.
        tests: over how many p-values the correction will go in the end, where that is more than
            those of the pre-ranks: a p-value that is as small as n_null allows is then computed
            with as many replicates as the correction needs.
        seed: of the replicates.
        dependence: which rows depend on each other; none by default.
        stand_ins: counts of the pools of each pre-rank by label, where those are not kept.
        counts: of all PITs of each pre-rank by label, where `results` have some of them.

    Returns:
        For each predictor of a stack and each pre-rank its row, followed by those of its components
        where there are several.

    Example:
        >>> import torch
        >>> from prerank.pits import project_pits
        >>> from prerank.preranks import parse
        >>> dist = torch.distributions.MultivariateNormal(torch.zeros(300, 2), torch.eye(2))
        >>> y = 2 * torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> pits = project_pits(dist, y, parse("marginal"))
        >>> whole, rain, wind = findings_of(pits, ["rain", "wind"])
        >>> rain.component, rain.excess > 0.05, rain.p_value < 0.001
        ('rain', True, True)
    """
    as_count(n_null, "n_null", minimum=1)
    enough = n_null if tests is None else min(_MOST_NULL, math.ceil(4 * tests / SIGNIFICANCE))
    blunt = (tests or len(results)) / (max(n_null, enough) + 1) > SIGNIFICANCE
    findings: tuple[Finding, ...] = ()
    for model in range(results[0].z.shape[:-2].numel()):
        rows: list[Finding] = []
        for result in results:
            # The same choices for every model of a stack, as if each had been diagnosed alone.
            own = pits_of_model(result, model)
            names = result.prerank.component_names(targets, own.z.shape[-1])
            names = [f"target {name}" if name == ALL else name for name in names]
            replicates = sorted({n_null, enough})
            null = (stand_ins or {}).get(result.prerank.label)
            z = (counts or {}).get(result.prerank.label, own.z)
            rows += _rows(own, z, names, model, levels, replicates, blunt, seed, dependence, null)
        findings += corrected_findings(rows)
    return findings


def corrected_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Correct the p-values of all rows that stand for whole pre-ranks, by Holm over all of them."""
    values = iter(holm([row.p_value for row in findings if row.component == ALL]))
    return tuple(
        replace(row, p_holm=float(next(values))) if row.component == ALL else row
        for row in findings
    )


def pits_of_model(result: ProjectedPIT, model: int) -> ProjectedPIT:
    """One predictor of a stack."""
    z = result.z.reshape(-1, *result.z.shape[-2:])[model]
    ties = result.ties.reshape(-1, result.ties.shape[-1])[model]
    pool, targets = (
        None if part is None else part.reshape(part.shape[0], -1, *part.shape[-2:])[:, model]
        for part in (result.null_pits, result.targets)
    )
    return ProjectedPIT(result.prerank, z, result.method, ties, pool, targets)


def _rows(
    result: ProjectedPIT,
    z: Tensor | PITCounts,
    names: Sequence[str],
    model: int,
    levels: int,
    replicates: Sequence[int],
    blunt: bool,
    seed: int,
    dependence: DependentRows | None,
    stand_ins: StandIns | None,
) -> list[Finding]:
    """The finding for a pre-rank, then those for its components where there are several."""
    sizes, errors = gap_sizes(z), errors_of(z, levels=levels)
    weighted = result.method == WEIGHTED
    several = len(errors) > 1
    numbers = sizes or [len(z)] * len(errors)
    floors = [pce_floor(n, levels=levels) if n else math.nan for n in numbers]
    method = result.method
    limits = [(math.nan, math.nan)] * (1 + len(errors))
    p_values, overall = [math.nan] * len(errors), math.nan
    if not any(numbers):
        method = "no values"
    elif dependence is not None and not weighted:
        found, own, whole = gapped_evidence(
            z,
            dependence,
            levels=levels,
            n_null=max(replicates[-1], ROTATIONS),
            seed=seed,
            label=result.prerank.label,
            names=names,
        )
        floors, p_values, overall = [*found.floors], [*found.p_values], found.overall
        blunt, method = False, f"{method}, {dependence.method}"
    elif not weighted:
        p_values = p_values_of(z).tolist()
        overall = _overall_p_value(result, p_values, replicates, seed, stand_ins)
        own = limits_of(z, levels=levels)
        whole = mean_limits_of(z, levels=levels)
        blunt = blunt and overall >= _resolution(replicates)
    if any(numbers) and not weighted:
        limits = [(float(whole.lower), float(whole.upper))]
        limits += zip(own.lower.tolist(), own.upper.tolist(), strict=True)
    known = [j for j, n in enumerate(numbers) if n]
    floor = sum(floors[j] for j in known) / len(known) if known else math.nan
    rows = [(ALL, errors.nanmean(), floor, overall, result.ties.nanmean())]
    rows += zip(names, errors, floors, p_values, result.ties, strict=True) if several else ()
    of_rows = [None] * len(limits) if sizes is None else [used_rows(z), *sizes]
    return [
        Finding(
            model=model,
            prerank=result.prerank.label,
            component=component,
            pce=float(error),
            floor=float(floor),
            excess=float(error) - float(floor),
            p_value=float(p),
            p_holm=math.nan,
            ties=float(ties),
            method=method,
            note=_note(float(ties), weighted, blunt and several and component == ALL),
            lower=lower,
            upper=upper,
            n=n,
        )
        for (component, error, floor, p, ties), (lower, upper), n in zip(
            rows, limits, of_rows, strict=False
        )
    ]


def _overall_p_value(
    result: ProjectedPIT,
    p_values: Sequence[float],
    replicates: Sequence[int],
    seed: int,
    stand_ins: StandIns | None,
) -> float:
    """P-value of the whole pre-rank; that of the first component where there is one alone."""
    overall, pool = p_values[0], result.null_pits
    if stand_ins is not None:
        overall = stand_ins.p_value(most=replicates[-1], generator=seed)
    for count in replicates:  # the larger number only where the smaller one cannot resolve p
        if pool is not None and (count == replicates[0] or overall <= 2 / (replicates[0] + 1)):
            overall = joint_p_value(result.z, pool, n_null=count, generator=seed)
    if overall <= _resolution(replicates):
        # No replicate is as extreme: the bound by the components, which resolve more. It is only
        # read here, so that P(p <= a) <= a still holds, on both sides of the resolution.
        known = [p for p in p_values if not math.isnan(p)]
        overall = min(overall, len(known) * min(known))
    return overall


def _resolution(counts: Sequence[int]) -> float:
    """Smallest p-value of several components that replicates give."""
    return 1 / (counts[-1] + 1)


def _note(ties: float, weighted: bool, blunt: bool) -> str:
    notes = {
        "weighted samples: no p-value": weighted,
        f"no power: {ties:.0%} of the samples tie with the observation": ties >= POWERLESS_TIES,
        _BLUNT_NOTE: blunt,
    }
    return "; ".join(note for note, holds in notes.items() if holds)
