"""How long the units of a study will take on this machine's CPU, before any of them starts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from prerank.datasets import SYNTHETIC, open_dataset
from prerank.datasets.collection import find_table
from prerank.estimators.durations import measured_slowness
from prerank.files.dataset_tables import table_shape
from prerank.models import MixtureNetwork
from prerank.study.plans import HEAD, NONE, Plan
from prerank.study.rows import Unit
from prerank.study.runner import unit_cost, unit_runs
from prerank.training import Run, Trainer, TrainingData

__all__ = ["Speed", "expected_seconds"]

_EPOCHS = 8  # times the patience: when a training often stops
_TUNING = 2  # the same for a fine-tuning, whose patience is longer
_TEST, _UNSEEN = 0.22, 0.3  # shares of the rows that judge a run, and that a head is fitted to
_JUDGING = {"exact": 5e-5, "published": 1.4e-3}  # seconds of a run, a row, a target
_START = 4.0  # seconds of a worker process
_STEPS, _TIMED = 2, 3  # steps in an epoch, and epochs, of the measurement


class Speed(NamedTuple):
    """How fast a machine is.

    Attributes:
        slowness: its times over those of the machine on which judging and heads were measured.
        steps: seconds of a step of all seeds, by dataset.
    """

    slowness: float
    steps: Mapping[str, float]


def expected_seconds(
    plan: Plan, units: Sequence[Unit], *, workers: int = 1, speed: Speed | None = None
) -> float:
    """Seconds until units are done, from the measured time of a few steps of their networks.

    The epoch in which a training stops is not known in advance: the estimate is usually good to a
    factor of 2, and sometimes to 3. If the unpenalised network has no error to correct, the exact
    protocol tries no strength, and takes less.

    Args:
        plan: plan of the study.
        units: units that are left; their datasets are on this machine.
        workers: number of processes at a time, with one thread each.
        speed: speed of the machine; measured by default.

    Example:
        >>> quick = Plan.preset("quick")
        >>> unit = Unit("ar1", "none")
        >>> speed = Speed(slowness=1.0, steps={"ar1": 0.002})
        >>> round(expected_seconds(quick, [unit], speed=speed), 1)
        0.7
    """
    if not units:
        return 0.0
    shapes = {name: _shape(name) for name in dict.fromkeys(unit.dataset for unit in units)}
    slowness, steps = speed or _measured(plan, shapes)
    total, longest = 0.0, 0.0
    for name, shape in shapes.items():
        own = [unit.variant for unit in units if unit.dataset == name]
        if plan.protocol == "exact" and NONE not in plan.variants:
            own.append(NONE)
        seconds = {
            variant: _training(plan, variant, shape[0]) * steps[name]
            + slowness * _afterwards(plan, variant, shape[0], shape[2])
            for variant in own
        }
        first = seconds.pop(NONE, 0.0)
        total += first + sum(seconds.values())
        longest = max(longest, first + max(seconds.values(), default=0.0))
    return max(longest, total / workers) + (slowness * _START if workers > 1 else 0.0)


def _measured(plan: Plan, shapes: Mapping[str, tuple[int, int, int]]) -> Speed:
    """The speed of this machine, with one thread, as workers have it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = {name: _step_seconds(plan, *shape[1:]) for name, shape in shapes.items()}
        return Speed(measured_slowness(), steps)
    finally:
        torch.set_num_threads(threads)


def _training(plan: Plan, variant: str, rows: int) -> float:
    """Steps of the unpenalised stack of all seeds that the training of a unit is worth."""
    if variant == HEAD:
        return 0.0
    tuned = variant != NONE and plan.protocol == "exact" and plan.training.fine_tune
    training = plan.training.tuning if tuned else plan.training
    usual = training.patience * (_TUNING if tuned else _EPOCHS)
    share = min(1.0, usual / training.max_epochs)
    return share * unit_cost(replace(plan, training=training), variant, rows) / len(plan.seeds)


def _afterwards(plan: Plan, variant: str, rows: int, targets: int) -> float:
    """Seconds of judging, and of heads, at the speed at which these were measured."""
    judged = unit_runs(plan, variant) * _TEST * rows * targets * plan.n_samples / 100
    seconds = _JUDGING[plan.protocol] * judged
    if variant == HEAD:
        each = (0.06 + 0.018 * targets) * (0.35 + 0.65 * plan.n_components / 5)
        seconds += len(plan.seeds) * (_UNSEEN * rows) ** 0.55 * each
    return seconds


def _step_seconds(plan: Plan, inputs: int, targets: int) -> float:
    """Measured seconds of a step of all seeds, with its share of the look at validation rows."""
    rows = _STEPS * plan.training.batch_size
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(rows + rows // 4, inputs, generator=draw)
    y = torch.randn(rows + rows // 4, targets, generator=draw)
    numbers = torch.arange(len(x))
    trainer = Trainer(
        MixtureNetwork(inputs, targets, plan.n_components, plan.hidden),
        TrainingData.build(x, y, [(numbers[:rows], numbers[rows:])]),
        [Run(seed) for seed in plan.seeds],
        settings=replace(plan.training, min_steps=1, max_epochs=1 + _TIMED, patience=1 + _TIMED),
    )
    while trainer.progress.epoch < 1:
        trainer.step()
    start = time.perf_counter()
    while not trainer.done:
        trainer.step()
    return (time.perf_counter() - start) / (_TIMED * _STEPS)


def _shape(name: str) -> tuple[int, int, int]:
    """Rows, inputs and targets of a dataset."""
    if name not in SYNTHETIC:
        return table_shape(find_table(name))
    table = open_dataset(name)
    return len(table.x), table.x.shape[1], table.y.shape[1]
