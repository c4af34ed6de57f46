"""Base predictors before and after the penalty: a Gaussian, a mixture, a flow, an ensemble.

    PRERANK_DATA=data python experiments/predictors.py --out results

Each predictor is trained on the published splits as the regressors train it: without the penalty to
the stop, then on from there with it, at every strength. Test rows judge. Every dataset, predictor
and seed has a file of its own in the folder: a command that is given again goes on where it was,
and prints the table of what is there.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank import GaussianMixture
from prerank.datasets import PUBLISHED_SEEDS, Table, load_table, published_split
from prerank.files import read_json, write_json
from prerank.models import FlowNetwork, MixtureNetwork, Network
from prerank.penalty import CalibrationPenalty
from prerank.preranks import parse
from prerank.training import Run, Settings, TrainingData, evaluate, train, train_calibrated

DATASETS = ("households", "births2", "house", "scpf")
SEEDS = PUBLISHED_SEEDS[:3]
ROWS = 8000
PENALTY, JUDGED = "marginal+hdr", ("marginal", "hdr", "copula")
STRENGTHS = (10.0,)  # what the regressors use where none is given
SETTINGS = Settings(lr=1e-3, min_steps=10, patience=15, tuning_patience=1, tuning_rate=0.3)
MEMBERS = 5
NAMES = {"before": "before", "0": "on together, no penalty"}


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


@dataclass(frozen=True)
class Predictor:
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


def trained(network: Network, data: TrainingData, seed: int) -> Tensor:
    """Parameters `(1, P)` without the penalty; members of an ensemble are trained each alone."""
    if not isinstance(network, EnsembleNetwork):
        return train(network, data, [Run(seed)], settings=SETTINGS).theta
    members = train(network.member, data, network.runs(seed), settings=SETTINGS)
    return members.theta.reshape(1, -1)


def judge(table: Table, predictor: Predictor, seed: int) -> list[dict[str, Any]]:
    """Train one split without and with the penalty, and evaluate on the test rows."""
    order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(0))[:ROWS]
    split = published_split(len(order), seed)
    x, y = torch.as_tensor(table.x)[order], torch.as_tensor(table.y)[order]
    data = TrainingData.build(x, y, [(split.train, split.validation)])
    network = predictor.network(x.shape[1], y.shape[1])
    begin = time.monotonic()
    parameters = {"before": trained(network, data, seed)}
    seconds = {"before": time.monotonic() - begin}
    penalty = CalibrationPenalty(PENALTY, n_samples=predictor.n_samples)
    for strength in STRENGTHS:
        begin = time.monotonic()
        training = train_calibrated(
            network,
            data,
            [Run(seed)],
            penalty=penalty,
            strength=strength,
            settings=SETTINGS,
            base=parameters["before"],
        )
        parameters[f"{strength:g}"] = training.trained[strength].theta
        seconds[f"{strength:g}"] = time.monotonic() - begin
    if isinstance(network, EnsembleNetwork):  # all members together, by likelihood alone
        begin = time.monotonic()
        options: Any = {"settings": SETTINGS.tuning, "start": parameters["before"]}
        parameters["0"] = train(network, data, [Run(seed)], **options).theta
        seconds["0"] = time.monotonic() - begin
    records = []
    for name, theta in parameters.items():
        held_out = data.x[:, split.test], data.y[:, split.test]
        found = evaluate(network, theta, *held_out, parse("+".join(JUDGED)))
        excess = {label: float(found.excess(label)) for label in JUDGED}
        numbers = {"energy": float(found.energy), "nll": float(found.nll)}
        records.append({"state": name, "excess": excess, **numbers, "seconds": seconds[name]})
    return records


def lines(results: dict[tuple[str, str], list[list[dict[str, Any]]]]) -> list[str]:
    """Rows of a Markdown table: means and standard errors over seeds, excess in units of .0001."""
    found = []
    for (dataset, name), units in results.items():
        before = [unit[0] for unit in units]
        for place, first in enumerate(units[0]):
            mine = [unit[place] for unit in units]
            cells = [_with_error([1e4 * r["excess"][label] for r in mine]) for label in JUDGED]
            energy = sum(r["energy"] for r in mine) / sum(r["energy"] for r in before)
            cells += [
                f"{energy - 1:+.1%}" if place else f"{np.mean([r['energy'] for r in mine]):.3f}"
            ]
            cells += [f"{np.median([r['nll'] for r in mine]):.2f}"]
            state = NAMES.get(first["state"], f"penalty, strength {first['state']}")
            found.append(f"| {dataset} | {name} | {state} | {' | '.join(cells)} |")
    return found


def _with_error(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.0f}"
    return f"{np.mean(values):.0f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.0f}"


def main() -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--predictors", nargs="+", default=list(PREDICTORS), choices=PREDICTORS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    results: dict[tuple[str, str], list[list[dict[str, Any]]]] = {}
    for dataset in options.datasets:
        for name in options.predictors:
            for seed in options.seeds:
                file = options.out / f"{dataset}-{name.replace(' ', '-')}-{seed}.json"
                if not file.exists():
                    records = judge(load_table(dataset), PREDICTORS[name], seed)
                    write_json(file, {"records": records})
                unit = read_json(file)["records"]
                results.setdefault((dataset, name), []).append(unit)
                print(f"{file.stem}: {sum(r['seconds'] for r in unit):.0f} s", flush=True)
    print("\n".join(lines(results)))


if __name__ == "__main__":
    main()
