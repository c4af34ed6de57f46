"""The page of a study: what the penalties gained, and what the paper had."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prerank.diagnosis.verdict import Mood
from prerank.files import versions
from prerank.report.html import Illustration, Page, Section
from prerank.study.plans import Plan
from prerank.study.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["study_page"]

_LEGEND = {
    "dataset": "on whose rows the runs were trained and judged",
    "prerank": "by which calibration is judged",
    "variant": "the penalty",
    "mean": "PCE of the test rows, mean over the runs",
    "se": "its standard error",
    "runs": "number of runs, one for each seed",
    "excess": "PCE above what a perfect predictor scores on average with as many rows",
    "excess_se": "its standard error",
    "energy": "energy score, mean over the runs: smaller is more accurate",
    "energy_ratio": "energy score against the unpenalised runs",
    "nll": "negative log-likelihood, median over the runs: smaller is more accurate",
    "gain": "mean paired decrease of the excess, against the unpenalised run of the same seed",
    "gain_se": "its standard error",
    "strength": "of the penalty, as selected; 0 where none qualified",
    "paper": "what the paper reports: of relaxed samples, in batches of 256",
    "paper_se": "its standard error, as the paper reports it",
    "paper_strength": "strength of the penalty that the paper reports",
    "observed": "mean PCE over the runs",
    "null_mean": "what it would be for perfect predictors, on average",
    "p_value": "how often perfect predictors have a mean PCE as large as that",
    "p_holm": "evidence that the mean PCE is larger than a perfect predictor's: the p-value, "
    "corrected for the pre-ranks of the dataset",
    "with": "what is penalised together with the pre-rank",
    "alone": "PCE of the pre-rank where it alone is penalised, mean over the runs",
    "together": "the same where both are penalised",
    "increase": "of the PCE, from alone to together: 0.1 is 10%",
    "seconds_ratio": "time that training and judging took, together against alone",
    "part": "rows that the runs were judged on; strengths are selected on validation rows",
    "selected": "whether the strength is the one that was selected",
    "units": "pairs of a dataset and a penalty that are done",
    "seconds": "time that they took, added up",
}
_OF_TABLES = {
    "combined": {"energy_ratio": "energy score, together against alone"},
    "frontiers": {
        "strength": "of the penalty, as tried",
        "excess": "PCE above what a perfect predictor scores on average with as many rows, mean "
        "over the runs and the penalty's own pre-ranks",
        "energy_ratio": "energy score against that at strength 0, on the same rows",
    },
}
# Of the published protocol, whose tables hold numbers on two scales.
_AS_PUBLISHED = "of relaxed samples, in batches of 256"
_EXACTLY = "exact, of all test rows together"
_LEGEND_PUBLISHED = {
    "mean": f"PCE of the test rows as published ({_AS_PUBLISHED}), mean over the runs",
    "excess": f"PCE ({_EXACTLY}) above what a perfect predictor scores on average with as many "
    "rows: not on the scale of the mean",
    "energy": "energy score as published (mean over batches), mean over the runs: smaller is more "
    "accurate",
    "nll": "negative log-likelihood as published (mean over batches), median over the runs: "
    "smaller is more accurate",
    "gain": "mean paired decrease of the excess, and so of the exact PCE, against the unpenalised "
    "run of the same seed",
    "strength": "of the penalty, as published but for a misprint; 10 where the paper has none",
    "paper": f"what the paper reports: on the scale of the mean, {_AS_PUBLISHED}",
    "observed": f"mean PCE over the runs ({_EXACTLY})",
    "alone": f"PCE as published ({_AS_PUBLISHED}) of the pre-rank where it alone is penalised, "
    "mean over the runs",
}
_GIVEN = "of the penalty, as the plan gives it"
_TITLES = {
    "before": "Without a penalty",
    "after": "Penalised by the same pre-rank",
    "evidence_before": "Evidence of miscalibration without a penalty",
    "evidence_after": "Evidence of miscalibration that is left",
    "combined": "What it costs to penalise two things at once",
    "frontiers": "Every strength that was tried",
    "seconds": "Time",
}
_MEANS = "Curves of pre-ranks of several components are means over the components."
_CAPTIONS = {
    "bars": "PCE{published} before and after each penalty; the dashed line is what a perfect "
    "predictor scores on average{batches}.",
    "datasets": "Spread over the datasets, each of which is one point, the mean over its runs: "
    "PCE{published} before and after the penalty by the same pre-rank; negative log-likelihood and "
    "energy score{batches} relative to the unpenalised runs.",
    "boxes": "Spread over the runs{exact}: PCE of the pre-rank that is penalised, before and after "
    "(of two, their mean); negative log-likelihood and energy score by penalty.",
    "reliability": "Curves of the runs{exact} before (dashed) and after each penalty: of its own "
    f"pre-rank above, of the margins below. The diagonal is right. {_MEANS}",
    "pairs": "Curves of the runs{exact} before (dashed) and after margins and another pre-rank are "
    "penalised together: of the other pre-rank above, of the margins below. The diagonal is right. "
    f"{_MEANS}",
    "nulls": "What the mean PCE over the runs{exact} would be for perfect predictors, and what it "
    "is before and after. Right of the grey, chance is no explanation.",
}
_SCALES = {
    "exact": {"published": "", "batches": "", "exact": ""},
    "published": {
        "published": f" as published ({_AS_PUBLISHED})",
        "batches": " in such batches",
        "exact": f" ({_EXACTLY})",
    },
}
_TOLD = (
    "Two scales: means, bars, boxes over the datasets and cross tables are as published, "
    f"{_AS_PUBLISHED}, and so are energy score and negative log-likelihood in tables, as means "
    "over batches. Excess, gain, evidence, curves, nulls and the boxes of each dataset are "
    f"{_EXACTLY}."
)


def study_page(
    store: Store, tables: "Mapping[str, pd.DataFrame]", figures: "Mapping[str, Figure]"
) -> Page:
    """Put tables and figures of a study on one page.

    Args:
        store: of the study, which may be half done.
        tables: by name: `before`, `after`, and others.
        figures: by name: `bars`, `datasets`, and `KIND_DATASET`.
    """
    plan = store.plan
    left = sum(not store.done(unit) for unit in store.units)
    done = f"{len(store.units) - left} of {len(store.units)} units are done."
    headline, mood, points = _summary(tables["after"], plan.protocol)
    scales = (_TOLD,) if plan.protocol == "published" else ()
    return Page(
        title=f"Study {plan.name}",
        headline=headline,
        mood=mood,
        points=(*points, *scales, done),
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


def _summary(after: "pd.DataFrame", protocol: str) -> tuple[str, Mood, tuple[str, ...]]:
    """In how many cells the penalty helped, and at what cost."""
    if not len(after):
        return "Nothing to compare yet: no penalised unit is done.", "unclear", ()
    error = "calibration error" + _SCALES[protocol]["exact"]
    if after.gain_se.isna().all():
        lower = int((after.gain > 0).sum())
        told = "With one run in each cell there are no standard errors to judge this by."
        headline = f"The {error} is lower in {lower} of {len(after)} cells."
        return headline, "unclear", (told,)
    better = int((after.gain > 2 * after.gain_se).sum())
    worse = int((after.gain < -2 * after.gain_se).sum())
    headline = (
        f"Penalties lowered the {error} in {better} of {len(after)} cells beyond two "
        f"standard errors, and raised it in {worse}."
    )
    cost = after.energy_ratio.median() - 1
    point = f"The energy score changed by {cost:+.1%} in the median cell."
    mood: Mood = "bad" if worse > better else "good" if better and not worse else "unclear"
    return headline, mood, (point,)


def _sections(
    store: Store, tables: "Mapping[str, pd.DataFrame]", figures: "Mapping[str, Figure]"
) -> Iterator[Section]:
    plan = store.plan
    shown = [name for name in ("after", "before") if name in tables]
    for name in shown:
        pictures = _pictures(figures, ["bars", "datasets"], plan) if name == shown[0] else ()
        yield Section(
            _TITLES[name],
            table=tables[name],
            legend=_legend(name, tables[name], plan),
            illustrations=pictures,
        )
    for dataset in plan.datasets:
        names = [f"{kind}_{dataset}" for kind in ("reliability", "pairs", "boxes", "nulls")]
        if f"cross_{dataset}" not in tables:
            continue
        cross = tables[f"cross_{dataset}"]
        told = "PCE{} of each pre-rank (columns) after training with each penalty (rows)."
        scale = _SCALES[plan.protocol]["published"]
        yield Section(
            f"{dataset}: every penalty by every pre-rank",
            (told.format(scale),),
            _square(cross, "mean"),
            illustrations=_pictures(figures, names, plan),
        )
        if cross.paper.notna().any():
            scale = _SCALES["published"]["published"]
            paper = _square(cross, "paper")
            yield Section(f"{dataset}: the same in the paper", (told.format(scale),), paper)
    for name, table in tables.items():
        if name in _TITLES and name not in shown and len(table):
            yield Section(_TITLES[name], table=table, legend=_legend(name, table, plan))
    skipped = tuple(f"{s['dataset']}, {s['variant']}: {s['reason']}" for s in store.skipped())
    if skipped:
        yield Section("Skipped", skipped)


def _square(cross: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """One row for each penalty, one column for each pre-rank, in their order."""
    table = cross.pivot(index="variant", columns="prerank", values=column)
    table = table.reindex(cross.variant.unique())[list(cross.prerank.unique())]
    table.columns.name = None
    return table.dropna(how="all").reset_index().rename(columns={"variant": "penalty"})


def _pictures(
    figures: "Mapping[str, Figure]", names: list[str], plan: Plan
) -> tuple[Illustration, ...]:
    found = []
    for name in names:
        if name in figures:
            caption = _CAPTIONS[name.partition("_")[0]].format(**_SCALES[plan.protocol])
            found.append(Illustration(figures[name], caption, name.replace("_", ", ")))
    return tuple(found)


def _legend(name: str, table: "pd.DataFrame", plan: Plan) -> dict[str, str]:
    """What the columns of a table mean, in their order, and on which scale they are."""
    words = dict(_LEGEND)
    if plan.protocol == "published":
        words |= _LEGEND_PUBLISHED
        if not isinstance(plan.strengths, str):
            words["strength"] = _GIVEN
    words |= _OF_TABLES.get(name, {})
    return {column: words[column] for column in table.columns if column in words}
