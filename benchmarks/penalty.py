"""Calibration before and after the penalty, on the published splits and seeds.

    python benchmarks/penalty.py --datasets households air births2 --strength 10 --out results.json

Trains the unpenalised network and one for each pre-rank (five seeds each, in one stack), evaluates
all of them on the test rows with exact PITs, and prints the excess PCE of the pre-rank that was
trained on, before and after, with the ratio of the energy scores. The datasets are read from the
folder in PRERANK_DATA.
"""

import argparse
import json
import time

import torch

from prerank.datasets import PUBLISHED_SEEDS, load_table, published_split
from prerank.errors import NotApplicableError
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER
from prerank.training import Objective, Run, Settings, TrainingData, evaluate, train

SETTINGS = Settings(lr=1e-4, batch_size=256, max_epochs=5000, patience=15, min_delta=1e-4)


def study(name: str, strength: float, labels: list[str], device: str) -> list[dict[str, object]]:
    """Results of one dataset: a record for each pre-rank and seed, and for none."""
    table = load_table(name)
    splits = [published_split(len(table.x), seed) for seed in PUBLISHED_SEEDS]
    data = TrainingData.build(
        table.x, table.y, [(s.train, s.validation) for s in splits], device=device
    )
    network = MixtureNetwork(table.x.shape[1], table.y.shape[1])
    test = torch.stack([s.test for s in splits]).to(device)
    rows = torch.arange(len(splits), device=device).unsqueeze(1)
    x, y = data.x[rows, test], data.y[rows, test]
    probe = network(torch.stack([network.initial(0)]).to(data.x), data.x[:1, :2])
    applicable = []
    for prerank in PAPER:
        try:
            prerank.check(probe)
        except NotApplicableError:
            continue
        applicable.append(prerank)
    records = []
    for label in ["none", *labels]:
        if label not in {"none", *(p.label for p in applicable)}:
            continue
        penalty = None if label == "none" else CalibrationPenalty(label)
        runs = [
            Run(seed, split, 0.0 if penalty is None else strength)
            for split, seed in enumerate(PUBLISHED_SEEDS)
        ]
        start = time.perf_counter()
        result = train(network, data, runs, objective=Objective(penalty), settings=SETTINGS)
        seconds = time.perf_counter() - start
        found = evaluate(network, result.theta, x, y, tuple(applicable))
        for m, seed in enumerate(PUBLISHED_SEEDS):
            records.append(
                {
                    "dataset": name,
                    "trained": label,
                    "strength": runs[m].strength,
                    "seed": seed,
                    "epochs": int(result.epochs[m]),
                    "seconds": seconds,
                    "energy": float(found.energy[m]),
                    "nll": float(found.nll[m]),
                    **{f"excess {p}": float(found.excess(p)[m]) for p in found.pce},
                }
            )
        print(name, label, f"{seconds:.0f} s, epochs {result.epochs.tolist()}", flush=True)
    return records


def summary(records: list[dict[str, object]]) -> None:
    """Print the means over seeds."""
    print(f"{'dataset':12}{'pre-rank':12}{'before':>9}{'after':>9}{'energy':>9}{'nll':>9}{'':>9}")
    for name in dict.fromkeys(r["dataset"] for r in records):
        groups = {}
        for record in (r for r in records if r["dataset"] == name):
            groups.setdefault(record["trained"], []).append(record)

        def mean(label: str, key: str, groups: dict = groups) -> float:
            return sum(r[key] for r in groups[label]) / len(groups[label])

        for label in groups:
            if label == "none":
                continue
            key = f"excess {label}"
            print(
                f"{name:12}{label:12}{mean('none', key):9.4f}{mean(label, key):9.4f}"
                f"{mean(label, 'energy') / mean('none', 'energy') - 1:+9.1%}"
                f"{mean('none', 'nll'):9.2f}{mean(label, 'nll'):9.2f}"
            )


def main() -> None:
    """Run the study from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["households", "air", "births2"])
    parser.add_argument("--preranks", nargs="+", default=[p.label for p in PAPER])
    parser.add_argument("--strength", type=float, default=10.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    records: list[dict[str, object]] = []
    for name in options.datasets:
        records += study(name, options.strength, options.preranks, options.device)
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(records, file, indent=1)
    summary(records)


if __name__ == "__main__":
    main()
