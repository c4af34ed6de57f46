"""The page of a diagnosis: verdict and its figure, and folded tables, pictures, settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from prerank.diagnosis.glossary import glossary
from prerank.diagnosis.overview import badges_of, error_plot
from prerank.diagnosis.verdict import Verdict
from prerank.errors import ShapeError
from prerank.files import versions
from prerank.report import (
    CornerDisplay,
    ReliabilityGrid,
    SelectionDisplay,
)
from prerank.report.drawing import Display, PITDisplay
from prerank.report.explanations import explanation_of, words_in
from prerank.report.html import Illustration, Page, Section
from prerank.report.wording import p_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from prerank.diagnosis.diagnoses import Diagnosis
    from prerank.diagnosis.regional_diagnosis import WhereDiagnosis
    from prerank.training import Selection

__all__ = ["diagnosis_page"]

_WORDS = words_in("prerank.diagnosis", "words.toml")
# What a phone shows of a table without scrolling comes first.
_FIRST = ["prerank", "component", "p_value", "p_holm", "excess", "lower", "upper", "pce", "floor"]


def diagnosis_page(
    findings: "Diagnosis",
    *,
    title: str = "Calibration report",
    verdict: Verdict | None = None,
    groups: "Mapping[str, Diagnosis] | None" = None,
    before: "Diagnosis | None" = None,
    change: str = "the penalty",
    selection: "Selection | None" = None,
    examples: Sequence[CornerDisplay] = (),
    where: "WhereDiagnosis | None" = None,
    settings: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Page:
    """Put together what `Diagnosis.to_html` writes.

    Args:
        findings: of one predictor.
        title: of the page.
        verdict: on top of the page; that of the findings by default.
        groups: findings within groups of rows; each gets a row of a table, and its own verdict.
        before: of the same rows and pre-ranks, by the predictor before the change.
        change: what the predictor went through since then.
        selection: how the strength was chosen.
        examples: single predictions with their observations.
        where: regions of the inputs; they get a section of their own.
        settings: what else to state at the end, beside numbers of rows and versions.
        notes: what to add below the verdict.
    """
    if any(finding.model for finding in findings.findings):
        raise ShapeError("a page shows one predictor: diagnose the members of a stack one by one")
    verdict = verdict or findings.verdict()
    sections = _sections(findings, before, change, groups, selection, examples, where)
    return Page(
        title=title,
        headline=verdict.headline,
        mood=verdict.status,
        points=(*verdict.points, *notes),
        advice=verdict.advice,
        sections=tuple(replace(section, folded=True) for section in sections),
        settings={"rows": f"{findings.n:,}", **(settings or {}), **versions()},
        badges=badges_of(findings, verdict),
        overview=error_plot(findings, before, change),
    )


def _sections(
    findings: "Diagnosis",
    before: "Diagnosis | None",
    change: str,
    groups: "Mapping[str, Diagnosis] | None",
    selection: "Selection | None",
    examples: Sequence[CornerDisplay],
    where: "WhereDiagnosis | None",
) -> Iterator[Section]:
    skipped = tuple(f"Skipped {label}: {reason}" for label, reason in findings.skipped.items())
    table = findings.table.drop(columns=[] if findings.table.note.any() else ["note"])
    table = table[[*_FIRST, *(name for name in table if name not in _FIRST)]]
    legend = _WORDS["legend"] | (_WORDS["legend_of_groups"] if groups else {})
    yield Section("Errors and evidence", skipped, table, legend)
    yield Section("What the words of the verdict mean", legend=glossary())
    if before is not None:
        yield _comparison(before, findings, change)
    if groups is not None:
        headlines = tuple(f"{name}: {one.verdict().headline}" for name, one in groups.items())
        wrong = sum(one.verdict().status == "bad" for one in groups.values())
        gist = f"evidence of miscalibration in {wrong} of {len(groups)}"
        yield Section("Within groups", headlines, _group_table(groups), legend, gist=gist)
    if where is not None:
        yield _places(where)
    yield _reliability(findings, before, change)
    yield _histograms(findings)
    if selection is not None:
        tried = selection.table
        tried.insert(1, "chosen", tried.pop("chosen"))
        yield Section(
            "Selection of the strength",
            table=tried,
            legend=_WORDS["legend_of_selection"],
            illustrations=(_drawn(SelectionDisplay(selection), "Strengths that were tried"),),
        )
    if examples:
        shown = tuple(_drawn(one, f"Example {k + 1}") for k, one in enumerate(examples))
        yield Section("Single predictions", illustrations=shown)
    words = {label: explanation_of(label) for label in findings.pits}
    questions = tuple(
        f"{label}: {one.question} {one.formula}. Blind to {one.blind}."
        for label, one in words.items()
    )
    yield Section("What the pre-ranks ask", questions)


def _places(where: "WhereDiagnosis") -> Section:
    """Regions of the inputs in which calibration differs, each with a picture."""
    table = where.regions.drop(columns=["prerank"]) if where.search.regions else None
    return Section(
        "Where in the data",
        (where.headline, *where.points),
        table,
        _WORDS["legend_of_regions"] if table is not None else {},
        tuple(_drawn(one, f"Region {k + 1}") for k, one in enumerate(where.displays())),
        gist=where.headline,
    )


def _comparison(before: "Diagnosis", after: "Diagnosis", change: str) -> Section:
    import pandas as pd

    columns = {"before": before.by_prerank, "after": after.by_prerank}
    rows = [
        {"prerank": label}
        | {name: rows[label].excess for name, rows in columns.items()}
        | {f"p_{name}": rows[label].p_holm for name, rows in columns.items()}
        for label in before.by_prerank
        if label in after.by_prerank
    ]
    legend = _WORDS["legend_of_comparison"]
    return Section(f"Before and after {change}", table=pd.DataFrame(rows), legend=legend)


def _group_table(groups: "Mapping[str, Diagnosis]") -> "pd.DataFrame":
    import pandas as pd

    columns = ["prerank", "pce", "floor", "excess", "p_holm"]
    return pd.DataFrame(
        [
            {"group": name, "n": one.n} | {column: getattr(row, column) for column in columns}
            for name, one in groups.items()
            for row in one.by_prerank.values()
        ]
    )


def _reliability(findings: "Diagnosis", before: "Diagnosis | None", change: str) -> Section:
    """A picture for each pre-rank, before above after: several beside each other where they fit."""
    shown = []
    others = [None] * len(findings.pits) if before is None else before.displays()
    for display, former in zip(findings.displays(), others, strict=True):
        rows = {"": [display]} if former is None else {"before": [former], "after": [display]}
        grid = ReliabilityGrid(rows)
        figure = _figure(grid.size)
        grid.plot(figure)
        caption = display.caption + _doubt(findings, display)
        if former is not None:
            caption = f"After {change}, {caption} Before, {former.caption}"
        shown.append(Illustration(figure, caption))
    words = "The share of PITs up to each level: the diagonal is right, the band is chance."
    return Section("Reliability", (words,), illustrations=tuple(shown))


def _histograms(findings: "Diagnosis") -> Section:
    shown = []
    for histogram in findings.histograms():
        drawn = _drawn(histogram, "")
        shown.append(replace(drawn, caption=drawn.caption + _doubt(findings, histogram)))
    return Section("PIT histograms", illustrations=tuple(shown))


def _doubt(findings: "Diagnosis", display: PITDisplay) -> str:
    """What to add where a picture leaves its band and the verdict finds no evidence in it."""
    label = display.label
    outside = any(shape.outside for shape in display.shapes)
    if not outside or label in findings.verdict().failing:
        return ""
    p = p_text(findings.by_prerank[label].p_holm)
    return f" This may be chance: the corrected p-value of {label} is {p}."


def _drawn(display: Display, title: str) -> Illustration:
    """A display on a figure that belongs to no window."""
    figure = _figure(display.size)
    display.plot(figure.subplots())
    return Illustration(figure, display.caption, title)


def _figure(size: tuple[float, float]) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")
