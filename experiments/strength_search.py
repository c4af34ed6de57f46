"""What a search for the strength of a penalty costs, and how good the network is that it returns.

    PRERANK_DATA=data python experiments/strength_search.py --search grid --out results.csv
    PRERANK_DATA=data python experiments/strength_search.py --search stages --out results.csv
    python experiments/strength_search.py --page --out results.csv

`grid` trains strengths 3 to 300, and beyond where the best one lies there, on all splits to the
stop; `stages` is the search of the regressors. Each dataset, pre-rank and seed is one fit as
`MixtureRegressor(method="network", strength="auto")` makes it, of 2,000 rows at most; targets are
taken as continuous. The network that is returned is judged on at most 2,000 test rows of the
published split: excess of the pre-rank of the penalty, energy score and negative log-likelihood,
each beside the same network before the penalty. A run-epoch is an epoch of one run of the stack;
those with the penalty are counted. Lines that the file has already are not computed again.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from scipy.stats import ttest_1samp

from prerank import CalibrationPenalty, defaults
from prerank.datasets import PUBLISHED_SEEDS, load_table, published_split
from prerank.models import MixtureNetwork
from prerank.preranks import parse
from prerank.training import Partition, Settings, TrainingData, evaluate, train_calibrated

ROWS, TEST_ROWS = 2_000, 2_000
SPLITS = 3
SETTINGS = Settings(min_steps=10, tuning_patience=1, tuning_rate=0.3)
KEYS = ("dataset", "prerank", "seed", "search")


def fit(name: str, label: str, seed: int, search: str) -> dict[str, Any]:
    """One fit, its cost, and its network on test rows."""
    table = load_table(name)
    split = published_split(len(table.x), seed)
    pool, test = torch.cat([split.train, split.validation])[:ROWS], split.test[:TEST_ROWS]
    x, y = (torch.as_tensor(part).double() for part in (table.x, table.y))
    partition = Partition.single(len(pool), splits=SPLITS, seed=seed)
    data = TrainingData.build(x[pool], y[pool], partition.splits)
    network = MixtureNetwork(x.shape[1], y.shape[1])
    begun = time.process_time()
    training = train_calibrated(
        network,
        data,
        partition.runs,
        penalty=CalibrationPenalty(label),
        strength="stages" if search == "stages" else "auto",
        nll_budget=defaults.NLL_BUDGET,
        returned=partition.members,
        settings=SETTINGS,
    )
    seconds = time.process_time() - begun
    assert training.base is not None
    returned = [training.base[0], training.trained[training.strength].theta[0]]
    inputs = data.x_scaler(x[test], clip=True)[:1].expand(2, -1, -1).float()
    targets = data.y_scaler(y[test])[:1].expand(2, -1, -1).float()
    judged = evaluate(network, torch.stack(returned), inputs, targets, parse(label))
    excess, energy, nll = judged.excess(parse(label)[0].label), judged.energy, judged.nll
    penalised = [result for _, result in training.stages[1:]]
    return {
        "dataset": name,
        "prerank": label,
        "seed": seed,
        "search": search,
        "strength": training.strength,
        "excess_before": float(excess[0]),
        "excess": float(excess[1]),
        "energy_ratio": float(energy[1] / energy[0]),
        "nll_change": float(nll[1] - nll[0]),
        "epochs": sum(int(result.epochs.sum()) for result in penalised),
        "after_best": sum(int((r.epochs - r.best_epoch).sum()) for r in penalised),
        "plain_epochs": int(training.stages[0][1].epochs.sum()),
        "seconds": seconds,
    }


def missing(table: pd.DataFrame, options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """What the file has not."""
    known = set() if table.empty else set(table[list(KEYS)].itertuples(index=False, name=None))
    for seed in options.seeds:
        for label in options.preranks:
            for name in options.datasets:
                if (name, label, seed, options.search) not in known:
                    yield name, label, seed, options.search


def page(table: pd.DataFrame) -> str:
    """Markdown: means over the seeds, and paired differences with p-values of a t-test."""
    lines = [
        "| dataset | pre-rank | before | grid | stages | difference | p | NLL | energy | epochs |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (name, label), part in table.groupby(["dataset", "prerank"], sort=False):
        grid, stages = (
            part[part.search == search].set_index("seed").sort_index()
            for search in ("grid", "stages")
        )
        gap = 1e4 * (stages.excess - grid.excess)
        same = bool((gap == 0).all())
        p_value = 1.0 if same else float(ttest_1samp(gap, 0).pvalue)
        cells = [
            *(name, label, f"{1e4 * grid.excess_before.mean():.0f}"),
            *(f"{1e4 * search.excess.mean():.0f}" for search in (grid, stages)),
            f"{gap.mean():+.0f} ± {gap.sem():.0f}",
            f"{p_value:.2f}",
            f"{(stages.nll_change - grid.nll_change).mean():+.2f}",
            f"{100 * (stages.energy_ratio - grid.energy_ratio).mean():+.1f} %",
            f"{stages.epochs.sum() / max(grid.epochs.sum(), 1):.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for search, part in table.groupby("search"):
        after = part.after_best.sum() / part.epochs.sum()
        lines.append(f"\n{search}: {part.epochs.mean():.0f} epochs, {after:.0%} after the best")
    return "\n".join(lines)


def main() -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search", choices=["grid", "stages"], default="stages")
    parser.add_argument("--page", action="store_true", help="compute nothing, print the table")
    parser.add_argument("--datasets", nargs="+", default=["households", "air", "births2"])
    parser.add_argument("--preranks", nargs="+", default=["marginal", "hdr"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--out", type=Path, default=Path("strength_search.csv"))
    options = parser.parse_args()
    table = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame()
    if options.page:
        print(page(table))
        return
    for what in list(missing(table, options)):
        line = fit(*what)
        table = pd.concat([table, pd.DataFrame([line])])
        table.to_csv(options.out, index=False, float_format="%.6g")
        print(
            " ".join(f"{n} {v:.4g}" if isinstance(v, float) else f"{v}" for n, v in line.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
