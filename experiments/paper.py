"""The paper's tables from finished studies; `claims.py` has what they say.

    prerank study run paper-as-published --out published
    prerank study run paper-exact --out exact
    python experiments/paper.py --published published --exact exact --out docs/results/tables

Each study has a table with one line per seed, `published_seeds.csv` and `exact_seeds.csv`; the
other tables are made from it. Several folders on either side are taken together, and rows that the
tables hold of other units stay, so that a study may be split over machines and days.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd

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
    """Write the tables."""
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
    order["prerank"] = LABELS
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


def read_crossed(out: Path) -> pd.DataFrame:
    """All cross tables of a folder."""
    paths = {dataset: out / f"cross_{dataset}.csv" for dataset in CROSSED}
    found = [pd.read_csv(path).assign(dataset=d) for d, path in paths.items() if path.exists()]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


if __name__ == "__main__":
    main()
