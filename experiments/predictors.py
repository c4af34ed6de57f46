"""Predictors behind the penalty and the head: a Gaussian, a mixture, a flow, an ensemble.

    PRERANK_DATA=data python experiments/predictors.py --out predictors [--device cuda]
    python experiments/predictors.py --out predictors --collect predictors.csv

Each predictor is trained by likelihood on the published splits of at most `ROWS` rows. From there
on it is trained with the exact penalty, at the strength that its validation rows choose; or a head
is fitted behind it, to the validation and calibration rows (behind a flow to `FLOW_ROWS` of them,
since every step of a fit goes through its networks). Each dataset, predictor and seed leaves a CSV
file with the lines of `head.py`; those that have one are not computed again.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from head import FITTED, capped, judge, scores
from prerank import CalibrationHead, CalibrationPenalty, GaussianMixture, nll
from prerank.datasets import PUBLISHED_SEEDS, published_split
from prerank.defaults import PENALTY_PRERANKS
from prerank.models import FlowNetwork, MixtureNetwork, Network
from prerank.models.members import FlowMixture
from prerank.training import Run, Settings, TrainingData, train, train_calibrated

DATASETS = ("households", "air", "births1", "house")
ROWS, TEST_ROWS, FLOW_ROWS = 8_000, 2_000, 1_000
STRENGTHS = (10.0, 100.0)
MEMBERS = 5
NONE, TOGETHER, PENALTY, HEAD = "none", "trained together", "penalty", "head"


@dataclass(frozen=True)
class EnsembleNetwork:
    """Networks side by side, whose Gaussians make a mixture with equal weights.

    Attributes:
        member: with one component.
        size: how many there are.
    """

    member: MixtureNetwork
    size: int

    stackable = True

    @property
    def n_parameters(self) -> int:
        """Those of all members."""
        return self.size * self.member.n_parameters

    def initial(self, seed: int) -> Tensor:
        """Members from seeds of their own."""
        return torch.cat([self.member.initial(run.seed) for run in self.runs(seed)])

    def runs(self, seed: int) -> list[Run]:
        """What to train for the members alone."""
        return [Run(10_000 * (number + 1) + seed) for number in range(self.size)]

    def __call__(self, theta: Tensor, x: Tensor) -> GaussianMixture:
        """The mixture of all members' predictions."""
        runs, rows = x.shape[:2]
        each = self.member(
            theta.reshape(runs * self.size, -1), x.repeat_interleave(self.size, dim=0)
        )
        loc, factor = (
            part.reshape(runs, self.size, rows, *part.shape[3:]).movedim(1, 2)
            for part in (each.loc, each.scale_tril)
        )
        weights = loc.new_zeros(runs, rows, self.size)
        return GaussianMixture(weights, loc, factor, validate_args=False)


class Predictor(NamedTuple):
    """A network for L inputs and D targets, and the draws per row of its penalty."""

    network: Callable[[int, int], Network]
    n_samples: int = 100


PREDICTORS = {
    "one Gaussian": Predictor(lambda n, d: MixtureNetwork(n, d, n_components=1)),
    "five Gaussians": Predictor(MixtureNetwork),
    "flow": Predictor(FlowNetwork, n_samples=32),
    "ensemble": Predictor(
        lambda n, d: EnsembleNetwork(MixtureNetwork(n, d, n_components=1), MEMBERS)
    ),
}


