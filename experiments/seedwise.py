"""What studies of the calibration head share: one network per seed, lines of CSV, Markdown tables.

A study yields lines with the columns of `head.py`, and the number of training rows, for one dataset
and seed. Every dataset has a file; seeds that it has already are not computed again.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Distribution

from head import UNSEEN, judge, scores
from head_results import margin
from prerank import CalibrationHead, Ensemble, GaussianMixture, nll
from prerank.datasets import PUBLISHED_SEEDS, Table
from prerank.models import FlowNetwork, MixtureNetwork
from prerank.models.members import FlowMixture
from prerank.training import Run, Settings, TrainingData, train

Forecast = tuple[Any, Tensor]
Fit = Callable[[Any, Tensor, int], Callable[[Any], Distribution]]
Line = dict[str, Any]

TEST_ROWS = 2_000
FITTED = ("validation", "calibration")
LEGEND = """\
*Excess* is the mean over the pre-ranks of the paper that apply, in units of .0001, signed;
*largest* the pre-rank with the largest one; *unseen* the mean over average rank, band depth, energy
score rank and 20 random directions, which no method is fitted to. Changes are relative to the
forecast itself: excess in .0001, NLL in nats per row, energy score in percent; negative is better.
± is half of a 95 % interval over seeds (t distribution, variance of overlapping splits after Nadeau
and Bengio). Pre-ranks with nearly all ranks tied are left out. *Seconds* are those of the fit, on
one core."""
_TIED = 0.95  # share of ties from which on a pre-rank has no power
_UNSEEN = (*UNSEEN.split("+"), "directions")


def fit_none(dist: Any, y: Tensor, seed: int) -> Callable[[Any], Distribution]:
    """The forecast as it is."""
    return lambda new: new


def fit_head(dist: Any, y: Tensor, seed: int) -> CalibrationHead:
    """The head with its defaults."""
    return CalibrationHead(seed=seed).fit(dist, y)


class Trained:
    """A network that is trained by likelihood on parts of the rows, and its forecasts of others.

    Args:
        form: class of the network.
        table: inputs and targets.
        parts: row numbers; `train` and `validation` are those of the training.
        seed: of the training.
        settings: of the training; the published ones by default.
    """

    def __init__(
        self,
        form: type[MixtureNetwork | FlowNetwork],
        table: Table,
        parts: dict[str, Tensor],
        seed: int,
        settings: Settings | None = None,
    ) -> None:
        rows = parts["train"], parts["validation"]
        data = TrainingData.build(table.x, table.y, [rows])
        self.network = form(table.x.shape[1], table.y.shape[1])
        self.theta = train(self.network, data, [Run(seed)], settings=settings or Settings()).theta
        self.x, self.y, self.parts = data.x[0], data.y[0], parts

    def forecast(self, *parts: str, most: int | None = None) -> Forecast:
        """Predictions and observations of the first rows of some parts, in standardised units."""
        rows = torch.cat([self.parts[part] for part in parts])[:most]
        x, y = self.x[rows], self.y[rows]
        if isinstance(self.network, FlowNetwork):
            return FlowMixture([self.network.distribution(self.theta[0], x)]), y
        with torch.no_grad():
            dist = self.network(self.theta, x[None])
        return GaussianMixture(dist.logits[0], dist.loc[0], dist.scale_tril[0]), y


def judged(
    about: Line, fit: Fit, known: Forecast, tests: dict[str, Forecast], seed: int
) -> Iterator[Line]:
    """Lines of one method that is fitted to `known`, for every forecast of `tests`."""
    begun = time.perf_counter()
    change = fit(*known, seed)
    about = about | {"seconds": time.perf_counter() - begun}
    for forecast, (dist, y) in tests.items():
        none = torch.full_like(y[..., 0], torch.nan)  # members have no density
        before = none if isinstance(dist, Ensemble) else nll(dist, y)
        after = change(dist)
        line = about | {"forecast": forecast, "rows": len(y), **scores(after, y, before, seed)}
        for row in judge(after, y, seed):
            yield line | row


def untied(table: pd.DataFrame) -> pd.DataFrame:
    """Without pre-ranks whose ties are near 1 for some seed or method of a forecast."""
    ties = table.groupby(["dataset", "forecast", "prerank"]).ties.transform("max")
    return table[ties < _TIED]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One line for each dataset, forecast, method and seed; changes are relative to `none`.

    `excess` is the mean over the pre-ranks of the paper, `unseen` over the others.
    """
    kept = untied(table)
    keys = ["dataset", "forecast", "method", "seed"]
    unseen = kept.prerank.isin(_UNSEEN)
    columns = ["rows", "trained", "seconds", "nll_change", "energy"]
    lines = kept.groupby(keys, sort=False)[columns].first()
    lines["excess"] = kept[~unseen].groupby(keys).excess.mean()
    lines["unseen"] = kept[unseen].groupby(keys).excess.mean()
    none = lines.xs("none", level="method")
    lines = lines.reset_index("method")
    lines["excess_change"] = lines.excess - none.excess.reindex(lines.index)
    lines["energy_change"] = 100 * (lines.energy / none.energy.reindex(lines.index) - 1)
    return lines.reset_index()


