"""The page of a study: what the penalties gained, and what the paper had."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prerank.report.pages import Illustration, Page, Section
from prerank.report.verdicts import Mood
from prerank.storage import versions
from prerank.study.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["study_page"]

_LEGEND = {
    "mean": "PCE of the test rows, mean over the runs",
    "se": "its standard error",
    "excess": "PCE above what a perfect predictor scores on average with as many rows",
    "energy": "energy score: smaller is more accurate",
    "energy_ratio": "energy score against the unpenalised runs",
    "gain": "mean paired decrease of the excess",
    "strength": "of the penalty, as selected; 0 where none qualified",
    "paper": "what the paper reports: of relaxed samples, in batches of 256",
    "p_holm": "evidence that the mean PCE is larger than a perfect predictor's",
}
_TITLES = {
    "before": "Without a penalty",
    "after": "Penalised by the same pre-rank",
    "evidence_before": "Evidence of miscalibration without a penalty",
    "evidence_after": "Evidence of miscalibration that is left",
    "combined": "What it costs to penalise two things at once",
    "frontiers": "Every strength that was tried",
    "seconds": "Time",
}
_CAPTIONS = {
    "bars": "PCE before and after each penalty; the dashed line is what a perfect predictor scores "
    "on average.",
    "boxes": "Spread over the runs of PCE (mean over pre-ranks), negative log-likelihood and "
    "energy score, by penalty.",
    "reliability": "Curves of the runs before (dashed) and after each penalty: of its own pre-rank "
    "above, of the margins below. The diagonal is right.",
    "nulls": "What the mean PCE over the runs would be for perfect predictors, and what it is "
    "before and after. Right of the grey, chance is no explanation.",
}


def study_page(
    store: Store, tables: "Mapping[str, pd.DataFrame]", figures: "Mapping[str, Figure]"
) -> Page:
    """Put tables and figures of a study on one page.

    Args:
        store: of the study, which may be half done.
        tables: by name: `before`, `after`, and others.
        figures: by name: `bars`, and `KIND_DATASET`.
    """
    plan = store.plan
    left = sum(not store.done(unit) for unit in store.units)
    done = f"{len(store.units) - left} of {len(store.units)} units are done."
    headline, mood, points = _summary(tables["after"])
    return Page(
        title=f"Study {plan.name}",
        headline=headline,
        mood=mood,
        points=(*points, done),
        advice=("Run the study again to finish it.",) if left else (),
        sections=tuple(_sections(store, tables, figures)),
        settings={
            "protocol": plan.protocol,
            "datasets": ", ".join(plan.datasets),
            "penalties": ", ".join(plan.variants),
            "seeds": ", ".join(map(str, plan.seeds)),
            "budget": f"{plan.budget:.0%}",
            "draws": str(plan.n_samples),
            **versions(),
        },
    )


def _summary(after: "pd.DataFrame") -> tuple[str, Mood, tuple[str, ...]]:
    """In how many cells the penalty helped, and at what cost."""
    if not len(after):
        return "Nothing to compare yet: no penalised unit is done.", "unclear", ()
    if after.gain_se.isna().all():
        lower = int((after.gain > 0).sum())
        told = "With one run in each cell there are no standard errors to judge this by."
        headline = f"The calibration error is lower in {lower} of {len(after)} cells."
        return headline, "unclear", (told,)
    better = int((after.gain > 2 * after.gain_se).sum())
    worse = int((after.gain < -2 * after.gain_se).sum())
    headline = (
        f"Penalties lowered the calibration error in {better} of {len(after)} cells beyond two "
        f"standard errors, and raised it in {worse}."
    )
    cost = after.energy_ratio.median() - 1
    point = f"The energy score changed by {cost:+.1%} in the median cell."
    mood: Mood = "bad" if worse > better else "good" if better and not worse else "unclear"
    return headline, mood, (point,)


def _sections(
    store: Store, tables: "Mapping[str, pd.DataFrame]", figures: "Mapping[str, Figure]"
) -> Iterator[Section]:
    shown = [name for name in ("after", "before") if name in tables]
    for name in shown:
        pictures = _pictures(figures, ["bars"]) if name == shown[0] else ()
        yield Section(
            _TITLES[name], table=tables[name], legend=_legend(tables[name]), illustrations=pictures
        )
    for dataset in store.plan.datasets:
        names = [f"{kind}_{dataset}" for kind in ("reliability", "boxes", "nulls")]
        if f"cross_{dataset}" not in tables:
            continue
        cross = tables[f"cross_{dataset}"]
        told = ("PCE of each pre-rank (columns) after training with each penalty (rows).",)
        yield Section(
            f"{dataset}: every penalty by every pre-rank",
            told,
            _square(cross, "mean"),
            illustrations=_pictures(figures, names),
        )
        if cross.paper.notna().any():
            yield Section(f"{dataset}: the same in the paper", told, _square(cross, "paper"))
    for name, table in tables.items():
        if name in _TITLES and name not in shown and len(table):
            yield Section(_TITLES[name], table=table, legend=_legend(table))
    skipped = tuple(f"{s['dataset']}, {s['variant']}: {s['reason']}" for s in store.skipped())
    if skipped:
        yield Section("Skipped", skipped)


def _square(cross: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """One row for each penalty, one column for each pre-rank, in their order."""
    table = cross.pivot(index="variant", columns="prerank", values=column)
    table = table.reindex(cross.variant.unique())[list(cross.prerank.unique())]
    table.columns.name = None
    return table.dropna(how="all").reset_index().rename(columns={"variant": "penalty"})


def _pictures(figures: "Mapping[str, Figure]", names: list[str]) -> tuple[Illustration, ...]:
    return tuple(
        Illustration(figures[name], _CAPTIONS[name.partition("_")[0]], name.replace("_", ", "))
        for name in names
        if name in figures
    )


def _legend(table: "pd.DataFrame") -> dict[str, str]:
    return {name: words for name, words in _LEGEND.items() if name in table.columns}