class Problem:
    """A published split of a dataset, and a predictor that is trained on it."""

    def __init__(self, name: str, predictor: Predictor, seed: int, device: str) -> None:
        table = capped(name, ROWS)
        self.split, self.seed = published_split(len(table.x), seed), seed
        rows = self.split.train, self.split.validation
        self.data = TrainingData.build(table.x, table.y, [rows], device=device)
        self.network = predictor.network(table.x.shape[1], table.y.shape[1])
        self.penalty = CalibrationPenalty(PENALTY_PRERANKS, n_samples=predictor.n_samples)

    def base(self) -> Tensor:
        """Parameters `(1, P)` without the penalty; members of an ensemble are trained alone."""
        if not isinstance(self.network, EnsembleNetwork):
            return train(self.network, self.data, [Run(self.seed)], settings=Settings()).theta
        members = self.network.runs(self.seed)
        found = train(self.network.member, self.data, members, settings=Settings())
        return found.theta.reshape(1, -1)

    def penalised(self, base: Tensor) -> tuple[Tensor, float]:
        """Parameters after the penalty, and its strength."""
        found = train_calibrated(
            self.network,
            self.data,
            [Run(self.seed)],
            penalty=self.penalty,
            strength=STRENGTHS,
            base=base,
        )
        return found.trained[found.strength].theta, found.strength

    def forecast(self, theta: Tensor, *parts: str) -> tuple[Any, Tensor]:
        """Predictions and observations of parts of the split."""
        rows = torch.cat([getattr(self.split, part) for part in parts])
        if parts == FITTED and isinstance(self.network, FlowNetwork):
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))
            rows = rows[order[:FLOW_ROWS]]
        elif parts == ("test",):
            rows = rows[:TEST_ROWS]
        x, y = self.data.x[0, rows], self.data.y[0, rows]
        if isinstance(self.network, FlowNetwork):
            return FlowMixture([self.network.distribution(theta[0], x)]), y
        with torch.no_grad():
            stack = self.network(theta, x[None])
        return GaussianMixture(stack.logits[0], stack.loc[0], stack.scale_tril[0]), y

    def methods(self) -> Iterator[tuple[str, Any, dict[str, float]]]:
        """Name, forecast of the test rows, strength and seconds of every method."""
        base = self.base()
        test, _ = self.forecast(base, "test")
        yield NONE, test, {"strength": 0.0, "seconds": 0.0}
        if isinstance(self.network, EnsembleNetwork):  # what the penalty alone does not explain
            begun = time.perf_counter()
            tuning: Any = {"settings": Settings().tuning, "start": base}
            theta = train(self.network, self.data, [Run(self.seed)], **tuning).theta
            about = {"strength": 0.0, "seconds": time.perf_counter() - begun}
            yield TOGETHER, self.forecast(theta, "test")[0], about
        begun = time.perf_counter()
        theta, strength = self.penalised(base)
        about = {"strength": strength, "seconds": time.perf_counter() - begun}
        yield PENALTY, self.forecast(theta, "test")[0], about
        begun = time.perf_counter()
        head = CalibrationHead(seed=self.seed).fit(*self.forecast(base, *FITTED))
        yield HEAD, head(test), {"strength": 0.0, "seconds": time.perf_counter() - begun}

    def lines(self) -> Iterator[dict[str, Any]]:
        """Scores and errors of all methods."""
        before: Any = None
        y = self.data.y[0, self.split.test[:TEST_ROWS]]
        for method, dist, about in self.methods():
            before = nll(dist, y) if before is None else before
            line = {"method": method, "rows": len(y), "trained": len(self.split.train)}
            line |= {**about, **scores(dist, y, before, self.seed)}
            yield from (line | row for row in judge(dist, y, self.seed))


def main() -> None:
    """Compute what has no file yet, or put all files into one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--predictors", nargs="+", default=list(PREDICTORS), choices=PREDICTORS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--collect", type=Path, help="compute nothing, write all lines here")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    units = [
        ({"dataset": dataset, "forecast": name, "seed": seed}, f"{dataset}-{name}-{seed}.csv")
        for dataset in options.datasets
        for name in options.predictors
        for seed in options.seeds
    ]
    files = [(unit, options.out / file.replace(" ", "-")) for unit, file in units]
    if options.collect:
        found = [pd.read_csv(path) for _, path in files if path.exists()]
        pd.concat(found).to_csv(options.collect, index=False, float_format="%.6g")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for unit, path in files:
        if not path.exists():
            begun = time.perf_counter()
            about: dict[str, Any] = unit
            predictor = PREDICTORS[about["forecast"]]
            problem = Problem(about["dataset"], predictor, about["seed"], options.device)
            lines = [about | line for line in problem.lines()]
            pd.DataFrame(lines).to_csv(path, index=False, float_format="%.6g")
            print(f"{path.stem}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
