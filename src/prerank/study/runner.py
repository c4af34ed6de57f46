"""Running a study: unit by unit, longest first, on any engine, resumable at any moment."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike

import torch

from prerank.datasets import SYNTHETIC, open_dataset
from prerank.datasets.collection import find_table
from prerank.defaults import CHECKPOINT_EVERY
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.files import CheckpointFile
from prerank.files.dataset_tables import table_shape
from prerank.preranks.parsing import bare_labels
from prerank.study.deadlines import Deadline
from prerank.study.engines import Engine, Event, Failure, InProcess, Task, TaskError
from prerank.study.plans import HEAD, NONE, Plan
from prerank.study.store import Store, Unit
from prerank.study.work import Outcome, UnitWork
from prerank.training import Progress
from prerank.training.selection import AUTO_GRID

__all__ = [
    "RATIOS",
    "StudyProgress",
    "count_rows",
    "run_study",
    "study_tasks",
    "unit_cost",
    "unit_runs",
]

RATIOS = {
    "marginal": {"exact": 1.5, "published": 4.0},
    "location": {"exact": 1.5, "published": 3.5},
    "scale": {"exact": 2.8, "published": 4.7},
    "dependency": {"exact": 2.8, "published": 3.9},
    "pca": {"exact": 2.2, "published": 4.6},
    "hdr": {"exact": 4.2, "published": 15.0},
    "copula": {"exact": 5.2, "published": 420.0},  # published: draws 10,100 samples for each row
}
"""A penalised step over an unpenalised one, on two cores: `docs/results/speed.md`."""

_UNTIMED = {"exact": 3.0, "published": 3.0}  # other pre-ranks
_TRAINING = 0.64  # share of the rows that the published splits train on
_UNKNOWN = 10_000  # rows of a dataset that is not on this machine


@dataclass(frozen=True)
class StudyProgress:
    """Argument of a progress callback.

    Attributes:
        unit: being worked on.
        done: number of units known to be done, by this and other processes.
        units: total number.
        training: of the present unit, or None when it is done. Units on a Ray cluster, and those
            of other calls, are reported when they are done.
        rate: optimiser steps per second of the present unit, each of all its runs.
        left: estimated seconds to the end; NaN before the first epoch is done.
        share: of all the work that is done, where units and epochs have their costs: between 0
            and 1. A training is taken to stop after twice its patience.
    """

    unit: Unit
    done: int
    units: int
    training: Progress | None
    rate: float
    left: float
    share: float = 0.0


@needed_by("run_study")
def run_study(
    plan: Plan,
    folder: str | PathLike[str],
    *,
    device: torch.device | str = "cpu",
    time_limit: float = float("inf"),
    checkpoint_every: float = CHECKPOINT_EVERY,
    engine: Engine | None = None,
    on_progress: Callable[[StudyProgress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Outcome:
    """Do what is left of a study.

    A killed study is resumed where it stopped, a finished one does nothing, and several processes
    may work on one folder: each unit is done by one of them. A unit that fails does not stop the
    others: its error is raised when they are done. What failed and was tried again is also
    appended to `log.jsonl` in the folder.

    Args:
        plan: what to do.
        folder: where results go, and from where a study is resumed.
        device: where to train; `"auto"` is the GPU, if the process that works has one.
        time_limit: seconds after which to stop, with a checkpoint of the unit at hand.
        checkpoint_every: seconds between checkpoints inside a unit.
        engine: where units are worked on; this process by default.
        on_progress: called after each epoch, in this process or its workers, and each unit.
        on_event: receives the events of the units: started, finished, tried again, given up; and
            messages after each epoch, whose value is the unit and its `Progress`, except on Ray.
    """
    deadline = Deadline.after(time_limit)
    store = Store(folder, plan)
    engine = InProcess() if engine is None else engine
    _tidy(store)
    todo = store.left()
    units = len(store.units)

    def listen(event: Event) -> None:
        if event.kind in ("retried", "failed"):
            store.log(event)
        tracker.update(event)
        if on_event is not None:
            on_event(event)

    work = UnitWork(store.folder.absolute(), str(device), deadline, checkpoint_every)
    tasks = study_tasks(store, todo, gpus=0.0 if str(device) == "cpu" else 1.0)
    costs = {task.argument: task.cost for task in tasks}
    tracker = _Tracker(
        on_progress or (lambda _: None),
        units,
        units - len(todo),
        todo,
        costs,
        2 * plan.training.patience,
    )
    report = engine.map(work, tasks, stop=lambda: deadline.passed, on_event=listen)
    if report.failures:
        raise _combined(report.failures)
    interrupted = bool(report.left) or any(o.interrupted for o in report.values.values())
    return Outcome(tuple(tracker.finished), tuple(store.left()), interrupted)


def unit_cost(plan: Plan, variant: str, rows: int) -> float:
    r"""Work of a unit, in steps of one unpenalised run: an upper limit, as if no run stopped early.

    .. math:: \text{seeds} \times \text{strengths} \times \text{epochs} \times
              \text{steps per epoch} \times \Big(1 + \sum_i (r_i - 1)\Big),

    with :math:`r_i` the measured ratio of each pre-rank of the penalty. A head is taken to cost as
    much as the runs that it stands behind.

    Args:
        plan: for seeds, strengths, epochs and batches.
        variant: the penalty, `"head"` or `"none"`.
        rows: of the dataset.

    Example:
        >>> plan = Plan.preset("quick")
        >>> unit_cost(plan, "none", 3000), unit_cost(plan, "hdr", 3000)
        (840.0, 14112.0)
    """
    training = plan.training
    steps = max(training.min_steps, math.floor(_TRAINING * rows / training.batch_size), 1)
    labels = [] if variant in (NONE, HEAD) else bare_labels(variant)
    ratio = 1 + sum(RATIOS.get(label, _UNTIMED)[plan.protocol] - 1 for label in labels)
    return float(unit_runs(plan, variant) * training.max_epochs * steps * ratio)


def unit_runs(plan: Plan, variant: str) -> int:
    """Runs of a unit, one for each seed and strength."""
    if variant in (NONE, HEAD) or plan.protocol == "published":
        return len(plan.seeds)
    grid = AUTO_GRID if isinstance(plan.strengths, str) else (0.0, *plan.strengths)
    return len(plan.seeds) * len(grid)


def study_tasks(store: Store, todo: Sequence[Unit], *, gpus: float = 0.0) -> list[Task]:
    """Units as tasks with their costs; penalised ones after the unpenalised one they start from.

    Args:
        store: of the study.
        todo: its units that are left.
        gpus: number of GPUs that each of them requests.
    """
    plan = store.plan
    by_dataset: dict[str, list[Unit]] = {}
    for unit in todo:
        by_dataset.setdefault(unit.dataset, []).append(unit)
    tasks = []
    for dataset, units in by_dataset.items():
        rows = count_rows(dataset)
        base = Unit(dataset, NONE)
        # A plan may leave out unpenalised runs; penalised ones start from them all the same.
        if plan.protocol == "exact" and NONE not in plan.variants and not store.done(base):
            units.insert(0, base)
        needed = (base.stem,) if plan.protocol == "exact" and base in units else ()
        for unit in units:
            cost = unit_cost(plan, unit.variant, rows)
            after = () if unit == base else needed
            tasks.append(Task(unit.stem, unit, cost=cost, gpus=gpus, after=after))
    return tasks


def count_rows(dataset: str) -> int:
    """Rows of a dataset, without reading them; a guess where it is not on this machine."""
    if dataset in SYNTHETIC:
        return len(open_dataset(dataset).x)
    try:
        return table_shape(find_table(dataset))[0]
    except InputError:
        return _UNKNOWN


def _tidy(store: Store) -> None:
    """Remove checkpoints of units that are done, where a process was killed before it did so."""
    kept = [path.name for path in (store.folder / "checkpoints").glob("*")]
    for unit in store.units if kept else ():
        if any(name.startswith(f"{unit.stem}.") for name in kept) and store.done(unit):
            with store.claim(unit.stem) as held:  # another process may be just about to
                if held:
                    store.clear(unit)
                    CheckpointFile(store.checkpoint(unit)).discard()


def _combined(failures: Sequence[Failure]) -> BaseException:
    """The error that all failed units have, or one that names them and theirs."""
    own = [failure for failure in failures if failure.attempts]  # the others only needed these
    texts = {f"{type(failure.error).__name__}: {failure.error}" for failure in own}
    if len(texts) == 1 and not isinstance(own[0].error, TaskError):
        return own[0].error
    listed = "; ".join(
        f"{f.task.name} ({type(f.error).__name__}: {f.error}, attempt {f.attempts})" for f in own
    )
    units = "1 unit" if len(failures) == 1 else f"{len(failures)} units"
    error = TaskError(
        f"{units} failed: {listed}. The others are done, as far as time allowed; run "
        "the study again to try these again"
    )
    error.__cause__ = own[0].error
    return error


@dataclass
class _Tracker:
    """Turns the events of units into the progress of a study."""

    on_progress: Callable[[StudyProgress], object]
    units: int
    done: int
    todo: Sequence[Unit]
    costs: dict[Unit, float]
    epochs: int  # after which a training is taken to stop
    finished: list[Unit] = field(default_factory=list)
    start: float = field(default_factory=time.monotonic)
    first: dict[Unit, tuple[int, float]] = field(default_factory=dict)  # steps and time, first seen
    parts: dict[Unit, float] = field(default_factory=dict)  # of each unit that are done
    given: dict[Unit, float] = field(default_factory=dict)  # of these, by earlier calls

    def update(self, event: Event) -> None:
        """Count units and steps."""
        if event.kind == "message":
            unit, training = event.value
            now = time.monotonic()
            steps, start = self.first.get(unit, (training.steps, now))
            if training.steps <= steps:  # the first epoch that is seen of a training
                steps, start = self.first[unit] = training.steps, now
            likely = max(self.epochs, training.epoch + self.epochs // 4)
            epochs = min(training.max_epochs, likely)
            self.given.setdefault(unit, (training.epoch - 1) / epochs)
            self.parts[unit] = max(self.parts.get(unit, 0.0), training.epoch / epochs)
            self._report(unit, training, (training.steps - steps) / max(now - start, 1e-9))
        elif event.kind == "finished":
            self.done += not event.value.left and event.task.argument in self.todo
            for unit in event.value.finished:
                self.first.pop(unit, None)
                self.parts[unit] = 1.0
                self.finished.append(unit)
                self._report(unit, None, 0.0)

    def _report(self, unit: Unit, training: Progress | None, rate: float) -> None:
        spent, whole = time.monotonic() - self.start, sum(self.costs.values())
        work, given = (
            sum(self.costs.get(one, 0.0) * part for one, part in parts.items())
            for parts in (self.parts, self.given)
        )
        left = spent * (whole - work) / (work - given) if work > given else float("nan")
        before = (self.units - len(self.todo)) / self.units  # by earlier calls
        share = before + (1 - before) * work / whole if whole else 1.0
        progress = StudyProgress(unit, self.done, self.units, training, rate, left, share)
        self.on_progress(progress)
