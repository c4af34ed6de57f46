"""What a diagnosis found, as a table, as pictures, in words and as a page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.calibration import (
    DeviationShape,
    ReliabilityCurve,
    reliability_band,
    reliability_curve,
)
from prerank.calibration.evidence import Evidence, Part
from prerank.diagnosis.verdict import Verdict, reach_verdict
from prerank.pits.ranks import WEIGHTED
from prerank.report import ReliabilityDisplay, ReliabilityGrid
from prerank.report.table_text import p_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["ALL", "POWERLESS_TIES", "Diagnosis", "Finding"]

ALL = "all"
"""Component of the row that stands for a whole pre-rank."""

POWERLESS_TIES = 0.9
"""Share of the samples that tie with the observation, from which on there is nothing to see."""


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


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    Attributes:
        findings: the rows of the table.
        pits: PITs of each pre-rank by label, `(..., N, J)`.
        skipped: label and reason of each pre-rank that does not apply.
        levels: number of levels of PCE and curves.
        remarks: what else was noticed and can be done, in sentences.
        tests: over how many p-values `p_holm` is corrected; None for those of the pre-ranks.
    """

    findings: tuple[Finding, ...]
    pits: dict[str, Tensor]
    skipped: dict[str, str]
    levels: int = 100
    remarks: tuple[str, ...] = ()
    tests: int | None = None

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row per pre-rank (component `"all"`), and one per component where there are several.

        Columns: `prerank`, `component`, `pce`, `floor` (its expectation for a perfect predictor),
        `excess` (pce - floor), `p_value`, `p_holm` (corrected over the pre-ranks; only in their
        rows), `ties` (fraction of samples that tie with the observation), `method`, `note`. For a
        stack of predictors a first column `model` numbers them, and Holm is applied within each.
        """
        import pandas as pd

        table = pd.DataFrame([asdict(finding) for finding in self.findings])
        return table if table["model"].any() else table.drop(columns="model")

    @cached_property
    def curves(self) -> dict[str, ReliabilityCurve]:
        """Reliability curve of each pre-rank by label."""
        return {label: reliability_curve(z, levels=self.levels) for label, z in self.pits.items()}

    def displays(self, *, model: int = 0, level: float = 0.95) -> list[ReliabilityDisplay]:
        """Reliability diagrams of one predictor, one for each pre-rank, not yet drawn.

        Args:
            model: which one, of a stack of predictors.
            level: probability of the band; weighted samples have none.
        """
        found = []
        for label, curve in self.curves.items():
            observed = curve.observed.reshape(-1, *curve.observed.shape[-2:])[model]
            rows = [f for f in self.findings if f.prerank == label and f.model == model]
            names = [row.component for row in rows if row.component != ALL] or [label]
            band = None
            if rows[0].method != WEIGHTED:
                n = self.pits[label].shape[-2]
                band = reliability_band(n, level=level, levels=self.levels)
            found.append(
                ReliabilityDisplay(
                    ReliabilityCurve(curve.levels, observed), band, label=label, names=names
                )
            )
        return found

    def plot(
        self, figure: "Figure | SubFigure | None" = None, *, level: float = 0.95
    ) -> ReliabilityGrid:
        """Draw the reliability diagrams, a column for each pre-rank, a row for each predictor.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of what comes back.
            level: probability of the bands.
        """
        models = sorted({finding.model for finding in self.findings})
        rows = {
            f"model {model}" if len(models) > 1 else "": self.displays(model=model, level=level)
            for model in models
        }
        return ReliabilityGrid(rows).plot(figure)

    def verdict(self, *, model: int = 0) -> Verdict:
        """What is wrong, in words, and what to try.

        Args:
            model: which one, of a stack of predictors.
        """
        if model not in self._verdicts:
            self._verdicts[model] = self._verdict(model)
        return self._verdicts[model]

    @cached_property
    def _verdicts(self) -> dict[int, Verdict]:
        """Those that were asked for."""
        return {}

    def _verdict(self, model: int) -> Verdict:
        found = []
        for display in self.displays(model=model):
            rows = [f for f in self.findings if f.prerank == display.label and f.model == model]
            overall = next(row for row in rows if row.component == ALL)
            components = [row for row in rows if row.component != ALL] or [overall]
            shapes: Sequence[DeviationShape | None] = display.shapes or [None] * len(components)
            parts = [
                Part(name, row.pce, row.p_value, shape)
                for name, row, shape in zip(display.names, components, shapes, strict=True)
            ]
            found.append(
                Evidence(
                    label=display.label,
                    pce=overall.pce,
                    floor=overall.floor,
                    p_holm=overall.p_holm,
                    parts=tuple(parts),
                    note=overall.note or _tied(components),
                    powerless=overall.ties >= POWERLESS_TIES,
                )
            )
        return reach_verdict(found, n=self.n, remarks=self.remarks, tests=self.tests)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(next(iter(self.pits.values())).shape[-2])

    def to_html(
        self, path: str | PathLike[str], *, title: str = "Calibration report", **options: Any
    ) -> Path:
        """Write one page that needs nothing else: verdict, table, pictures, settings.

        Args:
            path: of the file.
            title: of the page; a stack of predictors has none.
            options: see `prerank.diagnosis.diagnosis_page.diagnosis_page`.
        """
        from prerank.diagnosis.diagnosis_page import diagnosis_page
        from prerank.report.html import write_page

        return write_page(diagnosis_page(self, title=title, **options), path)

    def __str__(self) -> str:
        """The table, what was skipped and what was noticed."""
        words = dict.fromkeys(("p_value", "p_holm"), p_text)
        table = self.table.to_string(
            index=False, float_format="{:.4f}".format, formatters=words, na_rep=""
        )
        lines = [table]
        lines += [f"skipped {label}: {reason}" for label, reason in self.skipped.items()]
        lines += self.remarks
        return "\n".join(lines)


def _tied(components: Sequence[Finding]) -> str:
    """Which components cannot be judged."""
    names = [row.component for row in components if row.ties >= POWERLESS_TIES]
    return (
        f"no power in {', '.join(names)}, whose samples tie with the observation" if names else ""
    )
