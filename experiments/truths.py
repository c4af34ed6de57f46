"""What the penalty gains for a model that cannot be right: one Gaussian, on data with outliers.

    PYTHONPATH=src python experiments/truths.py --seeds 0 1 2 --out results.json

For each pre-rank: samples a training set from a truth that exposes it, lets `train_calibrated`
choose on paired runs over three splits, and judges the chosen models and the unpenalised ones of
the same splits on fresh rows with exact PITs. Prints the excess PCE before and after (means over
the splits), the cut, the change of the energy score and the strength.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass

import torch

from prerank.datasets import OutlierRegression
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import parse
from prerank.training import Run, Settings, TrainingData, evaluate, train_calibrated

TRUTHS = {
    # One row in twenty spreads five times as wide: likelihood widens the forecast for all rows.
    "outliers": OutlierRegression(factor=5.0),
    # One row in twenty is lifted in all targets: likelihood widens and lifts it for all rows.
    "shocks": OutlierRegression(shift=5.0),
    # Targets move together but for one wide row in twenty: likelihood loses their correlation.
    "breaks": OutlierRegression(factor=5.0, correlation=0.9, outlier_correlation=0.0),
}
EXPOSED = {
    "marginal": "outliers",
    "location": "shocks",
    "scale": "outliers",
    "dependency": "breaks",
    "pca": "outliers",
    "hdr": "outliers",
    "copula": "breaks",
}
SPLITS = 3
BUDGET = 0.10
SETTINGS = Settings(lr=3e-3, batch_size=1024)
N_SAMPLES = 32  # of the penalty: its large batches average the noise of few draws


@dataclass(frozen=True)
class Outcome:
    """One row of the table: means over the splits, on fresh rows.

    Attributes:
        prerank: what was penalised.
        truth: where the data came from.
        seed: of data, splits, initial weights and noise.
        strength: the one that was chosen; 0 where none qualified.
        before: excess PCE without the penalty.
        after: excess PCE at the chosen strength.
        energy: relative change of the energy score.
        seconds: spent.
    """

    prerank: str
    truth: str
    seed: int
    strength: float
    before: float
    after: float
    energy: float
    seconds: float

    @property
    def cut(self) -> float:
        """Part of the excess that the penalty removed."""
        return 1 - self.after / self.before


def experiment(
    prerank: str, *, seed: int = 0, rows: int = 8_000, fresh: int = 20_000, device: str = "cpu"
) -> Outcome:
    """Select a strength on `rows` rows of the truth that exposes a pre-rank; judge on `fresh`."""
    start = time.perf_counter()
    truth = TRUTHS[EXPOSED[prerank]]
    terms = parse(prerank)
    source = torch.Generator().manual_seed(seed)
    x, y = truth.sample(rows, generator=source)
    new_x, new_y = truth.sample(fresh, generator=source)
    orders = [torch.randperm(rows, generator=source) for _ in range(SPLITS)]
    splits = [(order[rows // 5 :], order[: rows // 5]) for order in orders]
    data = TrainingData.build(x, y, splits, device=device)
    network = MixtureNetwork(x.shape[1], y.shape[1], n_components=1, hidden=(32, 32))
    training = train_calibrated(
        network,
        data,
        [Run(seed, split) for split in range(SPLITS)],
        penalty=CalibrationPenalty(terms, n_samples=N_SAMPLES),
        budget=BUDGET,
        settings=SETTINGS,
    )
    strength = training.strength
    new_x = data.x_scaler(new_x, clip=True).to(data.x)  # by each split's own training rows
    new_y = data.y_scaler(new_y).to(data.y)
    base, chosen = (
        evaluate(network, training.trained[level].theta, new_x, new_y, terms)
        for level in (0.0, strength)
    )
    return Outcome(
        prerank,
        EXPOSED[prerank],
        seed,
        strength,
        before=float(base.excess(prerank).mean()),
        after=float(chosen.excess(prerank).mean()),
        energy=float(chosen.energy.mean() / base.energy.mean()) - 1,
        seconds=time.perf_counter() - start,
    )


def main() -> None:
    """Run the experiments from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preranks", nargs="+", choices=EXPOSED, default=list(EXPOSED))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    print(
        f"{'pre-rank':12}{'truth':10}{'seed':>4}{'before':>9}{'after':>9}{'cut':>7}{'energy':>9}"
        f"{'strength':>10}{'seconds':>9}"
    )
    outcomes = []
    for seed in options.seeds:
        for prerank in options.preranks:
            found = experiment(prerank, seed=seed, device=options.device)
            print(
                f"{found.prerank:12}{found.truth:10}{seed:4}{found.before:9.4f}{found.after:9.4f}"
                f"{found.cut:7.0%}{found.energy:+9.1%}{found.strength:10g}{found.seconds:9.0f}",
                flush=True,
            )
            outcomes.append({**asdict(found), "cut": found.cut})
            if options.out:
                with open(options.out, "w", encoding="utf-8") as file:
                    json.dump(outcomes, file, indent=1)


if __name__ == "__main__":
    main()
