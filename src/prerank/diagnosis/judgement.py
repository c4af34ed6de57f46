"""From PITs to findings: errors, floors and p-values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from prerank.calibration import component_null, holm, null_pce, p_value, pce, pce_floor
from prerank.diagnosis.findings import ALL, POWERLESS_TIES, Diagnosis, Finding
from prerank.pits import ProjectedPIT
from prerank.pits.ranks import WEIGHTED

__all__ = ["Measurement", "judge"]

_BLUNT = 0.05
_MOST_NULL = 200_000
_BLUNT_NOTE = "n_null is too small to reject at 5 % after Holm's correction"


@dataclass(frozen=True)
class Measurement:
    """PITs of every pre-rank, not yet judged.

    Attributes:
        results: PITs, and stand-ins for their null law, of each pre-rank.
        targets: names.
        skipped: label and reason of each pre-rank that does not apply.
        remarks: what else was noticed.
        null_seed: of the replicates.
    """

    results: tuple[ProjectedPIT, ...]
    targets: tuple[str, ...]
    skipped: dict[str, str]
    remarks: tuple[str, ...]
    null_seed: int

    def of_rows(self, rows: Tensor) -> "Measurement":
        """Some of the rows, by their numbers; the share of ties stays that of all."""

        def part(result: ProjectedPIT) -> ProjectedPIT:
            at = rows.to(result.z.device)
            null_pits = result.null_pits
            return replace(
                result,
                z=result.z[..., at, :],
                null_pits=None if null_pits is None else null_pits[..., at, :],
            )

        return replace(self, results=tuple(part(result) for result in self.results))


def judge(
    measured: Measurement, *, levels: int, n_null: int, tests: int | None = None
) -> Diagnosis:
    """Measure errors, and their evidence.

    Args:
        measured: the PITs.
        levels: number of levels of the PCE.
        n_null: replicates for the mean over several components.
        tests: over how many p-values the correction will go in the end, where that is more than
            those of the pre-ranks: a p-value that is as small as n_null allows is then computed
            with as many replicates as the correction needs.
    """
    results = measured.results
    enough = n_null if tests is None else min(_MOST_NULL, math.ceil(2 * tests / _BLUNT))
    findings: list[Finding] = []
    for model in range(results[0].z.shape[:-2].numel()):
        # The same choices for every model of a stack, as if each had been diagnosed alone.
        groups = [
            _judge(
                _member(result, model),
                model,
                measured.targets,
                levels,
                (n_null, enough),
                measured.null_seed,
            )
            for result in results
        ]
        corrected = holm([overall.p_value for overall, *_ in groups])
        for (overall, *components), value in zip(groups, corrected, strict=True):
            blunt = (
                bool(components) and (tests or len(results)) / (max(n_null, enough) + 1) > _BLUNT
            )
            note = "; ".join(filter(None, [overall.note, _BLUNT_NOTE if blunt else ""]))
            findings += [replace(overall, p_holm=float(value), note=note), *components]
    pits = {result.prerank.label: result.z for result in results}
    return Diagnosis(tuple(findings), pits, measured.skipped, levels, measured.remarks, tests)


def _member(result: ProjectedPIT, model: int) -> ProjectedPIT:
    """One predictor of a stack."""
    z = result.z.reshape(-1, *result.z.shape[-2:])[model]
    ties = result.ties.reshape(-1, result.ties.shape[-1])[model]
    null_pits = result.null_pits
    if null_pits is not None:
        null_pits = null_pits.reshape(null_pits.shape[0], -1, *null_pits.shape[-2:])[:, model]
    return ProjectedPIT(result.prerank, z, result.method, ties, null_pits)


def _judge(
    result: ProjectedPIT,
    model: int,
    targets: Sequence[str],
    levels: int,
    n_null: tuple[int, int],
    null_seed: int,
) -> list[Finding]:
    """The finding for a pre-rank, then those for its components where there are several."""
    n, components = result.z.shape
    floor = pce_floor(n, levels=levels)
    errors = pce(result.z.double(), levels=levels)
    testable = result.method != WEIGHTED
    null = null_pce(n, levels=levels)
    p_values = [p_value(float(e), null) if testable else np.nan for e in errors]
    overall = p_values[0]
    null_pits = result.null_pits
    for count in sorted(set(n_null)) if null_pits is not None else ():
        assert null_pits is not None
        replicates = component_null(
            result.z, null_pits, levels=levels, n_null=count, generator=null_seed
        )
        overall = p_value(float(errors.mean()), replicates.cpu().numpy())
        if overall > 1 / (count + 1):
            break

    def finding(component: str, error: Tensor, p: float, ties: Tensor) -> Finding:
        return Finding(
            model=model,
            prerank=result.prerank.label,
            component=component,
            pce=float(error),
            floor=floor,
            excess=float(error) - floor,
            p_value=p,
            p_holm=np.nan,
            ties=float(ties),
            method=result.method,
            note=_note(float(ties), testable),
        )

    findings = [finding(ALL, errors.mean(), overall, result.ties.mean())]
    if components > 1:
        names = result.prerank.component_names(targets, components)
        findings += [
            finding(name, errors[j], p_values[j], result.ties[j]) for j, name in enumerate(names)
        ]
    return findings


def _note(ties: float, testable: bool) -> str:
    notes = [] if testable else ["weighted samples: no p-value"]
    if ties >= POWERLESS_TIES:
        notes.append(f"no power: {ties:.0%} of the samples tie with the observation")
    return "; ".join(notes)
