"""Evidence from rows that depend on each other, of components with gaps.

A component is judged by the rows that have it, whose units keep their order. If all components have
the same rows, so is their mean. Otherwise their projections are of different units, and rotations
say nothing of all components at once: their p-value is the smallest one times their number, and
limits of the mean are means of limits at the corrected level, which hold under any dependence.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from prerank.calibration.dependent_limits import dependent_limits
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.gaps import gap_sizes, without_gaps
from prerank.calibration.intervals import ErrorLimits
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.rotations import ROTATIONS, DependentEvidence, dependent_evidence
from prerank.defaults import BAND_LEVEL

__all__ = ["gapped_evidence"]


def gapped_evidence(
    z: Tensor | PITCounts,
    rows: DependentRows,
    *,
    levels: int,
    n_null: int = ROTATIONS,
    seed: int = 0,
    label: str = "all components",
    names: Sequence[str] = (),
) -> tuple[DependentEvidence, ErrorLimits, ErrorLimits]:
    """`dependent_evidence` and both `dependent_limits` of PITs `(N, J)` that may have gaps.

    Args:
        z: PITs, NaN in gaps; or their counts, without any.
        rows: which of them depend on each other.
        levels: as in `pce`.
        n_null: number of rotations.
        seed: of the rotations.
        label: of the pre-rank, for the message if rows are of too few times or clusters.
        names: of its components, likewise.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> z = torch.rand(400, 2, generator=torch.Generator().manual_seed(0))
        >>> z[:150, 1] = torch.nan
        >>> found, _, _ = gapped_evidence(z, row_units(range(400), None, 400), levels=100)
        >>> bool(found.overall >= found.p_values.min()), found.floors.shape
        (True, (2,))
    """
    if isinstance(z, Tensor) and gap_sizes(z) is not None:
        common = ~z.isnan().all(-1)
        if bool(z[common].isnan().any()):
            parts = [f"{name} ({label})" for name in names or range(z.shape[1])]
            return _apart(z, rows, levels, n_null, seed, parts)
        z, kept = without_gaps(z, rows, label)
        rows = kept or rows
    found = dependent_evidence(z, rows, levels=levels, n_null=n_null, seed=seed)
    return found, *dependent_limits(z, rows, levels=levels)


def _apart(
    z: Tensor, rows: DependentRows, levels: int, n_null: int, seed: int, names: Sequence[str]
) -> tuple[DependentEvidence, ErrorLimits, ErrorLimits]:
    """Each component by its own rows; NaN for one without any."""
    size = z.shape[1]
    known = [j for j, column in enumerate(z.unbind(-1)) if not bool(column.isnan().all())]
    floors, p_values = np.full(size, np.nan), np.full(size, np.nan)
    own, corrected = (torch.full((2, size), torch.nan, dtype=torch.float64) for _ in range(2))
    for j in known:
        column, kept = without_gaps(z[:, [j]], rows, names[j])
        part = kept or rows
        found = dependent_evidence(column, part, levels=levels, n_null=n_null, seed=seed)
        floors[j], p_values[j] = found.floors[0], found.p_values[0]
        for limits, level in ((own, BAND_LEVEL), (corrected, 1 - (1 - BAND_LEVEL) / len(known))):
            limits[:, j] = torch.cat(dependent_limits(column, part, levels=levels, level=level)[0])
    overall = min(1.0, len(known) * float(np.nanmin(p_values)))
    return (
        DependentEvidence(floors, p_values, overall),
        ErrorLimits(*own),
        ErrorLimits(*corrected.nanmean(1)),
    )
