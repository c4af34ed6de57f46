"""Working through a study: unit by unit, resumable at any moment, on any engine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike

import torch

from prerank.files import CheckpointFile
from prerank.study.costs import count_rows, unit_cost
from prerank.study.engines import Engine, Event, Failure, InProcess, Task, TaskError
from prerank.study.plans import NONE, Plan
from prerank.study.store import Store, Unit
from prerank.study.work import UnitWork
from prerank.training import Progress

__all__ = ["Outcome", "StudyProgress", "run_study", "study_tasks"]


@dataclass(frozen=True)
class StudyProgress:
    """What a progress callback sees.

    Attributes:
        unit: that is being worked on.
        done: units that are known to be done, by this and other processes.
        units: in all.
        training: of the present unit, or None when it is done. Units on a Ray cluster, and those
            of other calls, are seen when they are done.
        rate: optimiser steps per second of the present unit, each of all its runs.
        left: estimated seconds to the end, NaN before the first unit is done.
    """

    unit: Unit
    done: int
    units: int
    training: Progress | None
    rate: float
    left: float


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Attributes:
        finished: units that this call has done, with the processes that it began.
        left: units that are not done: time was up, or other processes work on them.
        interrupted: whether time was up.
    """

    finished: tuple[Unit, ...]
    left: tuple[Unit, ...]
    interrupted: bool


def run_study(
    plan: Plan,
    folder: str | PathLike[str],
    *,
    device: torch.device | str = "cpu",
    time_limit: float = float("inf"),
    checkpoint_every: float = 30.0,
    engine: Engine | None = None,
    on_progress: Callable[[StudyProgress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Outcome:
    """Do what is left of a study.

    A killed study goes on where it stopped, a finished one does nothing, and several processes may
    work on one folder: each unit is done by one of them. A unit that fails does not stop the
    others: its error is raised when they are done. What failed and was tried again is also
    appended to `log.jsonl` in the folder.

    Args:
        plan: what to do.
        folder: where results go, and from where a study goes on.
        device: where to train; `"auto"` is the GPU, where the process that works has one.
        time_limit: seconds after which to stop, with a checkpoint of the unit at hand.
        checkpoint_every: seconds between checkpoints inside a unit.
        engine: where units are worked on; this process by default.
        on_progress: called after each epoch, in this process or its workers, and each unit.
        on_event: told when units are begun, finished, tried again and given up, and of the epochs
            of worker processes.
    """
    deadline = time.time() + time_limit
    store = Store(folder, plan)
    engine = InProcess() if engine is None else engine
    _tidy(store)
    todo = store.left()
    watch = _Watch(len(store.units), todo, on_progress)
    work = UnitWork(
        folder,
        device=device,
        deadline=deadline,
        every=checkpoint_every,
        on_epoch=watch.epoch if engine.here else None,
    )

    def listen(event: Event) -> None:
        if event.kind in ("retried", "failed"):
            store.log(event)
        if event.kind == "told":
            watch.epoch(*event.value)
        if event.kind == "finished":
            watch.ended(event)
        if on_event is not None:
            on_event(event)

    tasks = study_tasks(store, todo, gpus=0.0 if str(device) == "cpu" else 1.0)
    report = engine.map(work, tasks, stop=lambda: time.time() >= deadline, on_event=listen)
    if report.failures:
        raise _combined(report.failures)
    interrupted = bool(report.left) or any(done.interrupted for done in report.values.values())
    return Outcome(tuple(watch.finished), tuple(store.left()), interrupted)


def study_tasks(store: Store, todo: Sequence[Unit], *, gpus: float = 0.0) -> list[Task]:
    """Units as tasks with their costs; penalised ones after the unpenalised one they begin with.

    Args:
        store: of the study.
        todo: its units that are left.
        gpus: that each of them wishes for.
    """
    plan = store.plan
    by_dataset: dict[str, list[Unit]] = {}
    for unit in todo:
        by_dataset.setdefault(unit.dataset, []).append(unit)
    tasks = []
    for dataset, units in by_dataset.items():
        rows = count_rows(dataset)
        base = Unit(dataset, NONE)
        # A plan may do without unpenalised runs; penalised ones begin with them all the same.
        if plan.protocol == "exact" and NONE not in plan.variants and not store.done(base):
            units.insert(0, base)
        needed = (base.stem,) if plan.protocol == "exact" and base in units else ()
        for unit in units:
            cost = unit_cost(plan, unit.variant, rows)
            after = () if unit == base else needed
            tasks.append(Task(unit.stem, unit, cost=cost, gpus=gpus, after=after))
    return tasks


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
    told = {f"{type(failure.error).__name__}: {failure.error}" for failure in own}
    if len(told) == 1 and not isinstance(own[0].error, TaskError):
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


class _Watch:
    """Counts units and steps, and tells the caller."""

    def __init__(
        self,
        units: int,
        todo: Sequence[Unit],
        on_progress: Callable[[StudyProgress], None] | None,
    ) -> None:
        self.finished: list[Unit] = []
        self._units = units
        self._todo = set(todo)
        self._done = units - len(todo)
        self._on_progress = on_progress
        self._begun = time.monotonic()
        self._first: dict[Unit, tuple[int, float]] = {}  # steps and time when it was first seen

    def epoch(self, unit: Unit, training: Progress) -> None:
        """An epoch of a unit is over."""
        now = time.monotonic()
        steps, begun = self._first.get(unit, (training.steps, now))
        if training.steps <= steps:  # the first epoch that is seen of a training
            steps, begun = self._first[unit] = training.steps, now
        self._tell(unit, training, (training.steps - steps) / max(now - begun, 1e-9))

    def ended(self, event: Event) -> None:
        """The work on a unit is over."""
        if event.value.done and event.task.argument in self._todo:
            self._done += 1
        for unit in event.value.finished:
            self._first.pop(unit, None)
            self.finished.append(unit)
            self._tell(unit, None, 0.0)

    def _tell(self, unit: Unit, training: Progress | None, rate: float) -> None:
        if self._on_progress is None:
            return
        spent, mine = time.monotonic() - self._begun, len(self.finished)
        left = spent / mine * (self._units - self._done) if mine else float("nan")
        self._on_progress(StudyProgress(unit, self._done, self._units, training, rate, left))
