"""Which rows a calibration head is fitted to: validation rows, or all rows by cross-fitting.

    PRERANK_DATA=data python experiments/crossfit.py --out crossfit.csv [--datasets air house]

For each dataset and seed a table of 1,000 rows, or all that the published split does not keep for
the test, is given to the networks and their head. Schemes: `none` has no head; `validation` trains
on 80 % of the rows and fits the head to the 20 % that stop the training; `folds K` cross-fits, with
a fold that stops the training beside the unseen one; in `folds K stopping` the unseen fold itself
stops it. The heads of all seeds are fitted in one stack, with two copies and batches of 512 rows to
be quick, so their seconds are a third of the stack's. Each line has the mean signed excess over the
pre-ranks of the paper on test rows and the largest one.
Lines that are in the file already are replaced.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from head import MAX_ROWS, TEST_ROWS, judge
from prerank import CalibrationHead, GaussianMixture, energy_score, nll
from prerank.datasets import load_table, published_split
from prerank.models import MixtureNetwork
from prerank.models.members import forecast_each, pooled
from prerank.preranks import applicable
from prerank.training import Partition, Settings, TrainingData, forecast_unseen, train

SEEDS = (101, 202, 303)
DATASETS = ("households", "air", "house", "wage", "births2", "scm20d")
SCHEMES = ("none", "validation", "folds 5", "folds 10", "folds 5 stopping")
SETTINGS = Settings(min_steps=10)


def divided(n: int, scheme: str, members: int, seed: int) -> Partition:
    """The rows of a scheme."""
    options: Any = {"members": members, "seed": seed}
    if scheme in ("none", "validation"):
        return Partition.single(n, **options)
    folds = int(scheme.split()[1])
    return Partition.crossed(n, folds=folds, apart="stopping" not in scheme, **options)


def trained(
    x: Tensor, y: Tensor, x_test: Tensor, *, scheme: str, members: int, seed: int
) -> tuple[Any, Tensor, Any]:
    """Forecasts of unseen rows, their observations, and forecasts of test rows."""
    partition = divided(len(x), scheme, members, seed)
    data = TrainingData.build(x, y, partition.splits)
    network = MixtureNetwork(x.shape[1], y.shape[1])
    theta = train(network, data, partition.runs, settings=SETTINGS).theta
    unseen, observed = forecast_unseen(network, data, theta, partition.runs, partition.unseen)
    chosen = list(partition.members)
    splits = [partition.runs[member].split for member in chosen]
    units = data.y_scaler.select(splits).relative_to(data.y_scaler.select([0]))
    inputs = data.x_scaler.select(splits)(x_test, clip=True)
    test = pooled(forecast_each(network, theta[chosen], inputs, *units))
    return unseen, observed, (test, data.y_scaler.select([0]))


def stacked(dists: list[GaussianMixture]) -> GaussianMixture:
    """Forecasts of all seeds, `batch_shape (seeds, N)`."""
    parts = (torch.stack([getattr(d, n) for d in dists]) for n in ("logits", "loc", "scale_tril"))
    return GaussianMixture(*(part.float() for part in parts), validate_args=False)


def records(name: str, rows: int, members: int, schemes: list[str]) -> Iterator[dict[str, Any]]:
    """All lines of a dataset, a number of rows and of members."""
    table = load_table(name)
    order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(0))
    kept = order[:MAX_ROWS].sort().values
    x, y = (torch.as_tensor(part)[kept].double() for part in (table.x, table.y))
    for scheme in schemes:
        results, seconds = [], []
        for seed in SEEDS:
            test = torch.as_tensor(published_split(len(x), seed).test)[:TEST_ROWS]
            mask = torch.ones(len(x), dtype=torch.bool)
            mask[torch.as_tensor(published_split(len(x), seed).test)] = False
            pool = mask.nonzero().squeeze(-1)
            draw = torch.Generator().manual_seed(seed)
            given = pool[torch.randperm(len(pool), generator=draw)[: rows or len(pool)]]
            begun = time.perf_counter()
            unseen, observed, (forecast, scaler) = trained(
                x[given], y[given], x[test], scheme=scheme, members=members, seed=seed
            )
            seconds.append(time.perf_counter() - begun)
            results.append((unseen, observed, forecast, scaler(y[test])[0]))
        before, observed, after, truth = zip(*results, strict=True)
        dist, begun = stacked(list(after)), time.perf_counter()
        if scheme != "none":
            head = CalibrationHead(copies=2, batch_size=512)
            dist = head.fit(stacked(list(before)), torch.stack(list(observed)).float())(dist)
        head_seconds = (time.perf_counter() - begun) / len(SEEDS)
        for m, seed in enumerate(SEEDS):
            one = GaussianMixture(dist.logits[m], dist.loc[m], dist.scale_tril[m])
            target = truth[m].float()
            labels = {term.label for term in applicable("all", one)[0]}
            excess = [r["excess"] for r in judge(one, target, seed) if r["prerank"] in labels]
            yield {
                "dataset": name,
                "rows": len(given),
                "seed": seed,
                "members": members,
                "scheme": scheme,
                "excess": sum(excess) / len(excess),
                "largest": max(excess),
                "nll": float(nll(one, target).mean()),
                "energy": float(energy_score(one, target, generator=seed).mean()),
                "training_seconds": seconds[m],
                "head_seconds": head_seconds if scheme != "none" else 0.0,
            }


def main() -> None:
    """Compute datasets and schemes, and write each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--rows", type=int, default=1000, help="0 for all")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES))
    options = parser.parse_args()
    table = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame()
    for name in options.datasets:
        for scheme in options.schemes:
            lines = pd.DataFrame(records(name, options.rows, options.members, [scheme]))
            keys = ["dataset", "rows", "seed", "members", "scheme"]
            table = pd.concat([table, lines]).drop_duplicates(keys, keep="last")
            table.to_csv(options.out, index=False, float_format="%.5g")
            print(lines[[*keys, "excess", "nll", "energy"]].round(4).to_string(), flush=True)


if __name__ == "__main__":
    main()
