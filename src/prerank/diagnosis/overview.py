"""What a page says first: badges, and the figure of all errors before and after."""

import math
import statistics
from typing import TYPE_CHECKING

from prerank.calibration import pce_floor
from prerank.calibration.causes import Causes
from prerank.calibration.decision import DEGREES, detectable_excess, is_blunt
from prerank.calibration.error_table import ALL, POWERLESS_TIES, Finding
from prerank.diagnosis.verdict import Verdict
from prerank.report.error_plot import Badge, ErrorMark, ErrorPlot, ErrorRow
from prerank.report.explanations import explanation_of
from prerank.report.html import Illustration
from prerank.report.reliability import ReliabilityDisplay
from prerank.report.wording import p_phrase

if TYPE_CHECKING:
    from prerank.diagnosis.diagnoses import Diagnosis

__all__ = ["badges_of", "error_plot"]

_NOTHING, _FEW = "nothing found", "nothing found (few rows)"


def badges_of(findings: "Diagnosis", verdict: Verdict) -> tuple[Badge, ...]:
    """The status in words; where something fails, margins and dependence beside each other.

    A green tick needs rows enough to detect a strong error half of the time.

    Args:
        findings: of one predictor.
        verdict: of the page, which may be about groups of rows too.
    """
    own = findings.verdict()
    if verdict.status != own.status:  # groups fail, or a tolerance is shown
        words = {"bad": "Problem within groups", "good": "Within the tolerance"}
        return (Badge(verdict.status, words.get(verdict.status, "Unclear")),)
    if verdict.status == "bad":
        causes = findings.causes.get(0)
        places = () if causes is None else _places(causes, few=is_blunt(_detectable(findings)))
        return (Badge("bad", "Problem"), *places)
    tested = any(not math.isnan(row.p_holm) for row in findings.by_prerank.values())
    if verdict.status == "unclear" and not (tested and is_blunt(_detectable(findings))):
        return (Badge("unclear", "No verdict"),)
    return (_passed(few=verdict.status == "unclear", start=""),)


def _places(causes: Causes, *, few: bool) -> tuple[Badge, ...]:
    wrong = bool(causes.targets or causes.shared)
    name = "Margins" if len(causes.names) > 1 else "Margin"
    margins = Badge("bad", f"{name}: wrong") if wrong else _passed(few=few, start=name)
    if len(causes.names) == 1:
        return (margins,)
    if causes.dependence is None:
        return margins, Badge("unclear", "Dependence: not tested")
    if causes.dependent is not None:
        return margins, Badge("bad", "Dependence: wrong")
    return margins, _passed(few=few, start="Dependence")


def _passed(*, few: bool, start: str) -> Badge:
    words = _FEW if few else _NOTHING
    words = f"{start}: {words}" if start else words.capitalize()
    return Badge("unclear" if few else "good", words)


def error_plot(
    findings: "Diagnosis", before: "Diagnosis | None" = None, change: str = ""
) -> ErrorPlot:
    """All excesses with limits, those that fail first, and the curves of the largest one.

    Args:
        findings: of one predictor.
        before: of the same rows and pre-ranks, by the predictor before a change.
        change: what the predictor went through since then.
    """
    whole = {row.prerank: row for row in _with_values(findings)}
    parts = {
        label: [f for f in findings.findings if f.prerank == label and f.component != ALL]
        for label in whole
    }
    failing = findings.verdict().failing

    def size(label: str) -> tuple[bool, float]:
        rows = [whole[label], *parts[label]]
        return label in failing, max(row.excess for row in rows if not math.isnan(row.excess))

    order = sorted(whole, key=size, reverse=True)
    former = {} if before is None else before.by_prerank
    seen = _detectable(findings) / pce_floor(_independent_rows(findings), levels=findings.levels)
    rows = tuple(
        ErrorRow(
            label,
            explanation_of(label).question,
            _outcome(whole[label], label in failing, few=is_blunt(seen * whole[label].floor)),
            "" if math.isnan(whole[label].p_holm) else p_phrase(whole[label].p_holm),
            _mark(whole[label], parts[label]),
            _mark(former[label], []) if label in former else None,
        )
        for label in order
    )
    caption = (
        "Excess of each pre-rank, the error above that of a perfect predictor. The true error is "
        f"slight below {DEGREES['moderate']:g}, moderate from there and strong from "
        f"{DEGREES['strong']:g}; from {DEGREES['moderate']:g} on the scale is logarithmic."
    )
    worst = _curves(findings, before, order[0]) if order else None
    if before is None or not rows:
        return ErrorPlot(rows, caption, worst=worst)
    return ErrorPlot(rows, caption, _progress(findings, before, change), change, worst)


def _with_values(findings: "Diagnosis") -> list[Finding]:
    """Rows of whole pre-ranks, but of those for which all values are missing."""
    return [row for row in findings.by_prerank.values() if row.n != 0]


def _progress(findings: "Diagnosis", before: "Diagnosis", change: str) -> str:
    """Number of failures and mean excess, before and after."""
    (failed, old), (fail, new) = (
        (len(one.verdict().failing), statistics.fmean(row.excess for row in rows))
        for one, rows in ((one, _with_values(one)) for one in (before, findings))
    )
    return (
        f"Before {change}, {failed} of {len(_with_values(before))} pre-ranks failed, with a mean "
        f"excess of {old:.3f}. After it, {fail} of {len(_with_values(findings))}, with {new:.3f}."
    )


def _outcome(row: Finding, fails: bool, *, few: bool) -> Badge:
    if fails:
        return Badge("bad", "fails")
    if math.isnan(row.p_holm):
        return Badge("unclear", "not tested")
    if row.ties >= POWERLESS_TIES:
        return Badge("unclear", "no power: ties")
    return Badge("unclear", _FEW) if few else Badge("good", _NOTHING)


def _mark(row: Finding, parts: list[Finding]) -> ErrorMark:
    return ErrorMark(row.excess, row.lower, row.upper, tuple(part.excess for part in parts))


def _curves(findings: "Diagnosis", before: "Diagnosis | None", label: str) -> Illustration:
    """Reliability of one pre-rank, on top of the curves before."""
    from matplotlib.figure import Figure

    display = _display(findings, label)
    figure = Figure(figsize=(4, 4), layout="constrained")
    ax = figure.subplots()
    former = None if before is None or label not in before.pits else _display(before, label)
    if former is not None:
        curves = former.curve.observed[:, former.drawn].cpu().numpy()
        ax.plot(former.curve.levels.cpu().numpy(), curves, color="0.45", linewidth=1, dashes=(4, 2))
    display.plot(ax)
    words = "" if former is None else " Dashed grey: before."
    return Illustration(figure, display.caption + words, "Largest error")


def _display(findings: "Diagnosis", label: str) -> ReliabilityDisplay:
    return next(one for one in findings.displays() if one.label == label)


def _independent_rows(findings: "Diagnosis") -> int:
    return findings.effective_n() or findings.n


def _detectable(findings: "Diagnosis") -> float:
    """Excess of one component that would be detected half of the time."""
    tested = [row for row in findings.by_prerank.values() if not math.isnan(row.p_holm)]
    tests = findings.tests or max(1, len(tested))
    degrees = None if findings.dependence is None else findings.dependence.degrees
    return detectable_excess(_independent_rows(findings), tests, degrees)
