"""The page of a diagnosis: verdict, table, pictures, settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from prerank.calibration import default_bins, histogram_band, pit_histogram
from prerank.diagnosis.findings import ALL, Diagnosis
from prerank.diagnosis.groups import GroupedDiagnosis
from prerank.errors import ShapeError
from prerank.files import versions
from prerank.report import (
    CornerDisplay,
    PITHistogramDisplay,
    ReliabilityDisplay,
    ReliabilityGrid,
    SelectionDisplay,
)
from prerank.report.explanations import explanation_of
from prerank.report.html import Illustration, Page, Section
from prerank.report.table_text import p_text
from prerank.training import Selection

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["LEGEND", "diagnosis_page"]

LEGEND = {
    "pce": "mean distance of the PITs' distribution from uniform",
    "floor": "what a perfect predictor scores on average with as many rows",
    "excess": "pce - floor",
    "p_value": "how often a perfect predictor would have as large an error",
    "p_holm": "the same, corrected for looking at several pre-ranks; small is evidence",
    "ties": "share of the samples that tie with the observation",
    "method": "closed form, or ranks among samples",
}
SELECTION_LEGEND = {
    "excess": "of the PCE, mean over the paired runs on validation rows",
    "excess_gain": "by how much it is smaller than at strength 0, with its standard error",
    "energy_ratio": "energy score against that at strength 0, with its standard error",
    "within_budget": "whether that is affordable",
    "improves": "whether the gain is more than noise",
    "chosen": "the strength of this model",
}
_OVER_GROUPS = {"p_holm": "corrected over all pre-ranks of all groups and of the whole"}
_SHOWN_COMPONENTS = 16


def diagnosis_page(
    found: Diagnosis | GroupedDiagnosis,
    *,
    title: str = "Calibration report",
    before: Diagnosis | None = None,
    selection: Selection | None = None,
    examples: Sequence[CornerDisplay] = (),
    settings: Mapping[str, str] | None = None,
) -> Page:
    """Put together what `Diagnosis.to_html` writes.

    Args:
        found: of one predictor; with groups, each gets a row of a table, and its own verdict.
        title: of the page.
        before: of the same rows and pre-ranks, by the predictor without a penalty.
        selection: how the strength was chosen.
        examples: single predictions with their observations.
        settings: what else to state at the end, beside numbers of rows and versions.
    """
    whole = found.overall if isinstance(found, GroupedDiagnosis) else found
    if any(finding.model for finding in whole.findings):
        raise ShapeError("a page shows one predictor: diagnose the members of a stack one by one")
    verdict = found.verdict()
    return Page(
        title=title,
        headline=verdict.headline,
        mood=verdict.mood,
        points=verdict.points,
        advice=verdict.advice,
        sections=tuple(_sections(whole, before, found, selection, examples)),
        settings={"rows": f"{whole.n:,}", **(settings or {}), **versions()},
    )


def _sections(
    whole: Diagnosis,
    before: Diagnosis | None,
    found: Diagnosis | GroupedDiagnosis,
    selection: Selection | None,
    examples: Sequence[CornerDisplay],
) -> Iterator[Section]:
    skipped = tuple(f"Skipped {label}: {reason}" for label, reason in whole.skipped.items())
    table = whole.table.drop(columns=[] if whole.table.note.any() else ["note"])
    legend = {**LEGEND, **_OVER_GROUPS} if isinstance(found, GroupedDiagnosis) else LEGEND
    yield Section("Errors and evidence", skipped, table, legend)
    if before is not None:
        yield _comparison(before, whole)
    if isinstance(found, GroupedDiagnosis):
        yield _by_group(found)
    yield _reliability(whole, before)
    yield _histograms(whole)
    if selection is not None:
        display = SelectionDisplay(selection)
        tried = selection.table
        tried.insert(1, "chosen", tried.pop("chosen"))
        yield Section(
            "Selection of the strength",
            table=tried,
            legend=SELECTION_LEGEND,
            illustrations=(_drawn(display, "Strengths that were tried", display.size),),
        )
    if examples:
        shown = tuple(_drawn(one, f"Example {k + 1}", one.size) for k, one in enumerate(examples))
        yield Section("Single predictions", illustrations=shown)
    yield _words(whole)


def _comparison(before: Diagnosis, after: Diagnosis) -> Section:
    columns = ["prerank", "excess", "p_holm"]
    pair = [_overall(one.table)[columns] for one in (before, after)]
    table = pair[0].merge(pair[1], on="prerank", suffixes=("_before", "_after"))
    table = table.rename(columns={"excess_before": "before", "excess_after": "after"})
    table = table[["prerank", "before", "after", "p_holm_before", "p_holm_after"]]
    legend = {
        "before": "excess of the same network without the penalty, on the same rows",
        "after": "excess with it",
    }
    return Section("Before and after the penalty", table=table, legend=legend)


def _overall(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of whole pre-ranks."""
    return table[table.component == ALL]


