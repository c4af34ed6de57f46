"""The tables of `docs/results/rivals.md`, README and home, from the files of `headline.py`.

`claims.py` puts each text between its markers on the pages. Excess is the signed mean over the
pre-ranks of the paper that apply and of which at most `MOST_TIES` of the ranks are tied, in units
of .0001; *unseen* that of average rank, band depth, energy score rank and 20 random directions.
Forecasts of continuous targets are judged as they are, those of discrete ones rounded to the values
of the training rows. Numbers are means over datasets, with medians in brackets.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pandas as pd

from discrete import DATASETS as DISCRETE
from head_results import MOST_TIES, PAPER, UNSEEN
from inference import LEVEL, adjusted, dataset_interval, overlap_p
from marked_pages import markdown
from perfection import table_rows
from prerank.datasets import published_split

RUN = ["dataset", "judged", "forecast", "method"]
CONTINUOUS, ROUNDED, AS_IS = "continuous", "discrete, rounded", "discrete, as they are"
NAMES = {
    ("base", "none"): "likelihood alone",
    ("paper", "none"): "the paper's penalty",
    ("exact", "none"): "exact penalty",
    ("base", "margins"): "recalibrated margins",
    ("base", "regions"): "recalibrated regions",
    ("base", "head"): "calibration head",
    ("ensemble", "none"): "five networks",
    ("ensemble", "head"): "five networks and a head",
}
OF_MORE_ROWS = ("margins", "regions", "head")
"""Methods that are fitted to the calibration rows, too."""
_SHORT = ["alone", "paper", "exact", "margins", "regions", "head", "five", "five + head"]
SHORT = dict(zip(NAMES.values(), _SHORT, strict=True))
SIX = [name for name in NAMES.values() if name not in ("recalibrated regions", "five networks")]


@cache
def read(tables: Path) -> pd.DataFrame:
    """A line for each run: scores relative to likelihood alone, and mean errors.

    Columns: `kind`, the keys of `RUN`, `seed`, `name`, `excess`, `unseen`, `nll`, `energy`,
    `variogram` (relative changes), `seconds` and `rows`.
    """
    paths = sorted((tables / "headline").glob("*.csv"))
    lines = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    lines = lines[pd.MultiIndex.from_frame(lines[["forecast", "method"]]).isin(list(NAMES))]
    base = lines[(lines.forecast == "base") & (lines.method == "none")]
    ties = base.groupby(["dataset", "judged", "prerank"]).ties.mean()
    tied = pd.MultiIndex.from_frame(lines[["dataset", "judged", "prerank"]])
    lines = lines[~tied.isin(ties[ties > MOST_TIES].index)]
    keys = [*RUN, "seed"]
    scores = ["rows", "seconds", "nll_change", "energy", "variogram"]
    runs = lines.groupby(keys, sort=False)[scores].first().rename(columns={"nll_change": "nll"})
    each = lines.set_index([*keys, "prerank"]).excess.unstack()[[*PAPER, *UNSEEN]]
    runs = runs.join(each)
    for name, labels in (("excess", PAPER), ("unseen", UNSEEN)):
        runs[name] = lines[lines.prerank.isin(labels)].groupby(keys).excess.mean()
    runs = runs.reset_index()
    same = ["dataset", "judged", "seed"]
    plain = runs[(runs.forecast == "base") & (runs.method == "none")].set_index(same)
    at = pd.MultiIndex.from_frame(runs[same])
    for score in ("energy", "variogram"):
        runs[score] = runs[score] / plain[score].reindex(at).to_numpy() - 1
    for error in ("excess", "unseen"):
        runs[f"{error}_change"] = runs[error] - plain[error].reindex(at).to_numpy()
    discrete = runs.dataset.isin(DISCRETE)
    runs["kind"] = CONTINUOUS
    runs.loc[discrete & (runs.judged == "values"), "kind"] = ROUNDED
    runs.loc[discrete & (runs.judged == "density"), "kind"] = AS_IS
    runs["name"] = [NAMES[pair] for pair in zip(runs.forecast, runs.method, strict=True)]
    return runs


def means(tables: Path, kind: str) -> pd.DataFrame:
    """Means over the seeds, by name and dataset."""
    runs = read(tables)
    numbers = runs[runs.kind == kind].drop(columns=[*RUN[1:], "kind"])
    return numbers.groupby(["name", "dataset"], sort=False).mean()


def middle(values: pd.Series, factor: float, form: str) -> str:
    """Mean over datasets, and their median."""
    return f"{factor * values.mean():{form}} ({factor * values.median():{form}})"


def compared(tables: Path, kind: str) -> str:
    """One line for each method: means over datasets, and on how many it is better and worse."""
    found, lines = means(tables, kind), []
    for name in NAMES.values():
        own = found.loc[name]
        line = [name, middle(own.excess, 1e4, ".0f"), *[""] * 2, middle(own.unseen, 1e4, ".0f")]
        line += [""] * 3
        if name != SIX[0]:
            low, high = dataset_interval(1e4 * own.excess_change, "mean")
            better, worse = _certain(tables, kind, name)
            line[2] = f"{1e4 * own.excess_change.mean():+.0f} ({low:+.0f}, {high:+.0f})"
            line[3] = f"{better}, {worse}"
            line[5] = "" if own.nll.isna().all() else middle(own.nll, 1, "+.2f")
            line[6:] = [middle(own[score], 100, "+.1f") for score in ("energy", "variogram")]
        lines.append(line)
    head = ["forecast", "excess", "change (95 %)", "better, worse", "unseen", "NLL", "energy %"]
    return markdown([*head, "variogram %"], lines)


def _certain(tables: Path, kind: str, name: str) -> tuple[int, int]:
    """On how many datasets the excess is lower and higher, at a false discovery rate of 5 %."""
    runs = read(tables)
    runs = runs[(runs.kind == kind) & (runs.name == name)]
    more = runs.method.iloc[0] in OF_MORE_ROWS
    by = runs.groupby("dataset")
    change, error = by.excess_change.mean(), by.excess_change.sem()
    ratios = [_ratio(int(rows), more) for rows in by.rows.first()]
    sure = adjusted(overlap_p(change, error, int(by.size().iloc[0]), ratios)) < LEVEL
    return int((sure & (change < 0)).sum()), int((sure & (change > 0)).sum())


def _ratio(judged: int, more: bool) -> float:
    """Judged rows over those that a method was fitted to."""
    split = published_split(table_rows(judged), seed=0)
    fitted = len(split.train) + len(split.validation) + more * len(split.calibration)
    return judged / fitted


def by_prerank(tables: Path, kind: str) -> str:
    """Excess of every method by pre-rank, mean over the datasets that have it."""
    runs = read(tables)
    wanted = runs[runs.kind == kind][["name", "dataset", *PAPER, *UNSEEN]]
    excess = 1e4 * wanted.groupby(["name", "dataset"]).mean().groupby("name").mean()
    lines = [
        [name, *("" if pd.isna(value) else f"{value:.0f}" for value in excess.loc[name])]
        for name in NAMES.values()
    ]
    return markdown(["forecast", *PAPER, *(label.replace("_", " ") for label in UNSEEN)], lines)


def by_dataset(tables: Path, kind: str) -> str:
    """Excess of every method on every dataset."""
    excess = 1e4 * means(tables, kind).excess.unstack("name")
    lines = [
        [name, *(f"{row[method]:.0f}" for method in NAMES.values())]
        for name, row in excess.iterrows()
    ]
    return markdown(["dataset", *SHORT.values()], lines)


def headline(tables: Path) -> str:
    """Six lines: what each way leaves, and what it costs."""
    parts = {kind: means(tables, kind) for kind in (CONTINUOUS, ROUNDED)}
    lines = []
    for name in SIX:
        own, rounded = (part.loc[name] for part in parts.values())
        plain = name == SIX[0]
        lines.append(
            [
                name,
                middle(own.excess, 1e4, ".0f"),
                middle(own.unseen, 1e4, ".0f"),
                "" if plain else middle(own.nll, 1, "+.2f"),
                "" if plain else middle(own.energy, 100, "+.1f"),
                middle(rounded.excess, 1e4, ".0f"),
            ]
        )
    head = ["forecast", "excess error", "unseen pre-ranks", "NLL", "energy score %"]
    return markdown([*head, "discrete targets"], lines)


BLOCKS: dict[str, Callable[[Path], str]] = {
    "headline": headline,
    "compared_continuous": partial(compared, kind=CONTINUOUS),
    "compared_rounded": partial(compared, kind=ROUNDED),
    "compared_as_is": partial(compared, kind=AS_IS),
    "preranks_continuous": partial(by_prerank, kind=CONTINUOUS),
    "datasets_continuous": partial(by_dataset, kind=CONTINUOUS),
    "datasets_rounded": partial(by_dataset, kind=ROUNDED),
}
