"""The tables of `docs/results/head.md`, from the files that `head.py` writes.

    python experiments/head_page.py --tables docs/results/tables/head --page docs/results/head.md

Puts tables between the markers of the page. What a perfect forecast scores is simulated first, in
minutes, and written to `perfect.csv` beside the files; `--keep` reads it from there.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from head_criteria import verdicts
from head_results import (
    BASE,
    CHANGES,
    COMPARISONS,
    HEAD,
    PAPER,
    SHOWN,
    UNSEEN,
    Results,
    Unit,
)
from marked_pages import filled, markdown, verdict_table
from perfection import overlap

PART, MILLIONTH, SECONDS = Unit(1e4, sign=""), Unit(1e6, sign=""), Unit(digits=1, sign="")
ERRORS = {"excess": PART, "largest": PART, "unseen": PART, "squared": MILLIONTH}
SCORES = {change: Unit(digits=3) for change in CHANGES}
SCORES |= {"energy_change": Unit(100, 2), "variogram_change": Unit(100, 2), "seconds": SECONDS}
SCORE_NAMES = ["NLL", "NLL trimmed", "NLL median", "energy %", "variogram %", "seconds"]


def cells(found: pd.Series, units: dict[str, Unit]) -> list[str]:
    """Entries of a line, each in its unit."""
    return [unit(found[name]) for name, unit in units.items()]


def verdict(results: Results) -> str:
    """All criteria, and how many are reached."""
    return verdict_table(verdicts(results))


def calibration(results: Results, datasets: list[str]) -> str:
    """Errors and scores of the main methods, and the points of a perfect forecast above them."""
    lines = []
    for dataset in datasets:
        rows = f"{results.of(*BASE).rows[dataset]:,.0f}"
        point = cells(results.perfect.loc[dataset], ERRORS)
        lines.append([dataset, rows, "", "perfect, 95 %", *point, *[""] * len(SCORES)])
        for forecast, method in SHOWN:
            found = results.of(forecast, method).loc[dataset]
            errors = cells(found, ERRORS)
            errors[1] += f" {found[PAPER].astype(float).idxmax()}"
            members = "one" if forecast == "base" else "five"
            lines.append([dataset, rows, members, method, *errors, *cells(found, SCORES)])
    return markdown(["dataset", "rows", "members", "method", *ERRORS, *SCORE_NAMES], lines, 4)


def preranks(results: Results, datasets: list[str]) -> str:
    """Excess of every pre-rank without and with the head."""
    lines = []
    for dataset in datasets:
        old, new = (results.of(*which).loc[dataset] for which in (BASE, HEAD))
        pairs = [(PART(old[label]), PART(new[label])) for label in (*PAPER, *UNSEEN)]
        lines.append([dataset, *(f"{a} → {b}" if a != "-" else "" for a, b in pairs)])
    return markdown(["dataset", *PAPER, *UNSEEN], lines)


def differences(results: Results, datasets: list[str]) -> str:
    """Mean differences with their upper bounds; bold where a bound is above its limit."""
    tables = {name: results.compare(what) for name, what in COMPARISONS.items()}
    lines = []
    for dataset in datasets:
        line = [dataset]
        for name, what in COMPARISONS.items():
            mean, bound = tables[name].loc[dataset, ["mean", "bound"]]
            told = f"{what.unit(mean)} ({what.unit(bound)})"
            line.append(f"**{told}**" if bound > what.limit else told)
        lines.append(line)
    return markdown(["dataset", *COMPARISONS], lines)


def rivals(results: Results, forecast: str, datasets: list[str]) -> str:
    """One line for each method: means over datasets, and on how many the head is lower."""
    head = results.of(forecast, "head").loc[datasets]
    methods = dict.fromkeys(results.means.xs(forecast, level="forecast").index.get_level_values(1))
    lines = []
    for method in methods:
        own = results.of(forecast, method).reindex(datasets)
        # Samples have no hdr. Means are computed alike, so that equal forecasts stay equal.
        same = head[PAPER].where(own[PAPER].notna()).mean(axis=1)
        pairs = [(same, own[PAPER].mean(axis=1)), (head.unseen, own.unseen), (head.nll, own.nll)]
        pairs += [(head.energy, own.energy), (head.variogram, own.variogram)]
        wins = [f"{(a < b).sum()}/{b.notna().sum()}" if b.notna().any() else "-" for a, b in pairs]
        rest = PART(own[PAPER].drop(columns="hdr").mean(axis=1).mean())
        mean = own.mean()
        counts = ", ".join(wins) if method != "head" else ""
        judged = own.rows.notna().sum()
        name = method if judged == len(own) else f"{method} ({judged} of {len(own)} datasets)"
        lines.append([name, *cells(mean, ERRORS), rest, *cells(mean, SCORES), counts])
    return markdown(["method", *ERRORS, "without hdr", *SCORE_NAMES, "head lower"], lines)


def files(results: Results) -> str:
    """Seeds, the ratios of the bounds, and links to the files."""
    seeds = sorted(set(results.runs.index.get_level_values("seed")))
    ratios = [overlap(int(rows)) for rows in results.of(*BASE).rows]
    paths = sorted(results.folder.glob("*.csv"))
    links = (f"[{path.stem}](tables/{results.folder.name}/{path.name})" for path in paths)
    return (
        f"{len(results.datasets)} datasets, seeds {', '.join(map(str, seeds))}. Judged rows over "
        f"fitted rows: {min(ratios):.2f} to {max(ratios):.2f}. One line for each seed, forecast, "
        f"method and pre-rank: {', '.join(links)}."
    )


TABLES: dict[str, Callable[[Results], str]] = {
    "verdict": verdict,
    "calibration_continuous": lambda found: calibration(found, found.continuous),
    "calibration_discrete": lambda found: calibration(found, found.discrete),
    "preranks_continuous": lambda found: preranks(found, found.continuous),
    "preranks_discrete": lambda found: preranks(found, found.discrete),
    "differences_continuous": lambda found: differences(found, found.continuous),
    "differences_discrete": lambda found: differences(found, found.discrete),
    "rivals_continuous": lambda found: rivals(found, "base", found.continuous),
    "rivals_discrete": lambda found: rivals(found, "base", found.discrete),
    "ensembles_continuous": lambda found: rivals(found, "ensemble", found.continuous),
    "ensembles_discrete": lambda found: rivals(found, "ensemble", found.discrete),
    "files": files,
}


def page_tables(results: Results) -> dict[str, Callable[[], str]]:
    """Tables of the page by their markers."""
    return {name: partial(table, results) for name, table in TABLES.items()}


def main() -> None:
    """Simulate what a perfect forecast scores, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--keep", action="store_true", help="read perfect.csv, simulate nothing")
    options = parser.parse_args()
    results = Results(options.tables, keep=options.keep)
    options.page.write_text(filled(options.page.read_text(), page_tables(results)))
    print(verdict(results))


if __name__ == "__main__":
    main()
