"""Diagnoses of one or several predictors: tables, words, pictures, pages."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.calibration import ReliabilityCurve, default_bins, pce_floor
from prerank.calibration.causes import MARGINAL, Causes
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.error_table import ALL, Finding
from prerank.calibration.evidence import evidence_of
from prerank.calibration.gaps import (
    band_of,
    curve_of,
    fewest_pits,
    histogram_band_of,
    histogram_of,
    period_means_of,
)
from prerank.calibration.periods import periods_of
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.serial_correlation import SerialCorrelation
from prerank.coordinates import quoted
from prerank.defaults import BAND_LEVEL, LEVELS, UNITS
from prerank.diagnosis.absences import absence_words
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.diagnosis.equivalence import Equivalence, equivalence_of, with_claim
from prerank.diagnosis.verdict import Verdict, reach_verdict, target_words
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.inputs import as_count
from prerank.pits.ranks import WEIGHTED
from prerank.report import (
    PITHistogramDisplay,
    ReliabilityDisplay,
    ReliabilityGrid,
    TimelineDisplay,
)
from prerank.report.html import write_page
from prerank.report.wording import aligned_lines, p_phrase, p_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Diagnosis", "label_among"]


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` returns: findings with a verdict, a table, pictures and a page.

    `print` shows the verdict and the table; neither needs pandas or matplotlib.

    Attributes:
        findings: the rows of the table.
        pits: PITs of each pre-rank by label, `(..., N, J)`, NaN where values were missing; of some
            rows where there are too many to hold, see `kept`.
        skipped: label and reason of each pre-rank that does not apply.
        levels: number of levels of PCE and curves.
        common_remarks: what else was noticed of the forecast, in sentences.
        tests: over how many p-values `p_holm` is corrected; None for those of the pre-ranks.
        units: in which the targets were judged.
        dependence: which rows depend on each other; None where they are taken as independent.
        serials: the clearest correlation between neighbouring rows or times, where there is
            evidence, by the number of the predictor.
        causes: of failures, by the number of the predictor.
        counts: of the PITs of all rows by label, where these are too many to hold.
        kept: numbers of the rows whose PITs are in `pits` then, `(n,)`; None for all.
        ensemble: whether the forecast is an `Ensemble`, which is repaired and not trained.
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
    counts: dict[str, PITCounts] = field(default_factory=dict)
    kept: Tensor | None = None
    ensemble: bool = False

    @property
    def n(self) -> int:
        """Number of rows."""
        if self.counts:
            return next(iter(self.counts.values())).rows
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
        every = self.pits | self.counts
        return {label: curve_of(z, levels=self.levels) for label, z in every.items()}

    def displays(self, *, model: int = 0, level: float = BAND_LEVEL) -> list[ReliabilityDisplay]:
        """Reliability diagrams of one predictor, one for each pre-rank, not yet drawn.

        Args:
            model: which one, of a stack of predictors.
            level: probability of the band; weighted samples have none.
        """
        self._check_model(model)
        displays = []
        for label, (levels, observed) in self.curves.items():
            curve = ReliabilityCurve(levels, observed.reshape(-1, *observed.shape[-2:])[model])
            whole, *parts = (f for f in self.findings if f.prerank == label and f.model == model)
            band = None
            if whole.method != WEIGHTED:
                own = self._pits_of(label, model)
                band = band_of(own, self.dependence, level=level, levels=self.levels)
            names = [part.component for part in parts] or [label]
            causes = self.causes.get(model)
            found = target_words(causes) if causes and label == MARGINAL else ()
            displays.append(ReliabilityDisplay(curve, band, label=label, names=names, causes=found))
        return displays

    def histograms(
        self, *, model: int = 0, level: float = BAND_LEVEL, bins: int | None = None
    ) -> list[PITHistogramDisplay]:
        """PIT histograms of one predictor, one for each pre-rank, not yet drawn.

        Args:
            model: which one, of a stack of predictors.
            level: probability of the band; weighted samples have none.
            bins: number of bins; 20 by default, or 10 where a component has fewer than 400 PITs.
        """
        histograms = []
        for curve in self.displays(model=model, level=level):
            own = self._pits_of(curve.label, model)
            count = default_bins(fewest_pits([own])) if bins is None else bins
            band = histogram_band_of(own, self.dependence, bins=count, level=level)
            histograms.append(
                PITHistogramDisplay(
                    histogram_of(own, bins=count),
                    None if curve.band is None else band,
                    label=curve.label,
                    names=curve.names,
                    curves=curve.shapes,
                    causes=curve.causes,
                )
            )
        return histograms

    def over_time(
        self,
        time: object,
        *,
        prerank: str | None = None,
        every: str | float = "month",
        model: int = 0,
        level: float = BAND_LEVEL,
    ) -> TimelineDisplay:
        """Bias and spread of the PITs of one pre-rank in each period, not yet drawn.

        Where the diagnosis was given `time` or `cluster`, the band allows for the dependence. Where
        values are missing, each component is judged by its own rows. Of more rows than can be
        held, those whose PITs are kept are shown.

        Args:
            time: of each row, `(N,)`: dates, also as text, or numbers.
            prerank: its label; by default the first one.
            every: length of a period: `"year"`, `"month"`, `"week"`, `"day"`, or a number in the
                unit of numeric times.
            model: which one, of a stack of predictors.
            level: probability of the band; weighted samples have none.
        """
        self._check_model(model)
        label = label_among(self.pits, prerank)
        z = self.pits[label].reshape(-1, *self.pits[label].shape[-2:])[model]
        whole, *parts = (f for f in self.findings if f.prerank == label and f.model == model)
        periods = periods_of(time, every, self.n)
        depend = self.dependence
        if self.kept is not None:
            places, codes = periods[1][self.kept].unique(return_inverse=True)
            periods = tuple(periods[0][k] for k in places.tolist()), codes
            depend = None if depend is None else depend.of_rows(self.kept)
        means = period_means_of(z, periods, depend, level=level)
        names = [part.component for part in parts] or [label]
        banded = whole.method != WEIGHTED
        return TimelineDisplay(means, label=label, names=names, band=banded)

    def effective_n(self, *, model: int = 0) -> int | None:
        """Number of independent rows with the same mean floor.

        None where rows are independent and have all values.

        Args:
            model: which predictor of a stack.
        """
        rows = [f for f in self.findings if f.model == model and f.n != 0]
        if self.dependence is None and all(f.n is None for f in rows):
            return None
        floors = [f.floor for f in rows]
        ratio = pce_floor(self.n, levels=self.levels) * len(floors) / sum(floors)
        return max(1, min(self.n, round(self.n * ratio**2)))

    def within(self, tolerance: float, *, model: int = 0) -> Equivalence:
        """Whether the true error of every row of the table is at most a tolerance, at 95 %.

        Args:
            tolerance: such as 0.03.
            model: which one, of a stack of predictors.
        """
        self._check_model(model)
        return equivalence_of([f for f in self.findings if f.model == model], tolerance)

    def verdict(self, *, model: int = 0, within: float | None = None) -> Verdict:
        """What is wrong, in words, and what to try.

        Args:
            model: which one, of a stack of predictors.
            within: say also whether the forecast is calibrated to within this error.
        """
        self._check_model(model)
        if model not in self._verdicts:
            evidence = evidence_of(
                self.findings,
                self.pits,
                model=model,
                levels=self.levels,
                dependence=self.dependence,
                counts=self.counts,
            )
            verdict = reach_verdict(
                evidence,
                n=self.n,
                remarks=self._remarks(model),
                tests=self.tests,
                units=self.units,
                effective_n=self.effective_n(model=model),
                degrees=None if self.dependence is None else self.dependence.degrees,
                causes=self.causes.get(model),
                ensemble=self.ensemble,
            )
            self._verdicts[model] = replace(
                verdict, points=(*verdict.points, *self._row_points(model))
            )
        verdict = self._verdicts[model]
        return verdict if within is None else with_claim(verdict, self.within(within, model=model))

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

    def _pits_of(self, label: str, model: int) -> Tensor | PITCounts:
        """PITs of one predictor, or the counts of all where these are not there."""
        if label in self.counts:
            return self.counts[label]
        z = self.pits[label]
        return z.reshape(-1, *z.shape[-2:])[model]

    def _check_model(self, model: object) -> None:
        as_count(model, "model", minimum=0, maximum=len(self._models) - 1)

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
        proof = p_phrase(found.p_value)
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


def label_among(labels: Iterable[str], prerank: str | None) -> str:
    """Label of a pre-rank that was diagnosed; the first one by default."""
    known = list(labels)
    if prerank is not None and prerank not in known:
        raise InputError(f"prerank {prerank!r} was not diagnosed: there are {quoted(known)}")
    return known[0] if prerank is None else prerank


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
