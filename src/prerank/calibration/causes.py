"""What lies behind failing pre-ranks: wrong targets, a fault that they share, wrong dependence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from prerank.calibration.dependence import Dependence, dependence_given_margins
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.error_table import ALL, Finding, pits_of_model
from prerank.calibration.gaps import available_rows, gap_sizes
from prerank.calibration.nulls import holm
from prerank.calibration.sample_places import places_hold, sample_places
from prerank.defaults import SIGNIFICANCE
from prerank.errors import InputError
from prerank.pits import ProjectedPIT
from prerank.pits.ranks import WEIGHTED

__all__ = ["FEWEST_COMPLETE", "MARGINAL", "NAMED_ALONE", "Causes", "causes_of"]

MARGINAL = "marginal"
"""The pre-rank whose components are the targets."""

NAMED_MARGINS = 0.01
"""P-values of targets, corrected over them, and of what they share, below it name them."""

NAMED_DEPENDENCE = 0.005
"""P-values of the dependence below it name it, whatever else is wrong."""

NAMED_ALONE = SIGNIFICANCE / 3
"""The smallest of the three p-values below it names its cause where none of them is that clear."""


_TIED = 0.05
"""Shares of samples that tie with the observation above it are many."""

FEWEST_COMPLETE = 10
"""Fewest rows with all targets in which their dependence is tested."""

_FEW = 10
"""Fewer samples than these do not show where an observation outside of them lies."""


@dataclass(frozen=True)
class Causes:
    """Faults of the targets and of their dependence, each detected by its own test.

    Attributes:
        targets: kinds of the fault of each target that stands out, by its name.
        shared: kinds of the fault that the other targets share.
        names: of all targets.
        dependence: the test of the dependence given the margins; None for a single target, and for
            few or tied samples with wrong margins, which hide too much of it, or margins that are
            far off.
        level: p-values of the dependence below it name it.
    """

    targets: dict[str, tuple[str, ...]]
    shared: tuple[str, ...]
    names: tuple[str, ...]
    dependence: Dependence | None
    level: float = NAMED_DEPENDENCE

    @property
    def dependent(self) -> Dependence | None:
        """The dependence, where it is wrong."""
        if self.dependence is None or self.dependence.p_value >= self.level:
            return None
        return self.dependence


def causes_of(
    findings: Sequence[Finding],
    results: Sequence[ProjectedPIT],
    targets: Sequence[str],
    *,
    seed: int = 0,
    rows: DependentRows | None = None,
    kept: Tensor | None = None,
    pools: Callable[[], tuple[ProjectedPIT, Tensor] | None] | None = None,
) -> dict[int, Causes]:
    """Identify causes where a pre-rank fails; nothing is computed otherwise.

    Targets are named by their own p-values, corrected over them (below .01), and what they share by
    a test over the rows (below .01), the dependence given the margins below .005. If one fault is
    real, a false one is named in addition in at most 2.5 % of diagnoses. Where nothing is named,
    though a pre-rank fails, the smallest of the three p-values names its cause if it is below
    .05 / 3.

    Args:
        findings: of all pre-ranks.
        results: PITs of the same pre-ranks, with those of their pools.
        targets: names of the targets.
        seed: of the replicates.
        rows: which of all rows depend on each other; none by default.
        kept: numbers of the rows that `results` has; all by default.
        pools: makes the PITs of those rows, with those of their pools, by which the dependence of
            the targets is tested, and the numbers of these rows; all of `results` by default. Of
            these the rows with all targets count.

    Returns:
        Causes by the number of the predictor. Those without a failure, with weighted samples or
        without the pre-rank `marginal` have none.
    """
    failing = {row.model for row in findings if row.component == ALL and row.p_holm < SIGNIFICANCE}
    margins = [one for one in results if one.prerank.label == MARGINAL and one.method != WEIGHTED]
    if not margins:
        return {}
    causes = {}
    for model in sorted(failing):
        own = pits_of_model(margins[0], model)
        found = [row for row in findings if row.prerank == MARGINAL and row.model == model]
        p_values = [row.p_value for row in found[1:] or found]
        sample, numbers = (own, kept) if pools is None else (pools() or (None, None))
        try:
            some = _of_rows(rows, kept), _of_rows(rows, numbers)
        except InputError:  # of too few times or clusters
            continue
        causes[model] = _causes(own.z, sample, p_values, targets, seed, *some)
    return causes


def _of_rows(rows: DependentRows | None, numbers: Tensor | None) -> DependentRows | None:
    return rows if rows is None or numbers is None else rows.of_rows(numbers)


def _complete(
    sample: ProjectedPIT | None, rows: DependentRows | None
) -> tuple[ProjectedPIT | None, DependentRows | None]:
    """The rows that have all targets; None where they are too few for the dependence of these."""
    if sample is None or gap_sizes(sample.z) is None:
        return sample, rows
    at = available_rows(sample.z)
    if len(at) < FEWEST_COMPLETE:
        return None, rows
    pools = (None if p is None else p[:, at] for p in (sample.null_pits, sample.targets))
    try:
        kept = None if rows is None else rows.of_rows(at)
    except InputError:  # of too few times or clusters
        return None, rows
    return ProjectedPIT(sample.prerank, sample.z[at], sample.method, sample.ties, *pools), kept


def _causes(
    z: Tensor,
    sample: ProjectedPIT | None,
    p_values: Sequence[float],
    targets: Sequence[str],
    seed: int,
    rows: DependentRows | None,
    sample_rows: DependentRows | None,
) -> Causes:
    pool = None if sample is None else sample.null_pits
    # Ranks among S samples say nothing about the tails beyond them.
    ranked_pool = pool is not None and sample is not None and sample.method == "ranks"
    resolution = 1 / (1 + len(pool)) if ranked_pool and pool is not None else 0.0
    ties = 0.0 if sample is None else float(sample.ties.max())
    fragile = ties > _TIED or (resolution > 0 and 1 / resolution <= _FEW)
    dependence, (complete, kept) = None, _complete(sample, sample_rows)
    if complete is not None and complete.null_pits is not None:
        pool, values = complete.null_pits, complete.targets
        own, others, ranked = complete.z, pool, resolution
        if values is not None and not fragile:
            places = sample_places(values[0], values[1:])
            fragile = not places_hold(*places, len(values) - 1)
            if not fragile:
                (own, others), ranked = places, 0.0
        dependence = dependence_given_margins(
            own,
            others,
            resolution=ranked,
            independent=others is pool,
            n_null=749 if kept is None else 199,  # for means and units only
            generator=seed,
            rows=kept,
        )
    margins = z.double().cpu().numpy()
    return named_causes(margins, p_values, targets, dependence, resolution, rows, fragile=fragile)


def named_causes(
    z: npt.NDArray[np.float64],
    p_values: Sequence[float],
    targets: Sequence[str],
    dependence: Dependence | None = None,
    resolution: float = 0.0,
    rows: DependentRows | None = None,
    *,
    fragile: bool = False,
) -> Causes:
    """Name causes by their p-values.

    Args:
        z: PITs `(N, D)` of the targets, NaN in gaps.
        p_values: of each target by itself.
        targets: their names.
        dependence: the test of the dependence; None for a single target.
        resolution: of the PITs, see `prerank.calibration.margins.deviation_kinds`.
        rows: which of them depend on each other; none by default.
        fragile: whether the test of the dependence holds only where the margins are right.
    """
    from prerank.calibration.margins import (  # needs scipy, which takes long to import
        deviation_kinds,
        shared_p_value,
        wrong_targets,
    )

    z = z.clip(1e-12, 1 - 1e-12)
    smallest = float(np.nanmin(holm(p_values)))
    shared = shared_p_value(z, rows) if len(targets) > 1 else 1.0
    if fragile and min(smallest, shared) < SIGNIFICANCE:
        dependence = None
    other = 1.0 if dependence is None else dependence.p_value
    margins, joint = NAMED_MARGINS, NAMED_DEPENDENCE
    if min(smallest, shared) >= margins and other >= joint:
        least = min(smallest, shared, other)
        margins, joint = (NAMED_ALONE, 0.0) if least < other else (0.0, NAMED_ALONE)
    wrong = wrong_targets(p_values, margins)
    others = [j for j in range(len(targets)) if j not in wrong]
    if wrong:
        shared = shared_p_value(z[:, others], rows) if len(others) > 1 else 1.0
    like: tuple[str, ...] = ()
    if shared < margins:
        like = deviation_kinds(z[:, others], resolution=resolution, rows=rows)
    described = partial(
        deviation_kinds, resolution=resolution, of=len(targets), like=like, rows=rows
    )
    kinds = {targets[j]: described(z[:, j]) for j in wrong}
    return Causes(kinds, like, tuple(targets), dependence, joint)
