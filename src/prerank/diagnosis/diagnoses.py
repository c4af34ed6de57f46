"""Diagnoses of one or several predictors, and of groups of rows: tables, words, pictures, pages."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.calibration import ReliabilityCurve, reliability_band, reliability_curve
from prerank.calibration.causes import Causes
from prerank.calibration.evidence import ALL, Finding, evidence_of
from prerank.defaults import BAND_LEVEL, LEVELS, UNITS
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.diagnosis.verdict import Verdict, reach_verdict
from prerank.extras import needed_by
from prerank.pits.ranks import WEIGHTED
from prerank.report import ReliabilityDisplay, ReliabilityGrid
from prerank.report.html import write_page
from prerank.report.wording import listed, p_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Diagnosis", "GroupedDiagnosis"]

_NAMED_GROUPS = 3


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` returns: findings with a verdict, a table, pictures and a page.

    `print` shows the verdict and the table; neither needs pandas or matplotlib.

    Attributes:
        findings: the rows of the table.
        pits: PITs of each pre-rank by label, `(..., N, J)`.
        skipped: label and reason of each pre-rank that does not apply.
        levels: number of levels of PCE and curves.
        remarks: what else was noticed and can be done, in sentences.
        tests: over how many p-values `p_holm` is corrected; None for those of the pre-ranks.
        units: in which the targets were judged.
        causes: of failures, by the number of the predictor.
    """

    findings: tuple[Finding, ...]
    pits: dict[str, Tensor]
    skipped: dict[str, str]
    levels: int = LEVELS
    remarks: tuple[str, ...] = ()
    tests: int | None = None
    units: str = UNITS
    causes: dict[int, Causes] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(next(iter(self.pits.values())).shape[-2])

    @property
    def by_prerank(self) -> dict[str, Finding]:
        """The row of each pre-rank by label; of a stack, those of the first predictor."""
        return {
            row.prerank: row for row in self.findings if row.component == ALL and row.model == 0
        }

    @cached_property
    @needed_by("Diagnosis.table")
    def table(self) -> "pd.DataFrame":
        """One row per pre-rank (component `"all"`), and one per component where there are several.

        Columns: `prerank`, `component`, `pce`, `floor` (its expectation for a perfect predictor),
        `excess` (pce - floor), `p_value`, `p_holm` (corrected over the pre-ranks; only in their
        rows), `ties` (fraction of samples that tie with the observation), `method`, `note`. For a
        stack of predictors a first column `model` numbers them, and Holm is applied within each.
        """
        import pandas as pd

        return pd.DataFrame(self.records())

    def records(self) -> list[dict[str, object]]:
        """The rows of the table by the names of its columns."""
        records = [asdict(finding) for finding in self.findings]
        if len(self._models) == 1:
            for record in records:
                del record["model"]
        return records

    @cached_property
    def curves(self) -> dict[str, ReliabilityCurve]:
        """Reliability curve of each pre-rank by label."""
        return {label: reliability_curve(z, levels=self.levels) for label, z in self.pits.items()}

    def displays(self, *, model: int = 0, level: float = BAND_LEVEL) -> list[ReliabilityDisplay]:
        """Reliability diagrams of one predictor, one for each pre-rank, not yet drawn.

        Args:
            model: which one, of a stack of predictors.
            level: probability of the band; weighted samples have none.
        """
        displays = []
        for label, (levels, observed) in self.curves.items():
            curve = ReliabilityCurve(levels, observed.reshape(-1, *observed.shape[-2:])[model])
            whole, *parts = (f for f in self.findings if f.prerank == label and f.model == model)
            band = None
            if whole.method != WEIGHTED:
                band = reliability_band(self.n, level=level, levels=self.levels)
            names = [part.component for part in parts] or [label]
            displays.append(ReliabilityDisplay(curve, band, label=label, names=names))
        return displays

    def verdict(self, *, model: int = 0) -> Verdict:
        """What is wrong, in words, and what to try.

        Args:
            model: which one, of a stack of predictors.
        """
        if model not in self._verdicts:
            evidence = evidence_of(self.findings, self.pits, model=model, levels=self.levels)
            self._verdicts[model] = reach_verdict(
                evidence,
                n=self.n,
                remarks=self.remarks,
                tests=self.tests,
                units=self.units,
                causes=self.causes.get(model),
            )
        return self._verdicts[model]

    @needed_by("Diagnosis.plot")
    def plot(
        self, figure: "Figure | SubFigure | None" = None, *, level: float = BAND_LEVEL
    ) -> ReliabilityGrid:
        """Draw the reliability diagrams, a column for each pre-rank, a row for each predictor.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of the result.
            level: probability of the bands.
        """
        several = len(self._models) > 1
        rows = {
            f"model {model}" if several else "": self.displays(model=model, level=level)
            for model in self._models
        }
        return ReliabilityGrid(rows).plot(figure)

    @needed_by("Diagnosis.to_html")
    def to_html(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write one page that needs nothing else: verdict, table, pictures, settings.

        Args:
            path: of the file.
            options: `title` of the page, and others of
                `prerank.diagnosis.diagnosis_page.diagnosis_page`; a stack of predictors has none.
        """
        return write_page(diagnosis_page(self, **options), path)

    @cached_property
    def _verdicts(self) -> dict[int, Verdict]:
        """Those that were asked for."""
        return {}

    @cached_property
    def _models(self) -> list[int]:
        return sorted({finding.model for finding in self.findings})

    def __str__(self) -> str:
        """The verdict, the table, and what was skipped."""
        several = len(self._models) > 1
        lines = [
            f"model {model}: {self.verdict(model=model)}" if several else str(self.verdict())
            for model in self._models
        ]
        lines += ["", *_table_lines(self.records())]
        lines += [f"skipped {label}: {reason}" for label, reason in self.skipped.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class GroupedDiagnosis:
    """What `diagnose_by` returns.

    Attributes:
        overall: of all rows.
        groups: of the rows of each group, by its name.

    In both, `p_holm` is corrected over all pre-ranks of all groups and of the whole.
    """

    overall: Diagnosis
    groups: dict[str, Diagnosis]

    @cached_property
    @needed_by("GroupedDiagnosis.table")
    def table(self) -> "pd.DataFrame":
        """The tables of the groups, with a first column `group` and a second `n`, their rows."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"group": name, "n": group.n, **record}
                for name, group in self.groups.items()
                for record in group.records()
            ]
        )

    def verdict(self) -> Verdict:
        """That of all rows, and how many groups are wrong: bad news where any of these is."""
        whole = self.overall.verdict()
        wrong = [name for name, one in self.groups.items() if one.verdict().status == "bad"]
        point = f"Within groups: evidence of miscalibration in {len(wrong)} of {len(self.groups)}."
        verdict = replace(whole, points=(point, *whole.points))
        if not wrong or whole.status == "bad":
            return verdict
        named = listed(wrong) if len(wrong) <= _NAMED_GROUPS else f"{len(wrong)} groups"
        headline = f"Evidence of miscalibration within {named}, though not over all rows."
        return replace(verdict, status="bad", headline=headline)

    @needed_by("GroupedDiagnosis.to_html")
    def to_html(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the page of all rows, with a row of a table and a verdict for each group.

        Args:
            path: of the file.
            options: as for `Diagnosis.to_html`.
        """
        page = diagnosis_page(self.overall, verdict=self.verdict(), groups=self.groups, **options)
        return write_page(page, path)


def _table_lines(records: Sequence[dict[str, object]]) -> list[str]:
    rows = [list(records[0])]
    rows += [[_cell(name, value) for name, value in record.items()] for record in records]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    return p_text(value) if name.startswith("p_") else f"{value:.4f}"