def _by_group(found: GroupedDiagnosis) -> Section:
    table = _overall(found.table)
    columns = ["group", "n", "prerank", "pce", "floor", "excess", "p_holm"]
    told = tuple(f"{name}: {one.verdict().headline}" for name, one in found.groups.items())
    return Section("Within groups", told, table[columns], {**LEGEND, **_OVER_GROUPS})


def _reliability(whole: Diagnosis, before: Diagnosis | None) -> Section:
    """A picture for each pre-rank, before above after: several beside each other where they fit."""
    shown = []
    others = [None] * len(whole.pits) if before is None else before.displays()
    for display, former in zip(whole.displays(), others, strict=True):
        rows = {"": [display]} if former is None else {"before": [former], "after": [display]}
        grid = ReliabilityGrid(rows)
        figure = _figure(grid.size)
        grid.plot(figure)
        caption = display.caption + _doubt(whole, display)
        if former is not None:
            caption = f"After the penalty, {caption} Before, {former.caption}"
        shown.append(Illustration(figure, caption))
    words = "The share of PITs up to each level: the diagonal is right, the band is chance."
    return Section("Reliability", (words,), illustrations=tuple(shown))


def _histograms(whole: Diagnosis) -> Section:
    shown = []
    bins = default_bins(whole.n)
    for display in whole.displays():
        z = whole.pits[display.label]
        z = z.reshape(-1, *z.shape[-2:])[0]
        names = display.names[:_SHOWN_COMPONENTS]
        histogram = PITHistogramDisplay(
            pit_histogram(z[:, : len(names)], bins=bins),
            histogram_band(whole.n, bins) if display.band is not None else None,
            label=display.label,
            names=names,
            curves=display.shapes[: len(names)],
        )
        drawn = _drawn(histogram, "", histogram.size)
        shown.append(replace(drawn, caption=drawn.caption + _doubt(whole, histogram)))
    return Section("PIT histograms", illustrations=tuple(shown))


def _doubt(whole: Diagnosis, display: ReliabilityDisplay | PITHistogramDisplay) -> str:
    """What to add where a picture leaves its band and the verdict finds no evidence in it."""
    outside = any(shape.outside for shape in display.shapes)
    if not outside or display.label in whole.verdict().failing:
        return ""
    row = next(f for f in whole.findings if f.prerank == display.label and f.component == ALL)
    return f" This may be chance: the corrected p-value of {display.label} is {p_text(row.p_holm)}."


def _words(whole: Diagnosis) -> Section:
    told = tuple(
        f"{label}: {explanation_of(label).question} {explanation_of(label).formula}. "
        f"Blind to {explanation_of(label).blind}."
        for label in whole.pits
    )
    return Section("What the pre-ranks ask", told)


def _drawn(
    display: PITHistogramDisplay | SelectionDisplay | CornerDisplay,
    title: str,
    size: tuple[float, float],
) -> Illustration:
    """A display on a figure that belongs to no window."""
    figure = _figure(size)
    display.plot(figure.subplots())
    return Illustration(figure, display.caption, title)


def _figure(size: tuple[float, float]) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")
