"""The evidence on each pre-rank, with the shapes of the deviations of its components."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from prerank.calibration.dependent_limits import dependent_limits
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.error_table import POWERLESS_TIES, Finding
from prerank.calibration.gaps import (
    band_of,
    components_of,
    curve_of,
    limits_of,
    without_gaps,
)
from prerank.calibration.nulls import holm
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.shapes import DeviationShape, deviation_shapes
from prerank.defaults import BAND_LEVEL, LEVELS, SIGNIFICANCE
from prerank.pits.ranks import WEIGHTED

__all__ = ["Evidence", "Part", "curve_shapes", "evidence_of"]


@dataclass(frozen=True)
class Part:
    """Evidence on one component of a pre-rank.

    Attributes:
        name: of the component.
        pce: of its PITs.
        p_value: NaN where there is none.
        shape: of its deviation; None where there is no band to judge it by.
    """

    name: str
    pce: float
    p_value: float
    shape: DeviationShape | None


@dataclass(frozen=True)
class Evidence:
    """Evidence on one pre-rank.

    Attributes:
        label: of the pre-rank.
        pce: mean over the components.
        floor: expected PCE of a calibrated forecast.
        p_holm: corrected p-value, NaN where there is none.
        parts: its components, one at least.
        note: such as that there is no power.
        powerless: whether nearly all samples tie with the observation.
        least: lower limit of the true PCE of its worst component, at 95 % confidence for all
            components of all pre-ranks at once; 0 where no pre-rank fails.
    """

    label: str
    pce: float
    floor: float
    p_holm: float
    parts: tuple[Part, ...]
    note: str = ""
    powerless: bool = False
    least: float = 0.0

    @property
    def worst(self) -> str:
        """The component with the largest PCE, in words."""
        name = max(self.parts, key=lambda part: part.pce).name
        return self.label if len(self.parts) == 1 else f"{name} ({self.label})"

    @property
    def kind(self) -> str:
        """The label without its argument."""
        return self.label.partition("(")[0]

    @property
    def wrong(self) -> tuple[Part, ...]:
        """Components with evidence of their own, corrected within the pre-rank."""
        if len(self.parts) == 1:
            return self.parts
        corrected = holm([part.p_value for part in self.parts])
        return tuple(
            part for part, p in zip(self.parts, corrected, strict=True) if p < SIGNIFICANCE
        )

    @property
    def error(self) -> float:
        """PCE of the worst component with evidence of its own, or else the mean."""
        return max((part.pce for part in self.wrong), default=self.pce)


def curve_shapes(
    z: Tensor | PITCounts,
    *,
    level: float = BAND_LEVEL,
    levels: int = LEVELS,
    dependence: DependentRows | None = None,
) -> list[DeviationShape]:
    """How the reliability curve of each component of PITs `(N, J)`, or of counts, deviates."""
    curve = curve_of(z, levels=levels)
    return deviation_shapes(curve, band_of(z, dependence, level=level, levels=levels))


def evidence_of(
    findings: Sequence[Finding],
    pits: Mapping[str, Tensor],
    *,
    model: int = 0,
    levels: int = LEVELS,
    dependence: DependentRows | None = None,
    counts: Mapping[str, PITCounts] | None = None,
) -> list[Evidence]:
    """Evidence on each pre-rank of one predictor, with the shapes of its components.

    Args:
        findings: of all pre-ranks.
        pits: PITs of each pre-rank by label, `(..., N, J)`.
        model: which predictor of a stack.
        levels: number of levels of the curves.
        dependence: which rows depend on each other.
        counts: of all PITs of each pre-rank by label, where `pits` has some of them.
    """
    evidence = []
    failing = any(f.model == model and f.p_holm < SIGNIFICANCE for f in findings)
    every = sum(z.shape[-1] for z in pits.values())
    for label, z in pits.items():
        whole, *components = (f for f in findings if f.prerank == label and f.model == model)
        every_row, least = components or [whole], 0.0
        kept = [j for j, row in enumerate(every_row) if row.n != 0]
        rows = [every_row[j] for j in kept]
        if not rows:  # no row of a group has what this pre-rank needs
            continue
        shapes: Sequence[DeviationShape | None] = [None] * len(rows)
        if whole.method != WEIGHTED:  # whose PITs are not exactly uniform: they have no band
            every_pit = (counts or {}).get(label, z.reshape(-1, *z.shape[-2:])[model])
            own = components_of(every_pit, kept)
            if failing:
                worst = max(range(len(rows)), key=lambda j: rows[j].pce)
                least = _lower_limit(own, worst, dependence, levels, 1 - (1 - BAND_LEVEL) / every)
            shapes = curve_shapes(own, levels=levels, dependence=dependence)
        parts = tuple(
            Part(row.component if components else label, row.pce, row.p_value, shape)
            for row, shape in zip(rows, shapes, strict=True)
        )
        tied = [row.component for row in rows if row.ties >= POWERLESS_TIES]
        note = f"no power in {', '.join(tied)}, whose samples tie with the observation"
        note = whole.note or (note if tied else "")
        powerless = whole.ties >= POWERLESS_TIES
        evidence.append(
            Evidence(label, whole.pce, whole.floor, whole.p_holm, parts, note, powerless, least)
        )
    return evidence


def _lower_limit(
    z: Tensor | PITCounts, j: int, dependence: DependentRows | None, levels: int, level: float
) -> float:
    """Lower limit of the true error of component j."""
    own, depend = components_of(z, [j]), dependence
    if isinstance(own, Tensor):
        own, depend = without_gaps(own, dependence)
    if depend is None:
        return float(limits_of(own, levels=levels, level=level).lower)
    return float(dependent_limits(own, depend, levels=levels, level=level)[1].lower)
