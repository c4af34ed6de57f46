"""The paper's tables from finished studies, and what they say of its claims.

    prerank study run paper-as-published --out published
    prerank study run paper-exact --out exact
    python experiments/paper.py --published published --exact exact --out docs/results/tables

Several folders on either side are taken together, so that a study may be split over machines.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from prerank.study import Store, tables

CROSSED = ("households", "air", "births2", "scm20d", "wq")
UNFAITHFUL = ("calcofi", "taxi")
"""Datasets whose copies differ from those of the published runs."""
COLUMNS = ["dataset", "prerank", "mean", "se", "runs", "strength", "energy", "nll"]


def main() -> None:
    """Write the tables, and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--published", type=Path, nargs="*", default=[])
    parser.add_argument("--exact", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    studies = {name: read(getattr(options, name)) for name in ("published", "exact")}
    studies = {name: results for name, results in studies.items() if len(results)}
    for name, results in studies.items():
        before = tables.before(results).assign(strength=0.0)
        for which, table in (("before", before), ("after", tables.after(results))):
            rest = [column for column in table.columns if column not in COLUMNS]
            write(table[[*COLUMNS, *rest]], options.out / f"{name}_{which}.csv")
        seconds = results.groupby(["dataset", "variant"], as_index=False).seconds.first()
        write(seconds, options.out / f"{name}_seconds.csv")
    for dataset in CROSSED:
        crossed = [tables.cross(r, dataset).assign(study=name) for name, r in studies.items()]
        if crossed and any(map(len, crossed)):
            write(pd.concat(crossed, ignore_index=True), options.out / f"cross_{dataset}.csv")
    if "published" in studies:
        print("\n".join(reproduction(studies["published"])), end="\n\n")
    if "exact" in studies:
        print("\n".join(correction(studies["exact"])), end="\n\n")
    for name, results in studies.items():
        both = tables.combined(results)
        if len(both):
            write(both, options.out / f"{name}_combined.csv")
            print("\n".join(company(both, name)), end="\n\n")


def read(folders: list[Path]) -> pd.DataFrame:
    """Results of several studies of one protocol; a unit that several have counts once."""
    if not folders:
        return pd.DataFrame()
    results = pd.concat([Store(folder).results() for folder in folders], ignore_index=True)
    return results.drop_duplicates(["dataset", "variant", "strength", "seed", "part", "prerank"])


def write(table: pd.DataFrame, path: Path) -> None:
    """As CSV, with as many digits as mean something."""
    table.to_csv(path, index=False, float_format="%.5g")


def reproduction(results: pd.DataFrame) -> Iterator[str]:
    """How many of the published cells come out again, and what the penalty did in truth."""
    for which, table in (("before", tables.before(results)), ("after", tables.after(results))):
        cells = table[~table.dataset.isin(UNFAITHFUL) & table.paper.notna()]
        off = cells["mean"] - cells.paper
        near = off.abs() <= np.maximum(0.02, 3 * np.hypot(cells.se, cells.paper_se))
        yield f"as published, {which}: {near.sum()} of {len(cells)} cells come out again"
        missed = cells.assign(off=off)[~near]
        if len(missed):
            yield missed[["dataset", "prerank", "paper", "mean", "se", "off"]].to_string(
                index=False
            )
    after = tables.after(results).dropna(subset="gain")  # the dependency of two targets has none
    worse, better = after.gain < -2 * after.gain_se, after.gain > 2 * after.gain_se
    yield (
        f"exact calibration after the published penalty: worse than before in {worse.sum()} of "
        f"{len(after)} cells beyond two standard errors, better in {better.sum()}; "
        f"{(after.gain < 0).sum()} and {(after.gain > 0).sum()} by the means alone"
    )


def correction(results: pd.DataFrame) -> Iterator[str]:
    """What the default penalty reaches, judged exactly."""
    before = tables.before(results).set_index(["dataset", "prerank"])
    after = tables.after(results).set_index(["dataset", "prerank"])
    kept = after.excess <= before.excess.reindex(after.index) + 2 * after.gain_se
    yield f"exact: no harm beyond two standard errors in {kept.sum()} of {len(after)} cells"
    harmed = after[~kept]
    if len(harmed):
        yield harmed[["excess", "gain", "gain_se", "strength", "energy_ratio"]].round(4).to_string()
    start = before.excess.reindex(after.index)
    rows = results[results.part == "test"].groupby("dataset").n.first()
    large = rows.reindex(after.index.get_level_values("dataset")).to_numpy() >= 1000
    judged = after.assign(before=start, reduction=1 - after.excess / start)[(start > 0.02) & large]
    yield (
        f"where the excess was above .02 with 1,000 test rows or more ({len(judged)} cells): "
        f"reduced by {judged.reduction.median():.0%} in the median, "
        f"{judged.reduction.min():.0%} to {judged.reduction.max():.0%}; "
        f"energy score {judged.energy_ratio.median() - 1:+.1%} in the median, "
        f"at most {judged.energy_ratio.max() - 1:+.1%}"
    )
    yield judged[["before", "excess", "reduction", "strength", "energy_ratio"]].round(4).to_string()


def company(both: pd.DataFrame, name: str) -> Iterator[str]:
    """What a pre-rank loses when margins or principal components are penalised with it."""
    for other, group in both.groupby("with"):
        yield (
            f"{name}: {other} with a pre-rank raises its error by {group.increase.mean():+.0%} in "
            f"the mean of {len(group)} cells, {group.increase.median():+.0%} in the median, and "
            f"changes the energy score by {group.energy_ratio.median() - 1:+.1%} in the median; "
            f"seconds x {group.seconds_ratio.median():.2f}"
        )
        yield claim(group.pivot(index="dataset", columns="prerank", values="increase"))
    wide = both.pivot(index=["dataset", "prerank"], columns="with", values="together").dropna()
    rise = (wide["pca(0.8)"] / wide["marginal"] - 1).unstack()
    yield f"{name}: pca(0.8) with a pre-rank against marginal with it"
    yield claim(rise)


def claim(rises: pd.DataFrame) -> str:
    """Relative rises by dataset and pre-rank, with their means."""
    return rises.assign(mean=rises.mean(axis=1)).round(3).to_string()


if __name__ == "__main__":
    main()
