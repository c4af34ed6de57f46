"""The paper's tables from finished studies, and what they say of its claims.

    prerank study run paper-as-published --out published
    prerank study run paper-exact --out exact
    python experiments/paper.py --published published --exact exact --out docs/results/tables

Each study has a table with one line per seed, `published_seeds.csv` and `exact_seeds.csv`; the
other tables are made from it. Several folders on either side are taken together, and rows that the
tables hold of other units stay, so that a study may be split over machines and days. Without
folders, the claims are read off the tables as they are.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from inference import LEVEL, judged_gains
from prerank.datasets import find_dataset, published_split
from prerank.preranks import PAPER
from prerank.study import Plan, Store, tables

CROSSED = ("households", "air", "births2", "scm20d", "wq")
UNFAITHFUL = ("calcofi", "taxi")
"""Datasets whose copies differ from those of the published runs."""
STUDIES = {"published": "paper-as-published", "exact": "paper-exact"}
LABELS = [prerank.label for prerank in PAPER]
COLUMNS = ["dataset", "prerank", "mean", "se", "runs", "strength", "energy", "nll"]
UNIT = ["dataset", "variant"]
LINE = [*UNIT, "seed", "prerank"]


def main() -> None:
    """Write the tables, and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--published", type=Path, nargs="*", default=[])
    parser.add_argument("--exact", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, preset in STUDIES.items():
        folders = getattr(options, name)
        if folders:
            collect(read(folders, Plan.preset(preset)), name, options.out)
    combine(options.out)
    print("\n\n".join("\n".join(lines) for lines in claims(options.out)))


def read(folders: list[Path], preset: Plan) -> pd.DataFrame:
    """Results of studies that are parts of a preset; a unit that several have counts once."""
    found: list[pd.DataFrame] = []
    units: set[tuple[str, str]] = set()
    for folder in folders:
        store = Store(folder)
        part = {"name": store.plan.name, "datasets": preset.datasets, "variants": preset.variants}
        if replace(store.plan, **part) != replace(preset, name=store.plan.name):
            raise SystemExit(f"{folder} is no part of {preset.name}: its settings are others")
        for unit, rows in store.results().groupby(["dataset", "variant"], sort=False):
            if unit not in units:
                units.add(unit)
                found.append(rows)
    return pd.concat(found, ignore_index=True)


def collect(results: pd.DataFrame, name: str, out: Path) -> None:
    """Put what a study has found into the tables."""
    add(seed_lines(results), out / f"{name}_seeds.csv", LINE)
    results = pd.read_csv(out / f"{name}_seeds.csv").assign(part="test", selected=True)
    before = tables.before(results).assign(strength=0.0)
    for which, table in (("before", before), ("after", tables.after(results))):
        rest = [column for column in table.columns if column not in COLUMNS]
        add(table[[*COLUMNS, *rest]], out / f"{name}_{which}.csv", ["dataset", "prerank"])
    add(results.groupby(UNIT, as_index=False).seconds.first(), out / f"{name}_seconds.csv", UNIT)
    for dataset in CROSSED:
        crossed = tables.cross(results, dataset).assign(study=name)
        add(crossed, out / f"cross_{dataset}.csv", ["study", "variant", "prerank"])


def seed_lines(results: pd.DataFrame) -> pd.DataFrame:
    """What every chosen run scores on its test rows, by judged pre-rank."""
    final = results[(results.part == "test") & results.selected].copy()
    final["excess"] = final.pce - final.floor
    shown = [*LINE, "strength", "pce", "floor", "excess", "n", "energy", "nll", "variogram"]
    reported = [column for column in final.columns if column.startswith("published_")]
    return final[[*shown, *reported, "epochs", "seconds"]]


def add(table: pd.DataFrame, path: Path, keys: list[str]) -> None:
    """Put rows into a file, in the order of the studies; they replace those of the same keys."""
    if path.exists():
        table = pd.concat([pd.read_csv(path), table], ignore_index=True)
        table = table.drop_duplicates(keys, keep="last")
    plan = Plan.preset("paper-exact")
    order = {"study": list(STUDIES), "dataset": plan.datasets, "variant": plan.variants}
    table = table.sort_values(
        [key for key in keys if key in order],
        key=lambda column: column.map({name: at for at, name in enumerate(order[column.name])}),
        kind="stable",
    )
    write(table, path)


def combine(out: Path) -> None:
    """Set pre-ranks that are penalised together beside each alone, from the cross tables."""
    crossed = read_crossed(out)
    for name in STUDIES if len(crossed) else ():
        own, seconds = crossed[crossed.study == name], out / f"{name}_seconds.csv"
        if len(own):
            write(tables.in_company(own.merge(pd.read_csv(seconds))), out / f"{name}_combined.csv")


def write(table: pd.DataFrame, path: Path) -> None:
    """As CSV, with as many digits as mean something."""
    table.to_csv(path, index=False, float_format="%.5g")


def claims(out: Path) -> Iterator[Iterator[str]]:
    """What the tables of a folder say."""
    for name, judge in (("published", reproduction), ("exact", correction)):
        if (out / f"{name}_after.csv").exists():
            yield judge(
                *(pd.read_csv(out / f"{name}_{which}.csv") for which in ("before", "after"))
            )
    if (crossed := read_crossed(out)).empty:
        return
    yield crossings(crossed[crossed.study == "published"])
    yield pairs(crossed[crossed.study == "exact"])
    for name in STUDIES:
        path = out / f"{name}_combined.csv"
        if path.exists():
            yield costs(pd.read_csv(path), name)


def reproduction(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[str]:
    """How many of the published cells come out again, and what the penalty did in truth."""
    for which, table in (("before", before), ("after", after)):
        cells = table[~table.dataset.isin(UNFAITHFUL) & table.paper.notna()]
        off = cells["mean"] - cells.paper
        near = off.abs() <= np.maximum(0.02, 3 * np.hypot(cells.se, cells.paper_se))
        yield f"as published, {which}: {near.sum()} of {len(cells)} cells come out again"
        missed = cells.assign(off=off)[~near]
        if len(missed):
            yield missed[["dataset", "prerank", "paper", "mean", "se", "off"]].to_string(
                index=False
            )
    yield page(after)
    yield from changes("exact calibration after the published penalty", after)


def correction(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[str]:
    """What the default penalty reaches, judged exactly."""
    yield page(after)
    yield from changes("exact calibration after the exact penalty", after)
    before, after = (table.set_index(["dataset", "prerank"]) for table in (before, after))
    start = before.excess.reindex(after.index)
    rows = [test_rows(dataset) for dataset in after.index.get_level_values("dataset")]
    judged = after.assign(before=start, reduction=1 - after.excess / start, rows=rows)
    judged = judged[(judged.before > 0.02) & (judged.rows >= 1000)]
    yield (
        f"where the excess was above .02 with 1,000 test rows or more ({len(judged)} cells): "
        f"reduced by {judged.reduction.median():.0%} in the median, "
        f"{judged.reduction.min():.0%} to {judged.reduction.max():.0%}; "
        f"energy score {judged.energy_ratio.median() - 1:+.1%} in the median, "
        f"at most {judged.energy_ratio.max() - 1:+.1%}"
    )
    yield judged[["before", "excess", "reduction", "strength", "energy_ratio"]].round(4).to_string()


def changes(what: str, after: pd.DataFrame) -> Iterator[str]:
    """In how many cells the excess is higher, and lower, by tests and by the means alone."""
    cells = judged_gains(after)
    yield f"{what}, {len(cells)} trained cells"
    rules = {
        "t of five overlapping splits, p < .05": cells.p_value < LEVEL,
        "false discovery rate .05": cells.p_adjusted < LEVEL,
        "by the means alone": cells.gain != 0,
    }
    for rule, found in rules.items():
        worse, better = ((found & side).sum() for side in (cells.gain < 0, cells.gain > 0))
        yield f"{rule}: worse in {worse}, better in {better}"


def page(after: pd.DataFrame) -> str:
    """Excess before and after in units of .0001, as Markdown; bold where it is certainly worse.

    One number stands where no strength was selected.
    """
    worse = judged_gains(after).query("gain < 0 and p_value < @LEVEL").index
    cells: dict[str, dict[str, str]] = {dataset: {} for dataset in after.dataset}
    for row in after.dropna(subset="gain").itertuples():
        old, new = (round(1e4 * value) for value in (row.excess + row.gain, row.excess))
        told = f"{old} → {new}" if row.strength else f"{old}"
        cells[row.dataset][row.prerank] = f"**{told}**" if row.Index in worse else told
    lines = [["dataset", *LABELS], ["---", *["---:"] * len(LABELS)]]
    lines += [
        [dataset, *(own.get(label, "") for label in LABELS)] for dataset, own in cells.items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def test_rows(dataset: str) -> int:
    """Rows that a dataset is judged by."""
    return len(published_split(find_dataset(dataset).n_rows, seed=0).test)


def read_crossed(out: Path) -> pd.DataFrame:
    """All cross tables of a folder."""
    paths = {dataset: out / f"cross_{dataset}.csv" for dataset in CROSSED}
    found = [pd.read_csv(path).assign(dataset=d) for d, path in paths.items() if path.exists()]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def crossings(crossed: pd.DataFrame) -> Iterator[str]:
    """How many cells of the published cross tables come out again."""
    cells = crossed.dropna(subset="paper")
    off = cells["mean"] - cells.paper
    near = off.abs() <= np.maximum(0.02, 3 * 2**0.5 * cells.se)  # the paper has no errors of these
    yield f"cross tables, as published: {near.sum()} of {len(cells)} cells come out again"
    missed = cells.assign(off=off)[~near]
    yield missed[["dataset", "variant", "prerank", "paper", "mean", "se", "off"]].to_string(
        index=False
    )


def pairs(crossed: pd.DataFrame) -> Iterator[str]:
    """Mean excess of a pre-rank beside margins, and beside principal components."""
    excess = {}
    for other in ("marginal", "pca(0.8)"):
        own = crossed[crossed.variant == other + "+" + crossed.prerank]
        excess[other] = own.groupby("dataset", sort=False).excess.mean()
    yield "exact: mean excess with marginal → pca(0.8), in units of .0001"
    for dataset, row in (1e4 * pd.DataFrame(excess)).round().astype(int).iterrows():
        yield f"{dataset} {row.iloc[0]} → {row.iloc[1]}"


def costs(both: pd.DataFrame, name: str) -> Iterator[str]:
    """What a pre-rank loses when margins or principal components are penalised with it."""
    for other, group in both.groupby("with"):
        yield (
            f"{name}: {other} with a pre-rank raises its error by {group.increase.mean():+.0%} in "
            f"the mean of {len(group)} cells, {group.increase.median():+.0%} in the median, and "
            f"changes the energy score by {group.energy_ratio.median() - 1:+.1%} in the median; "
            f"seconds x {group.seconds_ratio.median():.2f}"
        )
        yield by_dataset(group.pivot(index="dataset", columns="prerank", values="increase"))
    wide = both.pivot(index=["dataset", "prerank"], columns="with", values="together").dropna()
    yield f"{name}: pca(0.8) with a pre-rank against marginal with it"
    yield by_dataset((wide["pca(0.8)"] / wide["marginal"] - 1).unstack())


def by_dataset(rises: pd.DataFrame) -> str:
    """Relative rises by dataset and pre-rank, with their means."""
    return rises.assign(mean=rises.mean(axis=1)).round(3).to_string()


if __name__ == "__main__":
    main()
