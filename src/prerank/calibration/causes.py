"""What lies behind failing pre-ranks: wrong targets, a fault that they share, wrong dependence."""

from collections.abc import Sequence
from dataclasses import dataclass

from prerank.calibration.dependence import NAMED_DEPENDENCE, Dependence, dependence_given_margins
from prerank.calibration.evidence import ALL, Finding, pits_of_model
from prerank.defaults import SIGNIFICANCE
from prerank.pits import ProjectedPIT
from prerank.pits.ranks import WEIGHTED

__all__ = ["Causes", "causes_of"]

_MARGINAL = "marginal"


@dataclass(frozen=True)
class Causes:
    """Faults of the targets and of their dependence, each found by a test of its own.

    Attributes:
        targets: kinds of the fault of each target that stands out, by its name.
        shared: kinds of the fault that the other targets share.
        names: of all targets.
        dependence: the test of the dependence given the margins; None for a single target.
    """

    targets: dict[str, tuple[str, ...]]
    shared: tuple[str, ...]
    names: tuple[str, ...]
    dependence: Dependence | None

    @property
    def dependent(self) -> Dependence | None:
        """The dependence, where it is wrong."""
        if self.dependence is None or self.dependence.p_value >= NAMED_DEPENDENCE:
            return None
        return self.dependence


def causes_of(
    findings: Sequence[Finding],
    results: Sequence[ProjectedPIT],
    targets: Sequence[str],
    *,
    seed: int = 0,
) -> dict[int, Causes]:
    """Look for causes where a pre-rank fails; calibrated forecasts cost nothing.

    Targets are named by their own p-values, corrected over them (below .015). What the others share
    is tested over the rows (below .005), and the dependence given the margins (below .02): so of
    targets that are right one is named in at most 2 % of cases, and a dependence that is right in
    at most 2 %.

    Args:
        findings: of all pre-ranks.
        results: PITs of the same pre-ranks, with those of their pools.
        targets: names of the targets.
        seed: of the replicates.

    Returns:
        Causes by the number of the predictor. Those without a failure, with weighted samples or
        without the pre-rank `marginal` have none.
    """
    failing = {row.model for row in findings if row.component == ALL and row.p_holm < SIGNIFICANCE}
    margins = [one for one in results if one.prerank.label == _MARGINAL and one.method != WEIGHTED]
    if not margins:
        return {}
    causes = {}
    for model in sorted(failing):
        own = pits_of_model(margins[0], model)
        rows = [row for row in findings if row.prerank == _MARGINAL and row.model == model]
        p_values = [row.p_value for row in rows[1:] or rows]
        causes[model] = _causes(own, p_values, targets, seed)
    return causes


def _causes(
    result: ProjectedPIT, p_values: Sequence[float], targets: Sequence[str], seed: int
) -> Causes:
    from prerank.calibration.margins import (  # needs scipy, which takes long to import
        NAMED_SHARED,
        deviation_kinds,
        shared_p_value,
        wrong_targets,
    )

    z = result.z.double().cpu().numpy().clip(1e-12, 1 - 1e-12)
    pool = result.null_pits
    # Ranks among S samples say nothing about the tails beyond them.
    resolution = 1 / (1 + len(pool)) if pool is not None and result.method == "ranks" else 0.0
    wrong = wrong_targets(p_values)

    def common(columns: Sequence[int]) -> tuple[str, ...]:
        if len(columns) < 2 or shared_p_value(z[:, columns]) >= NAMED_SHARED:
            return ()
        return deviation_kinds(z[:, columns], resolution=resolution)

    every = common(range(z.shape[1]))
    kinds = {
        targets[j]: deviation_kinds(z[:, j], resolution=resolution, of=len(wrong), like=every)
        for j in wrong
    }
    others = [j for j in range(z.shape[1]) if j not in wrong]
    shared = common(others) if wrong else every
    dependence = None
    if pool is not None:
        dependence = dependence_given_margins(result.z, pool, resolution=resolution, generator=seed)
    return Causes(kinds, shared, tuple(targets), dependence)
