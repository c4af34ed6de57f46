"""Real data, many runs at once: a pass over calcofi, and the whole of households.

The tables are read from the folder in PRERANK_DATA.
"""

import time
from dataclasses import replace

import torch

from prerank.datasets import PUBLISHED_SEEDS, Split, Table, load_table, published_split
from prerank.errors import InputError
from prerank.models import MixtureNetwork
from prerank.preranks import PAPER
from prerank.training import Run, Settings, Trainer, TrainingData, evaluate, train
from problems import labels, objective
from session import Skipped
from timing import Plan, Record, release, span

# The published rate, rows per batch and patience, and the penalty from the first step on.
_SETTINGS = Settings(lr=1e-4, max_epochs=5000, fine_tune=False)
_STRENGTHS = (0.0, 1.0, 3.0, 10.0, 30.0)
_RUNS = [
    Run(seed, split, strength)
    for strength in _STRENGTHS
    for split, seed in enumerate(PUBLISHED_SEEDS)
]


def measure_pass(plan: Plan) -> list[Record]:
    """Seconds in which 25 stacked runs see every training row of calcofi once."""
    table = _table("calcofi", plan)
    data = _data(table, _splits(table), plan)
    network = MixtureNetwork(table.x.shape[1], table.y.shape[1])
    rows = data.train.shape[1]
    batches = rows // _SETTINGS.batch_size
    found: list[Record] = []
    for name in labels(table.y.shape[1]):
        trainer = Trainer(
            network,
            data,
            _RUNS,
            objective=objective(name),
            settings=replace(_SETTINGS, min_steps=10**9),
        )
        span(trainer.step, 8, plan.device)  # kernels are compiled and the graph is recorded
        seconds = batches * span(trainer.step, batches, plan.device)
        found.append(
            {
                "prerank": name,
                "runs": len(_RUNS),
                "rows": rows,
                "seconds": seconds,
                "ms per step": 1e3 * seconds / batches,
            }
        )
        del trainer
        release(plan.device)
    return found


def measure_whole(plan: Plan) -> list[Record]:
    """Seconds for 7 pre-ranks, 5 strengths and 5 seeds, trained to their stop and evaluated."""
    table = _table("households", plan)
    splits = _splits(table)
    settings = replace(_SETTINGS, max_epochs=2) if plan.small else _SETTINGS
    network = MixtureNetwork(table.x.shape[1], table.y.shape[1])
    begin = time.perf_counter()
    data = _data(table, splits, plan)
    split = torch.tensor([[run.split] for run in _RUNS], device=plan.device)
    test = torch.stack([s.test for s in splits]).to(plan.device)[split.squeeze(1)]
    x, y = data.x[split, test], data.y[split, test]
    found: list[Record] = []
    for prerank in PAPER:
        start = time.perf_counter()
        result = train(network, data, _RUNS, objective=objective(prerank.label), settings=settings)
        epochs = result.epochs.tolist()  # waits for the device
        trained = time.perf_counter()
        energy = evaluate(network, result.theta, x, y, PAPER).energy
        finite = int(torch.isfinite(energy).sum())
        found.append(
            {
                "prerank": prerank.label,
                "runs": len(_RUNS),
                "training s": trained - start,
                "evaluation s": time.perf_counter() - trained,
                "seconds": time.perf_counter() - start,
                "median epochs": sorted(epochs)[len(epochs) // 2],
                "most epochs": max(epochs),
                "finite runs": finite,
            }
        )
    seconds = time.perf_counter() - begin
    runs = len(PAPER) * len(_RUNS)
    whole: Record = {"prerank": "all", "runs": runs, "seconds": seconds}
    return [*found, {**whole, "runs per second": runs / seconds}]


def _table(name: str, plan: Plan) -> Table:
    try:
        table = load_table(name)
    except InputError as error:
        raise Skipped(str(error)) from error
    return replace(table, x=table.x[:3000], y=table.y[:3000]) if plan.small else table


def _splits(table: Table) -> list[Split]:
    return [published_split(len(table.x), seed) for seed in PUBLISHED_SEEDS]


def _data(table: Table, splits: list[Split], plan: Plan) -> TrainingData:
    pairs = [(split.train, split.validation) for split in splits]
    return TrainingData.build(table.x, table.y, pairs, device=plan.device)
