"""A study's results as files: tables, figures and a page that holds them together."""

import io
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from prerank.files import write_atomically
from prerank.report.html import write_page
from prerank.report.study_figures import (
    bars_figure,
    boxes_figure,
    datasets_figure,
    nulls_figure,
    reliability_figure,
)
from prerank.study import tables
from prerank.study.plans import NONE
from prerank.study.published_evaluation import batched_floor
from prerank.study.store import Store
from prerank.study.study_page import study_page

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["write_report"]

_PAIRED = "marginal+"
_FEWEST = 3  # datasets of which a box says more than the points


def write_report(store: Store, folder: str | PathLike[str] | None = None) -> Path:
    """Write every table (CSV) and figure (PNG) of a study, and `report.html`, which needs no other.

    Args:
        store: of the study, which may be half done.
        folder: `report` in the study's folder by default.

    Returns:
        The page.
    """
    out = store.folder / "report" if folder is None else Path(folder)
    results = store.results()
    found: dict[str, pd.DataFrame] = {
        "before": tables.before(results),
        "after": tables.after(results),
        "evidence_before": tables.evidence(results, NONE),
        "evidence_after": tables.evidence(results),
        "combined": tables.combined(results),
        "seconds": _seconds(results),
    }
    datasets = list(dict.fromkeys(results.dataset))
    found |= {f"cross_{dataset}": tables.cross(results, dataset) for dataset in datasets}
    if store.plan.protocol == "exact":
        found["frontiers"] = _frontiers(results)
    for name, table in found.items():
        _write(out / f"{name}.csv", table.to_csv(index=False, float_format="%.6g").encode())
    figures = {"bars": bars_figure(found["before"], found["after"], _floors(results))}
    if found["after"].dataset.nunique() >= _FEWEST:
        scores = tables.relative_scores(results)
        figures["datasets"] = datasets_figure(found["before"], found["after"], scores)
    for dataset in datasets:
        figures[f"boxes_{dataset}"] = boxes_figure(results, dataset)
        for kind, company in (("reliability", ""), ("pairs", _PAIRED)):
            curves = reliability_figure(results, dataset, company)
            if curves.axes:  # none where the study has no such penalty
                figures[f"{kind}_{dataset}"] = curves
        figures[f"nulls_{dataset}"] = _nulls(results, dataset, found)
    for name, figure in figures.items():
        _write(out / f"{name}.png", _png(figure))
    return write_page(study_page(store, found, figures), out / "report.html")


def _frontiers(results: "pd.DataFrame") -> "pd.DataFrame":
    """Every strength of every penalty that was tried."""
    import pandas as pd

    tried = results[results.variant != NONE].drop_duplicates(["dataset", "variant"])
    parts = [
        tables.frontier(results, dataset, variant).assign(dataset=dataset, variant=variant)
        for dataset, variant in zip(tried.dataset, tried.variant, strict=True)
    ]
    names = ["dataset", "variant", "part", "strength", "excess", "selected", "energy_ratio"]
    return pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)


def _seconds(results: "pd.DataFrame") -> "pd.DataFrame":
    units = results.drop_duplicates(["dataset", "variant"])
    return units.groupby("dataset", as_index=False, sort=False).agg(
        units=("variant", "size"), seconds=("seconds", "sum")
    )


def _floors(results: "pd.DataFrame") -> dict[str, float]:
    """PCE of a right predictor on the test rows; in batches where they were judged so."""
    rows = results[(results.part == "test") & results.floor.notna()]
    if "published_pce" in rows:
        sizes = rows.groupby("dataset").n.first()
        return {str(name): batched_floor(int(n)) for name, n in sizes.items()}
    return {
        str(name): float(value) for name, value in rows.groupby("dataset").floor.first().items()
    }


def _nulls(results: "pd.DataFrame", dataset: str, found: "dict[str, pd.DataFrame]") -> "Figure":
    rows = results[(results.dataset == dataset) & (results.variant == NONE)]
    rows = rows[(rows.part == "test") & rows.selected & rows.pce.notna()]
    nulls = {str(k): tables.mean_null(cell) for k, cell in rows.groupby("prerank", sort=False)}
    observed: dict[str, dict[str, float]] = {label: {} for label in nulls}
    for name in ("before", "after"):
        table = found[f"evidence_{name}"]
        own = table[table.dataset == dataset]
        for label, value in zip(own.prerank, own.observed, strict=True):
            if str(label) in observed:
                observed[str(label)][name] = float(value)
    return nulls_figure(nulls, observed, f"{dataset}: mean PCE over the runs, if they were right")


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    def fill(file: Path) -> None:
        file.write_bytes(content)

    return write_atomically(path, fill)
