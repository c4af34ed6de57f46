"""Numbers of the files that `head.py` writes: means, paired differences, criteria.

Excess is signed, the mean over pre-ranks whose ties without a method are below `MOST_TIES`.
Differences are paired by seed, with the variance of overlapping splits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from scipy import stats

from discrete import DATASETS as DISCRETE
from perfection import overlap, points
from prerank.datasets import find_dataset
from prerank.preranks import PAPER as PUBLISHED

PAPER = [prerank.label for prerank in PUBLISHED]
UNSEEN = ["average_rank", "band_depth", "energy_score", "directions"]
MOST_TIES = 0.9
RUN = ["dataset", "forecast", "method"]
CHANGES = ["nll_change", "nll_change_trimmed", "nll_change_median"]
BASE, PROTOTYPE, HEAD = (("base", name) for name in ("none", "prototype", "head"))
FIVE = ("ensemble", "head")
SHOWN = [BASE, PROTOTYPE, HEAD, ("ensemble", "none"), FIVE]


class Unit(NamedTuple):
    """How a number is written: a factor, digits and what stands behind it."""

    factor: float = 1.0
    digits: int = 0
    sign: str = "+"
    name: str = ""

    def __call__(self, value: float) -> str:
        """As text, or a dash where there is no number."""
        text = f"{self.factor * value:{self.sign}z.{self.digits}f}{self.name}"
        return "-" if pd.isna(value) else text


PARTS, NATS, PERCENT = Unit(1e4), Unit(digits=3), Unit(100, 2, name=" %")


class Comparison(NamedTuple):
    """A difference of two forecasts, and the largest upper bound that is allowed."""

    column: str
    new: tuple[str, str]
    old: tuple[str, str]
    unit: Unit
    limit: float = float("inf")


COMPARISONS = {
    "excess, head - prototype": Comparison("excess", HEAD, PROTOTYPE, PARTS, 0.002),
    "NLL, head - base": Comparison("nll", HEAD, BASE, NATS, 0.01),
    "energy, head - base": Comparison("energy", HEAD, BASE, PERCENT, 0.005),
    "unseen, head - base": Comparison("unseen", HEAD, BASE, PARTS, 0.003),
    "excess, five - one": Comparison("excess", FIVE, HEAD, PARTS, 0.003),
    "NLL, five - one": Comparison("nll", FIVE, HEAD, NATS),
    "energy, five - one": Comparison("energy", FIVE, HEAD, PERCENT),
}


def read(folder: Path) -> pd.DataFrame:
    """All lines of a folder, without pre-ranks that nearly always tie."""
    paths = sorted(path for path in folder.glob("*.csv") if path.stem != "perfect")
    if not paths:
        raise SystemExit(f"{folder} has no files: experiments/head.py --out {folder} writes them")
    lines = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    count = lines.drop_duplicates([*RUN, "seed"]).groupby(["dataset", "forecast", "method"]).size()
    for dataset, forecast, method in (
        (name, *run) for name in lines.dataset.unique() for run in SHOWN
    ):
        if count.get((dataset, forecast, method)) != lines.seed.nunique():
            raise SystemExit(f"{dataset}: the lines of {forecast}, {method} lack a seed")
    plain = lines[(lines.forecast == "base") & (lines.method == "none")]
    ties = plain.groupby(["dataset", "prerank"]).ties.mean()
    tied = ties[ties > MOST_TIES].index
    return lines[~pd.MultiIndex.from_frame(lines[["dataset", "prerank"]]).isin(tied)]


def by_seed(lines: pd.DataFrame) -> pd.DataFrame:
    """Scores, mean errors and the excess of every pre-rank for each run of a seed."""
    runs = lines.groupby([*RUN, "seed"], sort=False)
    found = runs[["rows", "seconds", "nll", *CHANGES, "energy", "variogram"]].first()
    seen = lines[lines.prerank.isin(PAPER)].groupby([*RUN, "seed"]).squared.mean()
    excess = lines.set_index([*RUN, "seed", "prerank"]).excess.unstack()
    excess = excess.reindex(columns=[*PAPER, *UNSEEN])
    means = {"excess": excess[PAPER].mean(axis=1), "unseen": excess[UNSEEN].mean(axis=1)}
    return found.assign(squared=seen, **means).join(excess)


def upper_bound(values: pd.Series, ratio: float, level: float = 0.95) -> float:
    r"""One-sided bound of a mean over J overlapping splits (Nadeau and Bengio, 2003).

    .. math:: \bar d + t_{J-1} \Big(\frac1J + \frac{n_{test}}{n_{train}}\Big)^{1/2} s

    Args:
        values: a difference for each split.
        ratio: of test rows to training rows.
        level: probability that the bound is above the expectation.

    Example:
        >>> round(upper_bound(pd.Series([1.0, 2.0, 3.0]), ratio=0.25), 3)
        4.23
    """
    return float(values.mean()) + margin(values, ratio, level)


def margin(values: pd.Series, ratio: float, level: float) -> float:
    """Distance of that bound from the mean."""
    count = len(values)
    error = (1 / count + ratio) ** 0.5 * values.std(ddof=1)
    return float(stats.t.ppf(level, count - 1) * error)


class Results:
    """The files of a folder, and what a perfect forecast scores.

    Attributes:
        runs: a line for each dataset, forecast, method and seed.
        means: those over the seeds, with the largest pre-rank and relative changes of scores.
        perfect: 95 % points of a perfect forecast for each dataset.
    """

    def __init__(self, folder: Path, *, keep: bool = True) -> None:
        self.folder, self.runs = folder, by_seed(read(folder))
        self.means = self.runs.groupby(RUN, sort=False).mean()
        self.means["largest"] = self.means[PAPER].max(axis=1)
        for score in ("energy", "variogram"):
            plain = self.means[score].xs("none", level="method")
            self.means[f"{score}_change"] = self.means[score] / plain - 1
        self.datasets = list(dict.fromkeys(self.means.index.get_level_values("dataset")))
        self.discrete = [name for name in self.datasets if name in DISCRETE]
        self.continuous = [name for name in self.datasets if name not in DISCRETE]
        path = folder / "perfect.csv"
        if not keep:
            pd.DataFrame(self._perfect()).to_csv(path, index=False, float_format="%.4g")
        self.perfect = pd.read_csv(path).set_index("dataset")

    def _perfect(self) -> Iterator[dict[str, object]]:
        seeds = sorted(set(self.runs.index.get_level_values("seed")))
        for dataset in self.datasets:
            found = self.of(*BASE).loc[dataset]
            kept, rest = (list(found[some].dropna().index) for some in (PAPER, UNSEEN))
            targets = find_dataset(dataset).n_targets
            yield {"dataset": dataset} | points(int(found.rows), targets, seeds, kept, rest)

    def of(self, forecast: str, method: str) -> pd.DataFrame:
        """Means of a method by dataset."""
        return self.means.xs((forecast, method), level=("forecast", "method"))

    def compare(self, what: Comparison) -> pd.DataFrame:
        """Mean difference and upper bound by dataset; percentages are parts of the old mean."""
        new, old = (
            self.runs.xs(which, level=("forecast", "method")) for which in (what.new, what.old)
        )
        change = new[what.column] - old[what.column]
        if what.unit is PERCENT:
            change = change / old[what.column].groupby("dataset").mean()
        found = {}
        for dataset, values in change.groupby("dataset", sort=False):
            bound = upper_bound(values, overlap(int(old.rows[dataset].iloc[0])))
            found[dataset] = {"mean": values.mean(), "bound": bound}
        return pd.DataFrame(found).T
