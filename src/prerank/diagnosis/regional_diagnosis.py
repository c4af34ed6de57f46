"""What a search of the inputs found: in words, as a table and in pictures."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prerank.calibration.axes import InputColumn
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.region_faults import RegionFault, region_faults
from prerank.calibration.regions import Region, RegionSearch, pit_scores
from prerank.calibration.shapes import DeviationShape
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.report.region_display import RegionDisplay
from prerank.report.wording import listed, p_phrase, shape_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["WhereDiagnosis"]


@dataclass(frozen=True, eq=False)
class WhereDiagnosis:
    """What `diagnose_where` returns; `print` shows it in words, without pandas or matplotlib.

    Attributes:
        search: the regions as data.
        pits: PITs of each pre-rank by label, `(N, J)`.
        inputs: that were searched.
        targets: names.
        dependence: which rows were taken to depend on each other; None where none were.
    """

    search: RegionSearch
    pits: dict[str, Tensor]
    inputs: tuple[InputColumn, ...]
    targets: tuple[str, ...]
    dependence: DependentRows | None = None

    @property
    def p_value(self) -> float:
        """That PITs are independent of the inputs, the search included."""
        return self.search.p_value

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.inputs[0].members)

    @property
    def weights(self) -> Tensor:
        """How much each row belongs to a region, from 0 to 1, `(N,)`.

        Without evidence, that to the region that stands out most: a number to sort rows by.
        """
        found = [region.weights for region in self._shown]
        return torch.stack(found).amax(0) if found else torch.zeros(self.n, dtype=torch.float64)

    @cached_property
    @needed_by("WhereDiagnosis.regions")
    def regions(self) -> "pd.DataFrame":
        """One row for each region and kind of fault; none where there is no evidence.

        Columns: `region`, `n` (its rows), `share` (of all rows), `fault` in words, `kind` (shift,
        spread, skew, tails, dependence), `prerank`, `component`, `inside` and `outside` (means of
        the score that shows it most: 0 where PITs are uniform), `p_value`.
        """
        import pandas as pd

        return pd.DataFrame(self.records(), columns=list(_COLUMNS))

    def records(self) -> list[dict[str, Any]]:
        """The rows of the table by the names of its columns."""
        rows = []
        for region in self.search.regions:
            for fault in self._faults(region):
                number = self._shown_score(region, fault)
                values = (
                    str(region),
                    len(region.rows),
                    len(region.rows) / self.n,
                    self._fault_words(fault),
                    fault.kind,
                    fault.prerank,
                    listed(self._names(fault)),
                    float(region.inside[number]),
                    float(region.outside[number]),
                    region.p_value,
                )
                rows.append(dict(zip(_COLUMNS, values, strict=True)))
        return rows

    @cached_property
    def faults(self) -> tuple[tuple[RegionFault, ...], ...]:
        """Kinds of fault of each region, as data."""
        return tuple(self._faults(region) for region in self.search.regions)

    @property
    def headline(self) -> str:
        """Whether calibration differs over the inputs, in one sentence."""
        p = p_phrase(self.p_value)
        if self.dependence is not None:
            p += {"time": ", whole times shifted", "cluster": ", whole clusters permuted"}[
                self.dependence.kind
            ]
        if self.search.candidate is None:
            return "No region of the inputs has enough rows to be judged."
        if not self.search.regions:
            return f"No evidence that calibration differs over the inputs ({p}, {self.n:,} rows)."
        return f"Calibration differs over the inputs ({p})."

    @property
    def points(self) -> tuple[str, ...]:
        """One sentence for each region."""
        return tuple(self._sentence(region) for region in self.search.regions)

    def displays(self) -> list[RegionDisplay]:
        """A picture of each region, not yet drawn; of what stands out most where there is none."""
        _, values = pit_scores(self.pits)
        shown = []
        for region in self._shown:
            fault = self._faults(region)[0]
            number = self._shown_score(region, fault)
            score = self.search.scores[number]
            names = {condition.name for condition in region.conditions}
            label = score.prerank
            if self.pits[label].shape[-1] > 1:
                part = self._component(label, score.component)
                label = part if label == "marginal" else f"{label} {part}"
            caption = self._sentence(region)
            if not self.search.regions:
                caption = f"No evidence; the largest difference is in {caption}"
            columns = [column for column in self.inputs if column.name in names]
            shown.append(RegionDisplay(region, columns, values[:, number], label, score, caption))
        return shown

    @needed_by("WhereDiagnosis.plot")
    def plot(self, figure: "Figure | SubFigure | None" = None) -> list[RegionDisplay]:
        """Draw each region among its inputs, side by side.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of each display.
        """
        displays = self.displays()
        if not displays:
            raise InputError("no region of the inputs has enough rows to be drawn")
        if figure is None:
            import matplotlib.pyplot as plt

            width, height = displays[0].size
            figure = plt.figure(figsize=(width * len(displays), height), layout="constrained")
        axes = figure.subplots(1, len(displays), squeeze=False)[0]
        return [display.plot(ax) for display, ax in zip(displays, axes, strict=True)]

    def __str__(self) -> str:
        """The headline, and one line for each region."""
        return "\n".join([self.headline, *(f"- {point}" for point in self.points)])

    @property
    def _shown(self) -> tuple[Region, ...]:
        candidate = self.search.candidate
        return self.search.regions or (() if candidate is None else (candidate,))

    def _faults(self, region: Region) -> tuple[RegionFault, ...]:
        return region_faults(region, self.search.scores)

    def _shown_score(self, region: Region, fault: RegionFault) -> int:
        """Number of the score that shows a fault most."""
        own = [
            number
            for number, score in enumerate(self.search.scores)
            if score.prerank == fault.prerank and score.component in fault.components
        ]
        degrees = _DEGREES.get(fault.kind, (1, 2))
        own = [k for k in own if self.search.scores[k].degree in degrees]
        return max(own, key=lambda number: abs(float(region.z[number])))

    def _component(self, label: str, number: int) -> str:
        return self.targets[number] if label == "marginal" else str(number + 1)

    def _names(self, fault: RegionFault) -> list[str]:
        return [self._component(fault.prerank, number) for number in fault.components]

    def _sentence(self, region: Region) -> str:
        share = f"{len(region.rows):,} rows, {100 * len(region.rows) / self.n:.1f} %"
        words = "; ".join(self._fault_words(fault) for fault in self._faults(region))
        return f"{region} ({share}): {words}."

    def _fault_words(self, fault: RegionFault) -> str:
        known = _WORDS | (_TARGET_WORDS if fault.prerank == "marginal" else {})
        words = known.get((fault.kind, fault.sign))
        if words is None:
            kinds = (fault.sign * (fault.kind == kind) for kind in ("shift", "spread"))
            words = shape_words(fault.prerank, DeviationShape(True, *kinds))
        several = self.pits[fault.prerank].shape[-1]
        if several > 1:
            everyone = fault.prerank == "marginal" and len(fault.components) == several
            place = "every target" if everyone else listed(self._names(fault))
            words += f" in {place}" if fault.prerank == "marginal" else f" (component {place})"
        if fault.prerank != "marginal":
            words += "; no target stands out on its own"
        if not fault.elsewhere:
            return words
        link = "where" if fault.kind == "dependence" else "which have"
        return f"better calibrated than the other rows, {link} {words}"


_COLUMNS = (
    "region",
    "n",
    "share",
    "fault",
    "kind",
    "prerank",
    "component",
    "inside",
    "outside",
    "p_value",
)
_TARGET_WORDS = {
    ("shift", 1): "observed values higher than predicted",
    ("shift", -1): "observed values lower than predicted",
    ("spread", 1): "predictions too narrow",
    ("spread", -1): "predictions too wide",
}
_DEGREES = {"shift": (1,), "spread": (2,), "skew": (3,), "tails": (4, 5)}
_WORDS = {
    ("skew", 1): "observed values more skewed to the right than predicted",
    ("skew", -1): "observed values more skewed to the left than predicted",
    ("tails", 1): "tails heavier than predicted",
    ("tails", -1): "tails lighter than predicted",
    ("dependence", 1): "targets move together more than predicted",
    ("dependence", -1): "targets move together less than predicted",
}
