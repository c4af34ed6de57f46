"""Calibration before and after the penalty, on the published splits and seeds.

    python experiments/penalty.py --datasets households air births2 --out results

For each dataset, trains the unpenalised network and one for each pre-rank (the five published
seeds in one stack), and evaluates all of them on the test rows with exact PITs. Each variant is
written to a file of its own as soon as it is done, and found there by the next call; then the
means over seeds are printed as a table. The datasets are read from the folder in PRERANK_DATA.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch

from prerank.datasets import PUBLISHED_SEEDS, load_table, published_split
from prerank.errors import NotApplicableError
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER
from prerank.storage import read_json, write_json
from prerank.training import Objective, Run, Settings, TrainingData, evaluate, train

SETTINGS = Settings(lr=1e-4, batch_size=256, max_epochs=5000, patience=15, min_delta=1e-4)

Record = dict[str, Any]


def study(
    name: str, strength: float, labels: list[str], device: str, max_steps: int, out: Path
) -> None:
    """Train and evaluate the variants of one dataset that have no file yet."""
    table = load_table(name)
    splits = [published_split(len(table.x), seed) for seed in PUBLISHED_SEEDS]
    data = TrainingData.build(
        table.x, table.y, [(s.train, s.validation) for s in splits], device=device
    )
    network = MixtureNetwork(table.x.shape[1], table.y.shape[1])
    test = torch.stack([s.test for s in splits]).to(device)
    rows = torch.arange(len(splits), device=device).unsqueeze(1)
    x, y = data.x[rows, test], data.y[rows, test]
    steps = max(1, data.train.shape[1] // SETTINGS.batch_size)
    epochs = min(SETTINGS.max_epochs, math.ceil(max_steps / steps))
    probe = network(torch.stack([network.initial(0)]).to(data.x), data.x[:1, :2])
    applicable = tuple(prerank for prerank in PAPER if _applies(prerank, probe))
    known = {"none", *(prerank.label for prerank in applicable)}
    for label in (label for label in ["none", *labels] if label in known):
        file = out / f"{name}-{label}-{strength:g}-{max_steps}.json"
        if file.exists():
            continue
        penalty = None if label == "none" else CalibrationPenalty(label)
        weight = 0.0 if penalty is None else strength
        runs = [Run(seed, split, weight) for split, seed in enumerate(PUBLISHED_SEEDS)]
        start = time.perf_counter()
        result = train(
            network,
            data,
            runs,
            objective=Objective(penalty),
            settings=replace(SETTINGS, max_epochs=epochs),
        )
        seconds = time.perf_counter() - start
        found = evaluate(network, result.theta, x, y, applicable)
        records = [
            {
                "dataset": name,
                "trained": label,
                "strength": weight,
                "seed": seed,
                "epochs": int(result.epochs[m]),
                "capped": bool(result.epochs[m] == epochs),
                "seconds": seconds,
                "energy": float(found.energy[m]),
                "nll": float(found.nll[m]),
                "finite": bool(torch.isfinite(result.theta[m]).all()),
                "excess": {p: float(found.excess(p)[m]) for p in found.pce},
            }
            for m, seed in enumerate(PUBLISHED_SEEDS)
        ]
        write_json(file, {"records": records})
        print(name, label, f"{seconds:.0f} s, epochs {result.epochs.tolist()}", flush=True)


def _applies(prerank: Any, probe: Any) -> bool:
    try:
        prerank.check(probe)
    except NotApplicableError:
        return False
    return True


def summary(out: Path) -> Iterator[str]:
    """Lines of a table of means over seeds, with the standard error of the paired change."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for file in sorted(out.glob("*.json")):
        for record in read_json(file)["records"]:
            groups.setdefault((record["dataset"], record["trained"]), []).append(record)
    yield "| dataset | pre-rank | before | after | change ± se | energy | NLL | largest NLL |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for (name, label), after in groups.items():
        if label == "none":
            continue
        before = groups[name, "none"]
        pairs = list(zip(before, after, strict=True))
        change = [a["excess"][label] - b["excess"][label] for b, a in pairs]
        energy = mean(a["energy"] for a in after) / mean(b["energy"] for b in before) - 1
        yield (
            f"| {name} | {label} | {mean(b['excess'][label] for b in before):.4f} "
            f"| {mean(a['excess'][label] for a in after):.4f} "
            f"| {mean(change):+.4f} ± {stdev(change) / len(change) ** 0.5:.4f} | {energy:+.1%} "
            f"| {median(b['nll'] for b in before):.2f} → {median(a['nll'] for a in after):.2f} "
            f"| {max(a['nll'] for a in after):.2f} |"
        )
    runs = [record for group in groups.values() for record in group]
    wild = [
        r
        for r in runs
        if not r["finite"]
        or not math.isfinite(r["nll"])
        or (r["nll"] > 50 and median(b["nll"] for b in groups[r["dataset"], "none"]) < 10)
    ]
    capped = sorted({r["dataset"] for r in runs if r["capped"]})
    yield ""
    yield f"{len(runs)} runs, {len(wild)} not finite or with an NLL above 50."
    if capped:
        yield f"Some runs reached the largest number of steps on: {', '.join(capped)}."


def main() -> None:
    """Run the study from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["households", "air", "births2"])
    parser.add_argument("--preranks", nargs="+", default=[p.label for p in PAPER])
    parser.add_argument("--strength", type=float, default=10.0)
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("penalty-results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        study(
            name,
            options.strength,
            options.preranks,
            options.device,
            options.max_steps,
            options.out,
        )
    print("\n".join(summary(options.out)))


if __name__ == "__main__":
    main()
