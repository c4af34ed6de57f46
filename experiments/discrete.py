"""Discrete targets: what a predictor with a density can reach, and what helps.

    PRERANK_DATA=data python experiments/discrete.py --out results.json

Each treatment is trained on the published splits, without a penalty and with the marginal one, and
judged on the test rows: on the targets as they are and, with the same predictions, on targets whose
ties are spread over their cells.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank import GaussianMixture
from prerank.calibration import tie_error
from prerank.datasets import PUBLISHED_SEEDS, Table, load_table, published_split, spread_ties
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import parse
from prerank.storage import write_json
from prerank.training import Objective, Run, Settings, TrainingData, evaluate, train

DATASETS = ("wq", "scpf", "births2", "wage", "blog_data")
SETTINGS = Settings(lr=1e-4, batch_size=256, max_epochs=5000)
STRENGTHS = (0.0, 100.0)
JUDGED = "marginal+scale+hdr"
PINNED, PINNED_SCALE = 5, 0.01


@dataclass(frozen=True)
class Treatment:
    """How to train on discrete targets: with which network, and whether on spread targets."""

    network: Callable[[TrainingData], MixtureNetwork]
    spread: bool = False


class PinnedNetwork(MixtureNetwork):
    """Five free components and, with learned weights, narrow ones at the most frequent targets."""

    def at(self, atoms: Tensor) -> "PinnedNetwork":
        """Pin components to atoms `(A, D)`."""
        object.__setattr__(self, "atoms", atoms)
        return self

    @property
    def _outputs(self) -> list[int]:
        weights, *others = super()._outputs
        return [weights + PINNED, *others]

    def _distribution(self, raw: Tensor) -> GaussianMixture:
        count = self.n_components + PINNED
        weights, others = raw[..., :count], raw[..., count:]
        plain = MixtureNetwork(self.n_inputs, self.n_targets, self.n_components)
        free = plain._distribution(torch.cat([weights[..., : self.n_components], others], -1))
        atoms: Tensor = self.__dict__["atoms"]
        shape = raw.shape[:-1]
        loc = atoms.to(raw).expand(*shape, *atoms.shape)
        factor = PINNED_SCALE * torch.eye(self.n_targets).to(raw)
        factor = factor.expand(*shape, PINNED, *factor.shape)
        return GaussianMixture(
            weights,
            torch.cat([free.loc, loc], -2),
            torch.cat([free.scale_tril, factor], -3),
            validate_args=False,
        )


def _plain(data: TrainingData, floor: float = 1e-3) -> MixtureNetwork:
    return MixtureNetwork(data.x.shape[-1], data.y.shape[-1], scale_floor=floor)


def _pinned(data: TrainingData) -> MixtureNetwork:
    values, counts = data.y[0, data.train[0]].unique(dim=0, return_counts=True)
    atoms = values[counts.argsort(descending=True)[:PINNED]]
    return PinnedNetwork(data.x.shape[-1], data.y.shape[-1]).at(atoms)


TREATMENTS = {
    "as they are": Treatment(_plain),
    "scale floor .05": Treatment(lambda data: _plain(data, 0.05)),
    "scale floor .2": Treatment(lambda data: _plain(data, 0.2)),
    "pinned components": Treatment(_pinned),
    "ties spread": Treatment(_plain, spread=True),
}


def judge(table: Table, treatment: Treatment, seed: int) -> list[dict[str, Any]]:
    """Train one split without and with the penalty, and evaluate."""
    split = published_split(len(table.x), seed)
    raw = torch.as_tensor(table.y).double()
    spread = spread_ties(raw, generator=seed)
    fitted_to = spread if treatment.spread else raw
    data = TrainingData.build(table.x, fitted_to, [(split.train, split.validation)])
    network = treatment.network(data)
    runs = [Run(seed, 0, strength) for strength in STRENGTHS]
    objective = Objective(CalibrationPenalty("marginal"))
    found = train(network, data, runs, objective=objective, settings=SETTINGS)
    x = data.x[:, split.test].expand(len(runs), -1, -1)
    records: list[dict[str, Any]] = [
        {"seed": seed, "strength": run.strength, "epochs": int(found.epochs[m])}
        for m, run in enumerate(runs)
    ]
    for name, targets in (("raw", raw), ("spread", spread)):
        y = data.y_scaler(targets).to(data.y)[:, split.test].expand(len(runs), -1, -1)
        result = evaluate(network, found.theta, x, y, parse(JUDGED))
        for m, record in enumerate(records):
            record[name] = {label: float(result.excess(label)[m]) for label in result.pce}
    return records


def main() -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--treatments", nargs="+", default=list(TREATMENTS), choices=TREATMENTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    results = []
    for name in options.datasets:
        table = load_table(name)
        print(f"{name}: PCE of a predictor of the shares {tie_error(table.y).round(3)}", flush=True)
        for treatment in options.treatments:
            records = [
                record
                for seed in options.seeds
                for record in judge(table, TREATMENTS[treatment], seed)
            ]
            results.append({"dataset": name, "treatment": treatment, "records": records})
            write_json(options.out, {"results": results})
            print("\n".join(lines(name, treatment, records)), flush=True)


def lines(name: str, treatment: str, records: list[dict[str, Any]]) -> list[str]:
    """Rows of a Markdown table; excess in units of .0001."""
    found = []
    for strength in STRENGTHS:
        mine = [record for record in records if record["strength"] == strength]
        cells = [
            f"{1e4 * np.mean([r[where][label] for r in mine]):.0f}"
            for where in ("raw", "spread")
            for label in JUDGED.split("+")
        ]
        found.append(f"| {name} | {treatment} | {strength:g} | {' | '.join(cells)} |")
    return found


if __name__ == "__main__":
    main()
