"""Discrete targets: what each treatment of them does to a forecast of their values.

    PRERANK_DATA=data python experiments/discrete.py --out discrete_treatments.csv

The published network is trained on the likelihood of the treated targets (and, as one of the
treatments, with the marginal penalty on untreated ones), for all seeds in one stack. On test rows
the forecast of the values is judged: every prediction is rounded, target by target, to the values
of the training rows (`prerank.distributions.Rounded`). Excess is signed, the mean over the
components; marginal PITs are in closed form and randomised, others are ranks among 100 rounded
draws with random ties. The energy score is that of rounded draws, in standard deviations of the
training rows. With a head, `CalibrationHead` is fitted to the validation and calibration rows,
treated like the training rows. One line for each dataset, seed, treatment, head and pre-rank;
datasets that the file has already are not computed again.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank import (
    CalibrationHead,
    CalibrationPenalty,
    GaussianMixture,
    energy_score,
    pce,
    pce_floor,
)
from prerank.datasets import (
    PUBLISHED_SEEDS,
    Split,
    Table,
    load_table,
    published_split,
    spread_ties,
)
from prerank.distributions import Cells, Rounded, Rounding, affine
from prerank.models import MixtureNetwork
from prerank.pits import project_pits
from prerank.preranks import applicable
from prerank.training import Objective, Run, Settings, TrainingData, train
from prerank.training.data import Scaler

DATASETS = ("wq", "scpf", "births2", "wage", "blog_data")
MAX_ROWS, TEST_ROWS = 20_000, 3_000


@dataclass(frozen=True)
class Treatment:
    """How to train on discrete targets.

    Attributes:
        spread: targets to train on, from a rounding, targets and a seed.
        rounded: whether the spread targets are those of the rounding.
        floor: of the scales, in standard deviations.
        spreads: of each row, which take turns in training.
        strength: of the marginal penalty.
    """

    spread: Callable[[Rounding, Tensor, int], Tensor] = lambda rounding, y, seed: y
    rounded: bool = False
    floor: float = 1e-3
    spreads: int = 1
    strength: float = 0.0


def _scores(rounding: Rounding, y: Tensor, seed: int) -> Tensor:
    return rounding.spread(y, generator=seed)


TREATMENTS = {
    "none": Treatment(),
    "penalty": Treatment(strength=100.0),
    "scale floor .05": Treatment(floor=0.05),
    "ties spread": Treatment(lambda rounding, y, seed: spread_ties(y, generator=seed)),
    "rounding, one spread": Treatment(_scores, rounded=True),
    "rounding": Treatment(_scores, rounded=True, spreads=17),
}


class Problem:
    """One dataset under one treatment, trained for all seeds."""

    def __init__(self, table: Table, treatment: Treatment, seeds: tuple[int, ...]) -> None:
        order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(0))
        rows = order[:MAX_ROWS].sort().values
        self.x, self.y = (torch.as_tensor(part)[rows].double() for part in (table.x, table.y))
        self.splits = [published_split(len(rows), seed) for seed in seeds]
        self.cells: list[list[Cells | None]] = []
        parts = []
        for seed, split in zip(seeds, self.splits, strict=True):
            known = self.y[split.train]
            rounding = Rounding.of(known)
            nearest = [Cells.nearest(column.unique()) for column in known.mT]
            found = rounding.cells if treatment.rounded else (None,) * len(nearest)
            self.cells.append([f or n for f, n in zip(found, nearest, strict=True)])
            parts.append(self._data(treatment, rounding, split, seed))
        self.data = _stacked(parts)
        self.network = MixtureNetwork(self.x.shape[1], self.y.shape[1], scale_floor=treatment.floor)
        runs = [Run(seed, place, treatment.strength) for place, seed in enumerate(seeds)]
        objective = Objective(CalibrationPenalty("marginal") if treatment.strength else None)
        self.theta = train(
            self.network, self.data, runs, objective=objective, settings=Settings()
        ).theta

    def _data(
        self, treatment: Treatment, rounding: Rounding, split: Split, seed: int
    ) -> TrainingData:
        y, *others = (
            treatment.spread(rounding, self.y, seed + 1000 * k) for k in range(treatment.spreads)
        )
        splits = [(split.train, split.validation)]
        return TrainingData.build(self.x, y, splits, spreads=others)

    def forecast(self, place: int, rows: Tensor) -> GaussianMixture:
        """Predictions in standardised units of the treated targets, in float64."""
        with torch.no_grad():
            dist = self.network(self.theta[place : place + 1], self.data.x[place : place + 1, rows])
        parts = (dist.logits, dist.loc, dist.scale_tril)
        return GaussianMixture(*(part[0].double() for part in parts))

    def head(self, place: int, seed: int) -> CalibrationHead:
        """Fitted to the rows that are neither training nor test rows."""
        split = self.splits[place]
        rows = torch.cat([split.validation, split.calibration])
        y = self.data.y[place, rows].double()
        return CalibrationHead(seed=seed).fit(self.forecast(place, rows), y)

    def judge(self, dist: Distribution, place: int, seed: int) -> Iterator[dict[str, Any]]:
        """Excess of every pre-rank and energy score of predictions for the test rows."""
        split = self.splits[place]
        scaler = self.data.y_scaler.select([place])
        factor = 1 / self.y[split.train].std(0, correction=0)
        values = Rounded(affine(dist, scaler.loc[0, 0], scaler.scale[0, 0]), self.cells[place])
        scaled = affine(values, torch.zeros_like(factor), factor)
        y = factor * self.y[split.test[:TEST_ROWS]]
        energy = float(energy_score(scaled, y, generator=seed).mean())
        for result in project_pits(scaled, y, applicable("all", scaled)[0], generator=seed):
            yield {
                "prerank": result.prerank.label,
                "excess": float(pce(result.z).mean()) - pce_floor(len(y)),
                "ties": float(result.ties.mean()),
                "energy": energy,
                "rows": len(y),
            }


def _stacked(parts: list[TrainingData]) -> TrainingData:
    def scaler(name: str) -> Scaler:
        fields = ("loc", "scale", "low", "high")
        return Scaler(*(torch.cat([getattr(getattr(p, name), f) for p in parts]) for f in fields))

    tensors = [
        torch.cat([getattr(part, name) for part in parts])
        for name in ("x", "y", "train", "validation")
    ]
    spreads = [part.spreads for part in parts if part.spreads is not None]
    others = torch.cat(spreads, 1) if spreads else None
    return TrainingData(*tensors, scaler("x_scaler"), scaler("y_scaler"), others)


def records(
    name: str, treatments: list[str], heads: list[str], seeds: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """All lines of one dataset."""
    table = load_table(name)
    for treatment in treatments:
        begun = time.perf_counter()
        problem = Problem(table, TREATMENTS[treatment], seeds)
        trained = (time.perf_counter() - begun) / len(seeds)
        for place, seed in enumerate(seeds):
            base = problem.forecast(place, problem.splits[place].test[:TEST_ROWS])
            about = {"dataset": name, "seed": seed, "treatment": treatment}
            for row in problem.judge(base, place, seed):
                yield about | {"head": False, "seconds": trained} | row
            if treatment in heads:
                begun = time.perf_counter()
                behind = problem.head(place, seed)(base)
                seconds = time.perf_counter() - begun
                for row in problem.judge(behind, place, seed):
                    yield about | {"head": True, "seconds": seconds} | row


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds: marginal excess, that of all pre-ranks, and the change of energy score."""
    keys = ["dataset", "treatment", "head"]
    seen = table[table.ties < 0.95]  # the others have no power
    groups = seen.groupby(keys, sort=False)
    found = pd.DataFrame(
        {
            "marginal": seen[seen.prerank == "marginal"].groupby(keys, sort=False).excess.mean(),
            "preranks": groups.excess.mean(),
            "energy": groups.energy.mean(),
        }
    ).reset_index()
    untreated = found[(found.treatment == "none") & ~found["head"]].set_index("dataset").energy
    found["energy"] = 100 * (found.energy / found.dataset.map(untreated) - 1)
    return found


def lines(found: pd.DataFrame) -> list[str]:
    """Rows of a Markdown table; excess in units of .0001."""
    return [
        f"| {row.dataset} | {row.treatment} | {'yes' if row.head else 'no'} "
        f"| {1e4 * row.marginal:.0f} | {1e4 * row.preranks:.0f} | {row.energy:+.1f} % |"
        for row in found.itertuples()
    ]


def main() -> None:
    """Compute every dataset that the file does not have yet, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--treatments", nargs="+", default=list(TREATMENTS), choices=TREATMENTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--heads", nargs="*", default=["none", "rounding"], choices=TREATMENTS)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame({"dataset": []})
    for name in options.datasets:
        if name in set(table.dataset):
            continue
        found = records(name, options.treatments, options.heads, tuple(options.seeds))
        table = pd.concat([table, pd.DataFrame(found)])
        table.to_csv(options.out, index=False, float_format="%.5g")
        print(*lines(summary(table[table.dataset == name])), sep="\n", flush=True)


if __name__ == "__main__":
    main()
