"""The report of a study: tables (CSV), figures (PNG) and a page that holds them together."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.diagnosis.verdict import Mood
from prerank.errors import InputError
from prerank.files import as_path, versions, write_atomically, writing
from prerank.files.visible_text import formula_safe
from prerank.report.html import Illustration, Page, Section, write_page
from prerank.report.study_figures import (
    bars_figure,
    boxes_figure,
    datasets_figure,
    nulls_figure,
    reliability_figure,
)
from prerank.study import tables
from prerank.study.page_tables import missing_bars, page_table, resolution_words
from prerank.study.plans import HEAD, NONE, Plan
from prerank.study.published_runs import batched_floor
from prerank.study.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Tables = Mapping[str, pd.DataFrame]
    Figures = Mapping[str, Figure]

__all__ = ["study_page", "write_comparison", "write_report"]

_FEWEST = 3  # datasets of which a box says more than the points


def write_report(store: Store, folder: str | PathLike[str] | None = None) -> Path:
    """Write every table and figure of a study, and `report.html`, which needs no other file.

    Args:
        store: of the study, which may be half done.
        folder: `report` in the study's folder by default.

    Returns:
        The page.
    """
    out = store.folder / "report" if folder is None else Path(folder)
    results = store.results()
    with writing(out):
        contents = _tables(results, store.plan)
        for name, table in contents.items():
            _write_csv(out / f"{name}.csv", table)
        figures = _figures(results, contents)
        for name, figure in figures.items():
            write_atomically(out / f"{name}.png", partial(figure.savefig, format="png", dpi=120))
        return write_page(study_page(store, contents, figures), out / "report.html")


def write_comparison(folders: list[Path], out: Path) -> tuple[int, dict[str, int]]:
    """Write before and after of several studies side by side as CSV.

    Args:
        folders: of the studies. Columns are named after the last part of the path if all lie side
            by side, and else after the path.
        out: the file, outside of these folders.

    Returns:
        Number of rows, and for each study the number of units that are left.
    """
    places = [as_path(folder).resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if out.resolve().is_relative_to(place):
            raise InputError(f"--out {out} lies in the study {folder}: choose a place outside")
        if places.count(place) > 1:
            raise InputError(f"{folder} is given twice")
    names = [folder.name for folder in folders]
    beside = len({folder.parent for folder in folders}) == 1
    if not beside or not all(names) or len(set(names)) < len(names):
        names = list(map(str, folders))
    stores = dict(zip(names, map(Store, folders), strict=True))
    table = tables.compared({name: store.results() for name, store in stores.items()})
    with writing(out):
        _write_csv(out, table)
    return len(table), {name: len(store.left()) for name, store in stores.items()}


def _write_csv(path: Path, table: "pd.DataFrame") -> None:
    write_atomically(path, partial(formula_safe(table).to_csv, index=False, float_format="%.6g"))


def _tables(results: "pd.DataFrame", plan: Plan) -> "dict[str, pd.DataFrame]":
    import pandas as pd

    units = results.drop_duplicates(["dataset", "variant"])
    headed = {"head": tables.after(results, HEAD), "evidence_head": tables.evidence(results, HEAD)}
    contents = {
        "before": tables.before(results),
        "after": tables.after(results),
        "evidence_before": tables.evidence(results, NONE),
        "evidence_after": tables.evidence(results),
        **(headed if HEAD in plan.variants else {}),
        "combined": tables.combined(results),
        "seconds": units.groupby("dataset", as_index=False, sort=False).agg(
            units=("variant", "size"), seconds=("seconds", "sum")
        ),
    }
    for dataset in units.dataset.unique():
        contents[f"cross_{dataset}"] = tables.cross(results, dataset)
    if plan.protocol == "exact":
        tried = units[~units.variant.isin([NONE, HEAD])]
        parts = [
            tables.frontier(results, dataset, variant).assign(dataset=dataset, variant=variant)
            for dataset, variant in zip(tried.dataset, tried.variant, strict=True)
        ]
        names = ["dataset", "variant", "part", "strength", "excess", "selected", "energy_ratio"]
        empty = pd.DataFrame(columns=names)
        contents["frontiers"] = pd.concat(parts, ignore_index=True)[names] if parts else empty
    return contents


def _treatments(contents: "Tables") -> "dict[str, pd.DataFrame]":
    """Tables of treated runs that have rows, by the words for the treatment."""
    words = {"Penalties": "after", "The calibration head": "head"}
    return {who: contents[name] for who, name in words.items() if len(contents.get(name, ()))}


def _figures(results: "pd.DataFrame", contents: "Tables") -> "dict[str, Figure]":
    before = contents["before"]
    after = next(iter(_treatments(contents).values()), contents["after"])
    floors, datasets = _floors(results), list(dict.fromkeys(before.dataset))
    figures = {"bars": bars_figure(before, after, floors)}
    for dataset in datasets if len(datasets) > 1 else ():  # the page has one for each
        old, new = (table[table.dataset == dataset] for table in (before, after))
        figures[f"bars_{dataset}"] = bars_figure(old, new, floors)
    if after.dataset.nunique() >= _FEWEST:
        figures["datasets"] = datasets_figure(before, after, tables.relative_scores(results))
    for dataset in results.dataset.unique():
        figures[f"boxes_{dataset}"] = boxes_figure(results, dataset)
        for kind, company in (("reliability", ""), ("pairs", "marginal+")):
            curves = reliability_figure(results, dataset, company)
            if curves.axes:  # none where the study has no such penalty
                figures[f"{kind}_{dataset}"] = curves
        figures[f"nulls_{dataset}"] = _nulls(results, dataset, contents)
    return figures


def _floors(results: "pd.DataFrame") -> dict[str, float]:
    """PCE of a calibrated predictor on the test rows; in batches where they were judged so."""
    rows = results[(results.part == "test") & results.floor.notna()].groupby("dataset")
    if "published_pce" in results:
        return {str(name): batched_floor(int(n)) for name, n in rows.n.first().items()}
    return {str(name): float(value) for name, value in rows.floor.first().items()}


def _nulls(results: "pd.DataFrame", dataset: str, contents: "Tables") -> "Figure":
    rows = results[(results.dataset == dataset) & (results.variant == NONE)]
    rows = rows[(rows.part == "test") & rows.selected & rows.pce.notna()]
    nulls = {str(k): tables.mean_null(cell) for k, cell in rows.groupby("prerank", sort=False)}
    observed: dict[str, dict[str, float]] = {label: {} for label in nulls}
    for name in ("before", "after"):
        own = contents[f"evidence_{name}"].query("dataset == @dataset")
        for label, value in zip(own.prerank, own.observed, strict=True):
            if str(label) in observed:
                observed[str(label)][name] = float(value)
    title = f"{dataset}: mean PCE over the runs, for perfect predictors"
    return nulls_figure(nulls, observed, title)


@lru_cache
def _words() -> dict[str, Any]:
    """Titles, captions and legends."""
    file = resources.files("prerank.study") / "page.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def study_page(store: Store, contents: "Tables", figures: "Figures") -> Page:
    """Put tables and figures of a study on one page.

    Args:
        store: of the study, which may be half done.
        contents: tables by name: `before`, `after`, and others.
        figures: by name: `bars`, `datasets`, and `KIND_DATASET`.
    """
    plan = store.plan
    left = len(store.left())
    headline, mood, points = _summary(contents, plan.protocol)
    scales = (_words()["two_scales"],) if plan.protocol == "published" else ()
    done = f"{len(store.units) - left} of {len(store.units)} units are done."
    return Page(
        title=f"Study {plan.name}",
        headline=headline,
        mood=mood,
        points=(*points, *scales, done),
        advice=("Run the study again to finish it.",) if left else (),
        sections=tuple(_sections(store, contents, figures)),
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


def _summary(contents: "Tables", protocol: str) -> tuple[str, Mood, tuple[str, ...]]:
    """In how many cells each treatment helped, and at what cost; the first one gives the mood."""
    error = "calibration error" + _words()["scales"][protocol]["exact"]
    found = [_outcome(who, error, table) for who, table in _treatments(contents).items()]
    if not found:
        return "Nothing to compare yet: no penalised unit is done.", "unclear", ()
    (headline, mood, point), *others = found
    return headline, mood, (point, *(text for one in others for text in (one[0], one[2])))


def _outcome(who: str, error: str, table: "pd.DataFrame") -> tuple[str, Mood, str]:
    """What a treatment did to the error, whether that is good, and what it cost."""
    if table.gain_se.isna().all():
        headline = f"The {error} is lower in {(table.gain > 0).sum()} of {len(table)} cells."
        point = "With one run in each cell there are no standard errors to judge this by."
        return headline, "unclear", point
    better = int((table.gain > 2 * table.gain_se).sum())
    worse = int((table.gain < -2 * table.gain_se).sum())
    headline = (
        f"{who} lowered the {error} in {better} of {len(table)} cells beyond two "
        f"standard errors, and raised it in {worse}."
    )
    cost = table.energy_ratio.median() - 1
    mood: Mood = "bad" if worse > better else "good" if better and not worse else "unclear"
    return headline, mood, f"The energy score changed by {cost:+.1%} in the median cell."


def _sections(store: Store, contents: "Tables", figures: "Figures") -> Iterator[Section]:
    plan, scales, titles = store.plan, _words()["scales"], _words()["titles"]

    def section(name: str, *paragraphs: str) -> Section:
        table = page_table(contents[name], plan.n_null)
        legend = _legend(name, table, plan)
        return Section(titles[name], paragraphs, table, legend, folded=True)

    bars = [name for name in figures if name.startswith("bars_")] or ["bars"]
    pictures = _pictures(figures, (*bars, "datasets"), plan)
    if pictures:
        after = next(iter(_treatments(contents).values()), contents["after"])
        gaps = missing_bars(contents["before"], after, store)
        yield Section(titles["bars"], gaps, illustrations=pictures)
    for name in [name for name in ("after", "head") if len(contents.get(name, ()))] or ["after"]:
        yield section(name)
    yield section("before")
    for dataset in plan.datasets:
        if f"cross_{dataset}" not in contents:
            continue
        cross = contents[f"cross_{dataset}"]
        names = [f"{kind}_{dataset}" for kind in ("reliability", "pairs", "boxes", "nulls")]
        text = "PCE{published} of each pre-rank (columns) after training with each penalty (rows)."
        yield Section(
            f"{dataset}: every penalty by every pre-rank",
            (text.format_map(scales[plan.protocol]),),
            _square(cross, "mean"),
            illustrations=_pictures(figures, names, plan),
            folded=True,
        )
        if cross.paper.notna().any():
            text = text.format_map(scales["published"])
            paper = _square(cross, "paper")
            yield Section(f"{dataset}: the same in the paper", (text,), paper, folded=True)
    for name, table in contents.items():
        if name in titles and name not in ("after", "before", "head") and len(table):
            words = (resolution_words(plan.n_null),) if name.startswith("evidence") else ()
            yield section(name, *words)
    skipped = tuple(f"{s['dataset']}, {s['variant']}: {s['reason']}" for s in store.skipped())
    if skipped:
        yield Section("Skipped", skipped, folded=True, gist=f"{len(skipped)}")


def _square(cross: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """One row for each penalty, one column for each pre-rank, in their order."""
    table = cross.pivot(index="variant", columns="prerank", values=column)
    table = table.reindex(cross.variant.unique())[list(cross.prerank.unique())]
    table.columns.name = None
    return table.dropna(how="all").reset_index().rename(columns={"variant": "penalty"})


def _pictures(figures: "Figures", names: Iterable[str], plan: Plan) -> tuple[Illustration, ...]:
    captions, scales = _words()["captions"], _words()["scales"][plan.protocol]
    return tuple(
        Illustration(
            figures[name],
            captions[name.partition("_")[0]].format_map(scales),
            name.replace("_", ", "),
        )
        for name in names
        if name in figures
    )


def _legend(name: str, table: "pd.DataFrame", plan: Plan) -> dict[str, str]:
    """What the columns of a table mean, in their order, and on which scale they are."""
    words = _words()
    legend = words["legend"] | words["protocol"][plan.protocol]
    if plan.protocol == "published" and not isinstance(plan.strengths, str):
        legend |= words["given_strength"]
    legend |= words["of_table"].get(name, {})
    return {column: legend[column] for column in table.columns if column in legend}
