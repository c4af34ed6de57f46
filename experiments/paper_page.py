"""What the tables of the study say: the tables and counts of `docs/results/paper.md`.

`claims.py` puts each text between its markers on the page. Excess is shown in units of .0001.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from discrete import DATASETS as DISCRETE
from inference import LEVEL, adjusted, dataset_interval, judged_gains
from marked_pages import markdown, percent
from paper import CROSSED, LABELS, UNFAITHFUL, read_crossed
from prerank.datasets import find_dataset, published_split
from prerank.study import Plan
from prerank.study.published_runs import published_cross

NEAR = 0.02
OFF, FEW_ROWS = 0.02, 1000
OTHERS = [label for label in LABELS if label not in ("marginal", "pca")]
KINDS = {"continuous": False, "discrete": True}
DATASETS = Plan.preset("paper-exact").datasets
TRAINED = ["none", "marginal", "hdr", "marginal+hdr"]


def short(value: float, digits: int = 3) -> str:
    """Decimal text without the zero in front."""
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def signed(share: float, digits: int = 1) -> str:
    """A relative change in percent."""
    return f"{100 * share:+.{digits}f} %"


def reproduced(tables: Path) -> str:
    """How many published cells come out again, and by how much the others miss."""
    lines = []
    for which, told in (("before", "Before training with a penalty"), ("after", "After it")):
        table = pd.read_csv(tables / f"published_{which}.csv")
        cells = table[~table.dataset.isin(UNFAITHFUL) & table.paper.notna()]
        off, error = (cells["mean"] - cells.paper).abs(), np.hypot(cells.se, cells.paper_se)
        again = off <= np.maximum(NEAR, 3 * error)
        far = cells[off > NEAR].assign(errors=off / error)
        others = [
            f"{row.dataset} {row.prerank} ({short(row.mean)} ± {short(row.se)} for "
            f"{short(row.paper)} ± {short(row.paper_se)}, {row.errors:.1f} joint standard errors)"
            for row in far.itertuples(index=False)
        ]
        lines.append(
            f"- **{told}: {again.sum()} of {len(cells)}.** Half of them are within "
            f"{short(off.median(), 4)}, and {(off <= NEAR).sum()} within .02. The others: "
            f"{'; '.join(others)}."
        )
    cells, again = _crossed_cells(tables)
    lines.append(
        f"- **The cross tables: {again.sum()} of {len(cells)} cells** of the five datasets that "
        "have one here, within .02 or three of our standard errors times the root of two (the "
        "paper gives none). The others:"
    )
    missed = cells[~again]
    rows = [
        [r.dataset, r.variant, r.prerank, short(r.paper), f"{short(r.mean)} ± {short(r.se, 4)}"]
        for r in missed.itertuples(index=False)
    ]
    head = ["dataset", "trained", "judged", "paper", "done again"]
    return "\n".join(lines) + "\n\n" + markdown(head, rows, 3)


def _crossed_cells(tables: Path) -> tuple[pd.DataFrame, pd.Series]:
    crossed = read_crossed(tables)
    cells = crossed[crossed.study == "published"].dropna(subset="paper")
    return cells, (cells["mean"] - cells.paper).abs() <= np.maximum(NEAR, 3 * 2**0.5 * cells.se)


def arrows(tables: Path, study: str) -> str:
    """Excess before and after by the trained pre-rank; bold where it is higher with p < .05."""
    after = pd.read_csv(tables / f"{study}_after.csv")
    worse = judged_gains(after).query("gain < 0 and p_value < @LEVEL").index
    cells: dict[str, dict[str, str]] = {dataset: {} for dataset in after.dataset}
    for row in after.dropna(subset="gain").itertuples():
        old, new = (round(1e4 * value) for value in (row.excess + row.gain, row.excess))
        told = f"{old} → {new}" if row.strength else f"{old}"
        cells[row.dataset][row.prerank] = f"**{told}**" if row.Index in worse else told
    lines = [[name, *(own.get(label, "") for label in LABELS)] for name, own in cells.items()]
    return markdown(["dataset", *LABELS], lines)


def changed(tables: Path, study: str) -> str:
    """In how many trained cells the excess is higher and lower, by datasets of each kind."""
    cells = judged_gains(pd.read_csv(tables / f"{study}_after.csv"))
    lines = []
    for name, own in {"all": cells, **dict(_kinds(cells))}.items():
        rate = adjusted(own.p_value.to_numpy()) < LEVEL  # of the cells of this line
        found = [own.p_value < LEVEL, rate, own.gain != 0]
        counts = [
            f"{(rule & (own.gain < 0)).sum()}, {(rule & (own.gain > 0)).sum()}" for rule in found
        ]
        old, new = 1e4 * (own.excess + own.gain).median(), 1e4 * own.excess.median()
        low, high = dataset_interval(-1e4 * own.set_index("dataset").gain)
        lines.append(
            [
                name,
                str(len(own)),
                *counts,
                f"{old:.0f} → {new:.0f}",
                f"{-1e4 * own.gain.median():+.0f} ({low:+.0f}, {high:+.0f})",
                signed(own.energy_ratio.median() - 1),
                signed(own.energy_ratio.max() - 1),
                f"{_rises(tables, study, own)} of {len(own)}",
            ]
        )
    head = ["datasets", "cells", "p < .05", "false discovery rate .05", "by the means"]
    head += ["median excess", "median change (95 %)", "energy, median", "largest", "NLL higher"]
    return markdown(head, lines)


def _kinds(cells: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(name, cells[cells.dataset.isin(DISCRETE) == kind]) for name, kind in KINDS.items()]


def _rises(tables: Path, study: str, cells: pd.DataFrame) -> int:
    before = pd.read_csv(tables / f"{study}_before.csv").set_index(["dataset", "prerank"]).nll
    after = cells.set_index(["dataset", "prerank"]).nll
    return int((after > before.reindex(after.index)).sum())


def corrected(tables: Path) -> str:
    """By how much the exact penalty reduces what there was to correct."""
    cells = judged_gains(pd.read_csv(tables / "exact_after.csv"))
    rows = cells.dataset.map(test_rows)
    start = cells.excess + cells.gain
    cells = cells.assign(reduction=cells.gain / start, rows=rows)[start > OFF]
    lines = []
    many = cells[cells.rows >= FEW_ROWS]
    groups = {"1,000 test rows or more": many, "fewer": cells[cells.rows < FEW_ROWS]}
    groups |= {f"1,000 or more, {name}": own for name, own in _kinds(many)}
    for name, own in groups.items():
        low, high = dataset_interval(own.set_index("dataset").reduction)
        lines.append(
            [
                name,
                str(len(own)),
                f"{percent(own.reduction.median())} ({percent(low)}, {percent(high)})",
                f"{percent(own.reduction.min())} to {percent(own.reduction.max())}",
                signed(own.energy_ratio.median() - 1),
                signed(own.energy_ratio.max() - 1),
            ]
        )
    head = ["datasets with", "cells", "median reduction (95 %)", "range", "energy, median"]
    return markdown([*head, "largest"], lines)


def test_rows(dataset: str) -> int:
    """Rows that a dataset is judged by."""
    return len(published_split(find_dataset(dataset).n_rows, seed=0).test)


def beside(tables: Path) -> str:
    """PCE of a pre-rank that is trained beside components, over that beside margins."""
    paper = published_cross().rename(columns={"pce": "mean"})
    crossed = read_crossed(tables)
    names = [*CROSSED, "scm1d"]
    lines = []
    for told, own in (
        ("the paper's tables", paper),
        ("as published, done again", crossed[crossed.study == "published"]),
        ("exact", crossed[crossed.study == "exact"]),
    ):
        found = _pairs(own, "mean")
        rise = (found["pca(0.8)"] / found.marginal - 1).groupby("dataset").mean()
        lines.append([told, *(signed(rise[name]) if name in rise else "" for name in names)])
    exact = _pairs(crossed[crossed.study == "exact"], "excess").groupby("dataset").mean() * 1e4
    pairs = [f"{exact.marginal[n]:.0f} → {exact['pca(0.8)'][n]:.0f}" for n in CROSSED]
    lines.append(["exact, mean excess", *pairs, ""])
    return markdown(["", *names], lines)


def _pairs(table: pd.DataFrame, value: str) -> pd.DataFrame:
    beside = {}
    for other in ("marginal", "pca(0.8)"):
        own = table[table.prerank.isin(OTHERS) & (table.variant == other + "+" + table.prerank)]
        beside[other] = own.set_index(["dataset", "prerank"])[value]
    return pd.DataFrame(beside).dropna()


def both(tables: Path) -> str:
    """Excess of margins and of hdr, by what was penalised."""
    crossed = read_crossed(tables)
    exact = crossed[crossed.study == "exact"].set_index(["dataset", "variant", "prerank"]).excess
    lines = []
    for variant, told in zip(TRAINED, ["nothing", *TRAINED[1:3], "both"], strict=True):
        cells = [
            f"{1e4 * exact[name, variant, 'marginal']:.0f}, {1e4 * exact[name, variant, 'hdr']:.0f}"
            for name in CROSSED
        ]
        lines.append([told, *cells])
    return markdown(["", *CROSSED], lines)


def seconds(tables: Path) -> str:
    """Seconds of the units of a dataset: all with at most one penalty, and the longest of them."""
    lines = []
    for study in ("exact", "published"):
        table = pd.read_csv(tables / f"{study}_seconds.csv")
        table = table[table.variant.isin(["none", *LABELS])]
        by = table.groupby("dataset", sort=False).seconds
        for told, found in (("all", by.sum()), ("longest", by.max())):
            cells = (f"{found[name]:.0f}" if name in found else "" for name in DATASETS)
            lines.append([f"{study}, {told}", *cells])
    return markdown(["", *DATASETS], lines)


BLOCKS: dict[str, Callable[[Path], str]] = {
    "reproduced": reproduced,
    "published_arrows": partial(arrows, study="published"),
    "published_changed": partial(changed, study="published"),
    "exact_arrows": partial(arrows, study="exact"),
    "exact_changed": partial(changed, study="exact"),
    "exact_corrected": corrected,
    "beside": beside,
    "both": both,
    "seconds": seconds,
}