def half_width(values: pd.Series, test_rows: float, training_rows: float) -> float:
    r"""Half of the 95 % interval of a mean over k splits that overlap (Nadeau and Bengio, 2003).

    .. math:: t_{k-1, .975} \, s \sqrt{1 / k + n_{test} / n_{train}}
    """
    return margin(values, test_rows / training_rows, 0.975)


def markdown(table: pd.DataFrame) -> list[str]:
    """Markdown table of means over seeds; excess in units of .0001."""
    lines = [
        "| dataset | forecast | method | excess | change | largest | unseen | NLL | energy score "
        "| seconds |",
        "|---|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    kept = untied(table)
    paper = kept[~kept.prerank.isin(_UNSEEN)]
    keys = ["dataset", "forecast", "method"]
    by_prerank = paper.groupby([*keys, "prerank"]).excess.mean()
    means = summary(table)
    for name in keys[:2]:  # in the order of the study
        means[name] = pd.Categorical(means[name], means[name].unique())
    means = means.sort_values(keys[:2], kind="stable")
    for names, seeds in means.groupby(keys, sort=False, observed=True):
        key: Any = names
        worst = by_prerank.loc[key]
        changes = [
            _change(seeds, "excess_change", "+.0f", 1e4),
            _change(seeds, "nll_change", "+.3f"),
            _change(seeds, "energy_change", "+.2f", unit=" %"),
        ]
        excess, nats, energy = ["", "", ""] if key[-1] == "none" else changes
        cells = [
            *map(str, key),
            f"{1e4 * seeds.excess.mean():.0f}",
            excess,
            f"{worst.idxmax()} {1e4 * worst.max():.0f}",
            f"{1e4 * seeds.unseen.mean():.0f}",
            nats,
            energy,
            f"{seeds.seconds.mean():.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _change(seeds: pd.DataFrame, name: str, form: str, factor: float = 1.0, unit: str = "") -> str:
    values = factor * seeds[name]
    if values.isna().all():
        return ""  # members have no likelihood
    half = half_width(values, seeds.rows.mean(), seeds.trained.mean())
    noise = "" if math.isnan(half) else f" ± {half:{form.lstrip('+')}}"
    return f"{values.mean():{form}}{noise}{unit}"


def command(
    text: str,
    datasets: Iterable[str],
    records: Callable[[str, int], Iterator[Line]],
    page: Callable[[pd.DataFrame], str],
) -> None:
    """Compute what the files in a folder do not have yet, or print them as Markdown."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the CSV files")
    parser.add_argument("--datasets", nargs="+", default=list(datasets))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--page", action="store_true", help="compute nothing, print the tables")
    options = parser.parse_args()
    paths = {name: options.out / f"{name}.csv" for name in options.datasets}
    if options.page:
        tables = [pd.read_csv(path) for path in paths.values() if path.exists()]
        print(page(pd.concat(tables)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        table = pd.read_csv(path) if path.exists() else pd.DataFrame({"seed": []})
        for seed in options.seeds:
            if seed in set(table.seed):
                continue
            begun = time.perf_counter()
            lines = pd.DataFrame(records(name, seed))
            table = lines if table.empty else pd.concat([table, lines])
            table.to_csv(path, index=False, float_format="%.6g")
            print(f"{name}, seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
