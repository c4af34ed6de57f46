"""Penalty against recalibration: train, recalibrate, judge on rows that neither has seen.

    PRERANK_DATA=data python experiments/comparators.py --out comparators

For each dataset the networks of all seeds are trained in one stack with the regressor's settings,
without a penalty and then with it; of its strengths the validation rows choose one under the
default budget. Both forecasts are judged as they are, with recalibrated margins, and with
recalibrated regions (HDR). Recalibrators are fitted on the validation rows, which also stopped the
training and aimed the penalty, so that all methods know the same rows, and judged on test rows.
Parameters and judgements are files in the folder, and a run that was killed goes on from them.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank import GaussianMixture, energy_score, nll, pce, pce_floor
from prerank.datasets import PUBLISHED_SEEDS, load_table, published_split
from prerank.files import read_json, read_tensors, write_json, write_tensors
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.pits import project_pits
from prerank.preranks import parse
from prerank.recalibration import HDRRecalibrator, MarginalRecalibrator
from prerank.recalibration.base import Recalibrator
from prerank.training import Run, Settings, TrainingData, train_calibrated

DATASETS = ("households", "air", "births2", "scm20d", "scpf", "wq", "house")
SEEDS = PUBLISHED_SEEDS[:3]
MAX_ROWS, TEST_ROWS = 10_000, 1000
PENALTY, STRENGTHS = "marginal+hdr", (30.0, 100.0, 300.0)
SETTINGS = Settings(min_steps=10, tuning_patience=1, tuning_rate=0.3)  # of MixtureRegressor
JUDGED = "marginal+hdr+copula+scale"
FORECASTS = ("none", "penalty")
METHODS: dict[str, type[Recalibrator] | None] = {
    "none": None,
    "margins": MarginalRecalibrator,
    "regions": HDRRecalibrator,
}


class Problem:
    """A dataset, at most `MAX_ROWS` of its rows, with a published split for each seed."""

    def __init__(self, name: str, seeds: tuple[int, ...]) -> None:
        table = load_table(name)
        order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(0))
        rows = order[:MAX_ROWS].sort().values.numpy()
        self.name, self.seeds = name, seeds
        self.splits = [published_split(len(rows), seed) for seed in seeds]
        pairs = [(split.train, split.validation) for split in self.splits]
        self.data = TrainingData.build(table.x[rows], table.y[rows], pairs)
        self.network = MixtureNetwork(table.x.shape[1], table.y.shape[1])

    def trained(self, folder: Path) -> dict[str, Tensor]:
        """Parameters `(seeds, P)` of each forecast, trained once, and the strength."""
        path = folder / f"{self.name}-{'-'.join(map(str, self.seeds))}.safetensors"
        if path.exists():
            return read_tensors(path)[0]
        begun = time.perf_counter()
        training = train_calibrated(
            self.network,
            self.data,
            [Run(seed, m) for m, seed in enumerate(self.seeds)],
            penalty=CalibrationPenalty(PENALTY),
            strength=STRENGTHS,
            settings=SETTINGS,
        )
        trained, chosen = training.trained, training.strength
        theta = {"none": trained[0.0].theta, "penalty": trained[chosen].theta}
        seconds = time.perf_counter() - begun
        print(f"{self.name}: trained in {seconds:.0f} s, strength {chosen:g}", flush=True)
        write_tensors(path, theta | {"strength": torch.tensor(chosen)}, {"dataset": self.name})
        return theta | {"strength": torch.tensor(chosen)}

    def forecast(self, theta: Tensor, split: int, part: str) -> tuple[GaussianMixture, Tensor]:
        """Predictions and observations for a part of a split."""
        rows = getattr(self.splits[split], part)
        rows = rows[:TEST_ROWS] if part == "test" else rows
        with torch.no_grad():
            stack = self.network(theta[split : split + 1], self.data.x[split : split + 1, rows])
        dist = GaussianMixture(stack.logits[0], stack.loc[0], stack.scale_tril[0])
        return dist, self.data.y[split, rows]


def recalibrated(
    problem: Problem, theta: Tensor, split: int, method: type[Recalibrator] | None
) -> Distribution:
    """Predictions for the test rows, by a recalibrator that knows the validation rows."""
    test, _ = problem.forecast(theta, split, "test")
    if method is None:
        return test
    validation = problem.forecast(theta, split, "validation")
    return method(generator=problem.seeds[split]).fit(*validation)(test)


def judge(dist: Distribution, y: Tensor) -> dict[str, Any]:
    """Excess of each pre-rank, energy score and negative log-likelihood."""
    terms = parse(JUDGED)
    results = project_pits(dist, y, terms, generator=0)
    loss = nll(dist, y)
    return {
        "excess": {
            term.label: float(pce(result.z).mean()) - pce_floor(len(y))
            for term, result in zip(terms, results, strict=True)
        },
        "energy": float(energy_score(dist, y, generator=0).mean()),
        "nll": float(loss.mean()),
    }


def run(name: str, seeds: tuple[int, ...], folder: Path) -> None:
    """Train a dataset, and judge each seed that has no file yet."""
    problem = Problem(name, seeds)
    theta = problem.trained(folder)
    for split, seed in enumerate(seeds):
        path = folder / f"{name}-{seed}.json"
        if path.exists():
            continue
        begun = time.perf_counter()
        _, y = problem.forecast(theta["none"], split, "test")
        records = [
            {
                "forecast": forecast,
                "method": title,
                **judge(recalibrated(problem, theta[forecast], split, method), y),
            }
            for forecast in FORECASTS
            for title, method in METHODS.items()
        ]
        about = {"dataset": name, "seed": seed, "strength": float(theta["strength"])}
        write_json(path, about | {"rows": len(problem.data.x[0]), "records": records})
        print(f"{name}, seed {seed}: judged in {time.perf_counter() - begun:.0f} s", flush=True)


def table(name: str, seeds: tuple[int, ...], folder: Path) -> list[str]:
    """Rows of a Markdown table; excess in units of .0001."""
    units = [read_json(folder / f"{name}-{seed}.json") for seed in seeds]
    strength = units[0]["strength"]

    def records(forecast: str, method: str) -> list[dict[str, Any]]:
        wanted = {"forecast": forecast, "method": method}
        return [r for u in units for r in u["records"] if wanted.items() <= r.items()]

    before = records("none", "none")
    lines = []
    for forecast in FORECASTS:
        for method in METHODS:
            found = records(forecast, method)
            title = forecast if forecast == "none" else f"penalty ({strength:g})"
            cells = [name, title, method]
            for label in JUDGED.split("+"):
                values = [1e4 * r["excess"][label] for r in found]
                error = np.std(values, ddof=1) / len(values) ** 0.5
                cells.append(f"{np.mean(values):.0f} ± {error:.0f}")
            ratio = _mean(found, "energy") / _mean(before, "energy") - 1
            cells += [f"{ratio:+.1%}".replace("%", " %")]
            cells += [f"{_mean(found, 'nll') - _mean(before, 'nll'):+.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _mean(records: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([record[key] for record in records]))


def main() -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    seeds = tuple(options.seeds)
    for name in options.datasets:
        run(name, seeds, options.out)
    for name in options.datasets:
        print("\n".join(table(name, seeds, options.out)))


if __name__ == "__main__":
    main()
