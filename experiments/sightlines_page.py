"""Tables and figures of `docs/results/simulation.md`, from `tables/evidence/sightlines.csv`.

    PYTHONPATH=src python experiments/sightlines_page.py

`experiments/evidence.py sightlines` makes the CSV file. Puts tables between the markers of the
page, and draws `figures/sightlines-matrix.png` and `figures/sightlines-curves.png`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binomtest

from evidence_parts.sightlines import FAULTS, LEVEL, PRERANKS, ROWS
from marked_pages import filled, markdown, number, percent
from prerank.calibration import holm
from prerank.report.drawing import COLOURS, STYLES

PAGE = Path(__file__).parents[1] / "docs" / "results" / "simulation.md"
TABLE = PAGE.parent / "tables" / "evidence" / "sightlines.csv"
FIGURES = PAGE.parent / "figures"
LABELS = PRERANKS.split("+")
TARGETS = (2, 8)
SEEN, BLIND = 0.5, 0.1


def middle(table: pd.DataFrame, targets: int, n: int = ROWS) -> pd.DataFrame:
    """Faults of the middle size, one line each, by pre-rank in columns."""
    shown = table.fault.map({fault: steps[1] for fault, steps in FAULTS.items()})
    own = table[(table["size"] == shown) & (table["D"] == targets) & (table.n == n)]
    wide = own.pivot_table("rate", "fault", "prerank", sort=False)
    return wide.reindex(index=[f for f in FAULTS if f in wide.index], columns=LABELS)


def sizes(table: pd.DataFrame) -> str:
    """Rejections of the true distribution, and whether they are 5 % within chance."""
    own = table[table.fault == "none"]
    hits = (own.rate * own.data_sets).round().astype(int)
    p = holm([binomtest(k, n, LEVEL).pvalue for k, n in zip(hits, own.data_sets, strict=True)])
    wide = own.pivot_table("rate", ["D", "n"], "prerank", sort=False).reindex(columns=LABELS)
    lines = [[f"{d}", f"{n}", *map(_percent, row)] for (d, n), row in wide.iterrows()]
    least = number(min(p), 2)
    verdict = (
        f"{len(own)} rates of {own.data_sets.iloc[0]:,} data sets each, "
        f"{percent(own.rate.min(), 1)} to {percent(own.rate.max(), 1)}, "
        f"mean {percent(own.rate.mean(), 2)}. That each is 5 % is not rejected: the smallest "
        f"p-value is {least} (two-sided binomial, Holm over all)."
    )
    return f"{verdict}\n\n{markdown(['targets', 'rows', *LABELS], lines, 2)}"


def sight(table: pd.DataFrame) -> str:
    """Which pre-ranks see a fault of the middle size among eight targets, and which are blind."""
    lines = []
    for fault, row in middle(table, TARGETS[-1]).iterrows():
        best = row.sort_values(ascending=False)
        seen = [f"{label} {_percent(rate)}" for label, rate in best.items() if rate >= SEEN]
        blind = [str(label) for label in LABELS if row[label] <= BLIND]
        lines.append([str(fault), ", ".join(seen), ", ".join(blind)])
    return markdown(["fault", "seen (half of the time)", "not seen (at most 1 in 10)"], lines, 3)


def power(table: pd.DataFrame, targets: int) -> str:
    """Power of every pre-rank against every fault, by size, for the usual number of rows."""
    own = table[(table.fault != "none") & (table["D"] == targets) & (table.n == ROWS)]
    wide = own.pivot_table("rate", ["fault", "size"], "prerank", sort=False).reindex(columns=LABELS)
    order = [(fault, size) for fault in FAULTS for size in FAULTS[fault]]
    lines = [
        [fault, f"{size:g}", *_marked(wide.loc[fault, size])]
        for fault, size in order
        if (fault, size) in wide.index
    ]
    return markdown(["fault", "size", *LABELS], lines, 2)


def rows(table: pd.DataFrame) -> str:
    """The best pre-rank and its power by the number of rows, at the middle size."""
    lines = []
    for targets in TARGETS:
        found = {n: middle(table, targets, n) for n in sorted(table.n.unique())}
        for fault in found[ROWS].index:
            best = str(found[ROWS].loc[fault].idxmax())
            cells = [_percent(wide.loc[fault, best]) for wide in found.values()]
            lines.append([fault, f"{targets}", best, *cells])
    header = ["fault", "targets", "best pre-rank"]
    return markdown([*header, *(f"{n} rows" for n in sorted(table.n.unique()))], lines, 3)


def _percent(rate: float) -> str:
    return "" if np.isnan(rate) else number(100 * rate, 1)


def _marked(row: pd.Series) -> list[str]:
    """Percent, bold for all that are within two points of the best one above the level."""
    best = row.max()
    return [
        f"**{_percent(rate)}**" if rate >= best - 0.02 and rate > 2 * LEVEL else _percent(rate)
        for rate in row
    ]


def matrix_figure(table: pd.DataFrame) -> Figure:
    """Which pre-rank sees which fault: shares of rejections as numbers and shades."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for axis, targets in zip(figure.subplots(1, len(TARGETS)), TARGETS, strict=True):
        wide = middle(table, targets)
        axis.imshow(wide, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        for (i, j), rate in np.ndenumerate(wide.to_numpy()):
            colour = "white" if rate > 0.6 else "black"
            text = "-" if np.isnan(rate) else f"{100 * rate:.0f}"
            axis.text(j, i, text, ha="center", va="center", color=colour, fontsize="small")
        axis.set_xticks(range(len(LABELS)), LABELS, rotation=45, ha="right", fontsize="small")
        axis.set_yticks(range(len(wide)), list(wide.index), fontsize="small")
        axis.set_title(f"{targets} targets, {ROWS} rows", fontsize="medium")
    return figure


def curves_figure(table: pd.DataFrame) -> Figure:
    """Power over the size of the fault, above, and over the rows, below, for eight targets."""
    own = table[table["D"] == TARGETS[-1]]
    figure = Figure(figsize=(14, 5.4), layout="constrained")
    axes = figure.subplots(2, len(FAULTS), sharey=True)
    for (above, below), (fault, steps) in zip(axes.T, FAULTS.items(), strict=True):
        here = own[(own.fault == fault) | (own.fault == "none")]
        _lines(above, here[here.n == ROWS], "size")
        _lines(below, own[(own.fault == fault) & (own["size"] == steps[1])], "n")
        above.set(title=fault, xlabel=f"size ({ROWS} rows)")
        below.set(xlabel=f"rows (size {steps[1]:g})", xscale="log")
        below.set_xticks(sorted(own.n.unique()), [f"{n}" for n in sorted(own.n.unique())])
        below.minorticks_off()
    for axis in axes[:, 0]:
        axis.set(ylabel="share of rejections", ylim=(0, 1.02))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(LABELS), fontsize="small")
    return figure


def _lines(axis: Axes, table: pd.DataFrame, along: str) -> None:
    """A line for each pre-rank, and the level."""
    axis.axhline(LEVEL, color="#999999", linewidth=0.8)
    for place, label in enumerate(LABELS):
        own = table[table.prerank == label].sort_values(along)
        colour, style = COLOURS[place % len(COLOURS)], STYLES[place // len(COLOURS)]
        axis.plot(own[along], own.rate, style, color=colour, marker=".", label=label)


def page_tables(table: pd.DataFrame) -> dict[str, Callable[[], str]]:
    """Tables by the name of their markers."""
    return {
        "sizes": partial(sizes, table),
        "sight": partial(sight, table),
        "two": partial(power, table, 2),
        "eight": partial(power, table, 8),
        "rows": partial(rows, table),
    }


def main() -> None:
    """Write the page and its figures."""
    table = pd.read_csv(TABLE, keep_default_na=False, na_values=[""])
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), page_tables(table)), encoding="utf-8")
    for name, figure in (("matrix", matrix_figure(table)), ("curves", curves_figure(table))):
        path = FIGURES / f"sightlines-{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
    print(sizes(table).split("\n")[0])


if __name__ == "__main__":
    main()
