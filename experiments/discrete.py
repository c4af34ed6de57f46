"""Discrete targets: what a predictor with a density can reach, and what helps.

    PRERANK_DATA=data python experiments/discrete.py --out results.json

Each treatment is trained on the published splits, without a penalty and with the marginal one, and
judged on the test rows: on the targets as they are; with samples of the same predictions that are
rounded to the values of the training rows (which have no density, and so no hdr); and on targets
whose ties are spread over their cells. The energy score of plain and of rounded samples is that of
the targets as they are, in units of their standard deviations on the training rows, and is printed
relative to the first treatment without a penalty.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank import Ensemble, GaussianMixture, energy_score, pce, pce_floor, pit
from prerank.calibration import tie_error
from prerank.datasets import PUBLISHED_SEEDS, Table, load_table, published_split, snap, spread_ties
from prerank.distributions import draw
from prerank.files import write_json
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import parse
from prerank.training import Objective, Run, Settings, TrainingData, evaluate, train
from prerank.training.data import Scaler

DATASETS = ("wq", "scpf", "births2", "wage", "blog_data")
SETTINGS = Settings(lr=1e-4, batch_size=256, max_epochs=5000)
STRENGTHS = (0.0, 100.0)
JUDGED = "marginal+scale+hdr"
JUDGED_SNAPPED = "marginal+scale"
SHOWN = {"raw": JUDGED, "snapped": JUDGED_SNAPPED, "spread": "marginal"}
N_SAMPLES, ROWS = 100, 1000
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
    unit = raw[split.train].std(0, correction=0)
    for m, record in enumerate(records):
        samples = _samples(network, found.theta[m : m + 1], x[m : m + 1], data.y_scaler)
        record.update(judge_samples(samples, raw[split.test], raw[split.train], unit))
    return records


def judge_samples(samples: Tensor, y: Tensor, known: Tensor, unit: Tensor) -> dict[str, Any]:
    """Judge samples `(S, N, D)` of targets `(N, D)`, plain and rounded to known values `(M, D)`.

    Returns:
        The excess of rounded samples; energy scores; the share of plain samples outside the range
        of the known values; and how often the most frequent value of each target occurs.
    """
    rounded = snap(samples, known)
    # Divided, not centred: equal values stay equal.
    plain, snapped, observed = Ensemble(samples / unit), Ensemble(rounded / unit), y / unit
    floor = pce_floor(len(y))
    low, high, common = known.amin(0), known.amax(0), known.mode(0).values
    return {
        "snapped": {
            label: float(pce(pit(snapped, observed, label, generator=0)).mean()) - floor
            for label in JUDGED_SNAPPED.split("+")
        },
        "energy": {
            name: float(energy_score(dist, observed).mean())
            for name, dist in (("plain", plain), ("snapped", snapped))
        },
        "outside": float(((samples < low) | (samples > high)).double().mean()),
        "most frequent": {
            "observed": (y == common).double().mean(0).tolist(),
            "forecast": (rounded == common).double().mean((0, 1)).tolist(),
        },
    }


def _samples(network: MixtureNetwork, theta: Tensor, x: Tensor, scaler: Scaler) -> Tensor:
    """Samples of one run in the units of the targets, `(S, N, D)`."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        parts = [
            draw(network(theta, part), N_SAMPLES, generator=generator).points.squeeze(1)
            for part in x.split(ROWS, dim=1)
        ]
    return torch.cat(parts, 1).double() * scaler.scale[0] + scaler.loc[0]


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
        unit = None
        for treatment in options.treatments:
            records = [
                record
                for seed in options.seeds
                for record in judge(table, TREATMENTS[treatment], seed)
            ]
            results.append({"dataset": name, "treatment": treatment, "records": records})
            write_json(options.out, {"results": results})
            unit = unit or _energy(records, 0.0, "plain")
            print("\n".join(lines(name, treatment, records, unit)), flush=True)


def lines(name: str, treatment: str, records: list[dict[str, Any]], unit: float) -> list[str]:
    """Rows of a Markdown table; excess in units of .0001, energy scores relative to a unit."""
    found = []
    for strength in STRENGTHS:
        mine = [record for record in records if record["strength"] == strength]
        cells = [
            f"{1e4 * np.mean([r[where][label] for r in mine]):.0f}"
            for where, labels in SHOWN.items()
            for label in labels.split("+")
        ]
        cells += [
            f"{_energy(records, strength, samples) / unit - 1:+.1%}"
            for samples in ("plain", "snapped")
        ]
        penalty = "yes" if strength else "no"
        found.append(f"| {name} | {treatment} | {penalty} | {' | '.join(cells)} |")
    return found


def _energy(records: list[dict[str, Any]], strength: float, samples: str) -> float:
    return float(np.mean([r["energy"][samples] for r in records if r["strength"] == strength]))


if __name__ == "__main__":
    main()
