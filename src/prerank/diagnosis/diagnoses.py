"""Diagnoses of one or several predictors, and of groups of rows: tables, words, pictures, pages."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.calibration import ReliabilityCurve, pce_floor
from prerank.calibration.causes import MARGINAL, Causes
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.evidence import ALL, Finding, curve_band, evidence_of
from prerank.calibration.gaps import curve_of
from prerank.calibration.serial_correlation import SerialCorrelation
from prerank.defaults import BAND_LEVEL, LEVELS, UNITS
from prerank.diagnosis.absences import absence_words
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.diagnosis.equivalence import Equivalence, equivalence_of
from prerank.diagnosis.verdict import Verdict, reach_verdict, target_words
from prerank.extras import needed_by
from prerank.pits.ranks import WEIGHTED
from prerank.report import ReliabilityDisplay, ReliabilityGrid
from prerank.report.html import write_page
from prerank.report.wording import aligned_lines, listed, p_text

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
        pits: PITs of each pre-rank by label, `(..., N, J)`, NaN where values were missing.
        skipped: label and reason of each pre-rank that does not apply.
        levels: number of levels of PCE and curves.
        common_remarks: what else was noticed of the forecast, in sentences.
        tests: over how many p-values `p_holm` is corrected; None for those of the pre-ranks.
        units: in which the targets were judged.
        dependence: which rows depend on each other; None where they are taken as independent.
        serials: the clearest correlation between neighbouring rows or times, where there is
            evidence, by the number of the predictor.
        causes: of failures, by the number of the predictor.
    """

    findings: tuple[Finding, ...]
    pits: dict[str, Tensor]
    skipped: dict[str, str]
    levels: int = LEVELS
    common_remarks: tuple[str, ...] = ()
    tests: int | None = None
    units: str = UNITS
    dependence: DependentRows | None = None
    serials: dict[int, SerialCorrelation] = field(default_factory=dict)
    causes: dict[int, Causes] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(next(iter(self.pits.values())).shape[-2])

    @property
    def serial(self) -> SerialCorrelation | None:
        """The clearest serial correlation, if any; of a stack, that of the first predictor."""
        return self.serials.get(0)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was noticed and can be done, in sentences; of a stack, for the first predictor."""
        return self._remarks(0)

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
        rows), `ties` (fraction of samples that tie with the observation), `method`, `note`, `lower`
        and `upper` (limits of the true error, each at 95 %). For a stack of
        predictors a first column `model` numbers them, and Holm is applied within each. Where
        values are missing, a last column `n` has the number of rows that were used.
        """
        import pandas as pd

        return pd.DataFrame(self.records())

    def records(self) -> list[dict[str, object]]:
        """The rows of the table by the names of its columns."""
        records = [asdict(finding) for finding in self.findings]
        if len(self._models) == 1:
            for record in records:
                del record["model"]
        whole = all(finding.n is None for finding in self.findings)
        for record in records:
            n = record.pop("n")
            if not whole:
                record["n"] = self.n if n is None else n
        return records

    @cached_property
    def curves(self) -> dict[str, ReliabilityCurve]:
        """Reliability curve of each pre-rank by label."""
        return {label: curve_of(z, levels=self.levels) for label, z in self.pits.items()}

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
                z = self.pits[label]
                own = z.reshape(-1, *z.shape[-2:])[model]
                band = curve_band(own, self.dependence, level=level, levels=self.levels)
            names = [part.component for part in parts] or [label]
            causes = self.causes.get(model)
            found = target_words(causes) if causes and label == MARGINAL else ()
            displays.append(ReliabilityDisplay(curve, band, label=label, names=names, causes=found))
        return displays

    def within(self, tolerance: float, *, model: int = 0) -> Equivalence:
        """Whether the true error of every row of the table is at most a tolerance, at 95 %.

        Args:
            tolerance: such as 0.03.
            model: which one, of a stack of predictors.
        """
        return equivalence_of([f for f in self.findings if f.model == model], tolerance)

    def verdict(self, *, model: int = 0, within: float | None = None) -> Verdict:
        """What is wrong, in words, and what to try.

        Args:
            model: which one, of a stack of predictors.
            within: say also whether the forecast is calibrated to within this error.
        """
        if model not in self._verdicts:
            evidence = evidence_of(
                self.findings,
                self.pits,
                model=model,
                levels=self.levels,
                dependence=self.dependence,
            )
            verdict = reach_verdict(
                evidence,
                n=self.n,
                remarks=self._remarks(model),
                tests=self.tests,
                units=self.units,
                effective_n=self._effective_n(model),
                degrees=None if self.dependence is None else self.dependence.degrees,
                causes=self.causes.get(model),
            )
            self._verdicts[model] = replace(
                verdict, points=(*verdict.points, *self._row_points(model))
            )
        verdict = self._verdicts[model]
        return verdict if within is None else _extended(verdict, self.within(within, model=model))

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
    def to_html(
        self, path: str | PathLike[str], *, within: float | None = None, **options: Any
    ) -> Path:
        """Write one page that needs nothing else: verdict, table, pictures, settings.

        Args:
            path: of the file.
            within: as for `verdict`.
            options: `title` of the page, and others of
                `prerank.diagnosis.diagnosis_page.diagnosis_page`; a stack of predictors has none.
        """
        options = {"verdict": self.verdict(within=within)} | options
        return write_page(diagnosis_page(self, **options), path)

    def _effective_n(self, model: int) -> int | None:
        """Number of independent rows with the same mean floor.

        None where rows are independent and have all values.
        """
        rows = [f for f in self.findings if f.model == model and f.n != 0]
        if self.dependence is None and all(f.n is None for f in rows):
            return None
        floors = [f.floor for f in rows]
        ratio = pce_floor(self.n, levels=self.levels) * len(floors) / sum(floors)
        return max(1, min(self.n, round(self.n * ratio**2)))

    def _remarks(self, model: int) -> tuple[str, ...]:
        if self.dependence is not None or model not in self.serials:
            return self.common_remarks
        remark = (
            f"PITs of neighbouring rows are correlated ({self._serial_words(model)}): rows depend "
            "on each other, or the calibration changes along them, and p-values of independent "
            "rows are then too small. Pass time= (--time) or cluster= (--cluster)."
        )
        return (*self.common_remarks, remark)

    def _row_points(self, model: int) -> list[str]:
        """What is missing in the rows, was assumed of them, and what their order shows."""
        own = [f for f in self.findings if f.model == model]
        points = [words for words in [absence_words(own, self.n)] if words is not None]
        if self.dependence is None:
            return points
        points.append(f"Assumed: {self.dependence.assumption}.")
        if model in self.serials:
            points.append(
                f"Errors of consecutive forecasts are correlated ({self._serial_words(model)}). "
                "One-step forecasts could be improved by using the last observation."
            )
        return points

    def _serial_words(self, model: int) -> str:
        """Which PITs of neighbouring rows are correlated, and how much."""
        found = self.serials[model]
        rows = [f for f in self.findings if f.prerank == found.prerank and f.model == model]
        name = rows[1 + found.place].component if len(rows) > 1 else found.prerank
        where = name if name == found.prerank else f"{found.prerank} of {name}"
        p = p_text(found.p_value)
        proof = f"p {p[0]} {p[1:]}" if p.startswith("<") else f"p = {p}"
        return f"{where}, {found.correlation:.2f} at lag {found.lag}, corrected {proof}"

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

    def within(self, tolerance: float) -> Equivalence:
        """Whether the true error of all rows, and of those of every group, is at most a tolerance.

        Args:
            tolerance: such as 0.03.
        """
        every = (self.overall, *self.groups.values())
        return equivalence_of([f for one in every for f in one.findings], tolerance)

    def verdict(self, *, within: float | None = None) -> Verdict:
        """That of all rows, and how many groups are wrong: bad news where any of these is.

        Args:
            within: say also whether all groups are calibrated to within this error.
        """
        verdict = self._verdict()
        return verdict if within is None else _extended(verdict, self.within(within))

    def _verdict(self) -> Verdict:
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
    def to_html(
        self, path: str | PathLike[str], *, within: float | None = None, **options: Any
    ) -> Path:
        """Write the page of all rows, with a row of a table and a verdict for each group.

        Args:
            path: of the file.
            within: as for `verdict`.
            options: as for `Diagnosis.to_html`.
        """
        verdict = self.verdict(within=within)
        page = diagnosis_page(self.overall, verdict=verdict, groups=self.groups, **options)
        return write_page(page, path)


def _extended(verdict: Verdict, claim: Equivalence) -> Verdict:
    """A verdict with what is shown about a tolerance: the headline where nothing is wrong."""
    if claim.shown and verdict.status != "bad":
        points = (verdict.headline, *verdict.points)
        return replace(verdict, status="good", headline=str(claim), points=points)
    return replace(verdict, points=(*verdict.points, str(claim)))


def _table_lines(records: Sequence[dict[str, object]]) -> list[str]:
    rows = [list(records[0])]
    rows += [[_cell(name, value) for name, value in record.items()] for record in records]
    return aligned_lines(rows)


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    return p_text(value) if name.startswith("p_") else f"{value:.4f}"
