"""Running a study: unit by unit, on any engine, resumable at any moment."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike

import torch

from prerank.files import CheckpointFile
from prerank.study.costs import study_tasks
from prerank.study.engines import Engine, Event, Failure, InProcess, TaskError
from prerank.study.plans import Plan
from prerank.study.store import Store, Unit
from prerank.study.work import Outcome, UnitWork
from prerank.training import Progress

__all__ = ["StudyProgress", "run_study"]


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
        left: estimated seconds to the end, NaN before the first unit is done.
    """

    unit: Unit
    done: int
    units: int
    training: Progress | None
    rate: float
    left: float


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
    deadline = time.time() + time_limit
    store = Store(folder, plan)
    engine = InProcess() if engine is None else engine
    _tidy(store)
    todo = store.left()
    tracker = _Tracker(len(store.units), todo, on_progress)

    def listen(event: Event) -> None:
        if event.kind in ("retried", "failed"):
            store.log(event)
        tracker.update(event)
        if on_event is not None:
            on_event(event)

    work = UnitWork(folder, device=device, deadline=deadline, every=checkpoint_every)
    tasks = study_tasks(store, todo, gpus=0.0 if str(device) == "cpu" else 1.0)
    report = engine.map(work, tasks, stop=lambda: time.time() >= deadline, on_event=listen)
    if report.failures:
        raise _combined(report.failures)
    interrupted = bool(report.left) or any(o.interrupted for o in report.values.values())
    return Outcome(tuple(tracker.finished), tuple(store.left()), interrupted)


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


class _Tracker:
    """Turns the events of units into the progress of a study."""

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
        self._start = time.monotonic()
        self._first: dict[Unit, tuple[int, float]] = {}  # steps and time of the first epoch seen

    def update(self, event: Event) -> None:
        """Count units and steps."""
        if event.kind == "message":
            unit, training = event.value
            self._report(unit, training, self._rate(unit, training))
        elif event.kind == "finished":
            self._done += not event.value.left and event.task.argument in self._todo
            for unit in event.value.finished:
                self._first.pop(unit, None)
                self.finished.append(unit)
                self._report(unit, None, 0.0)

    def _rate(self, unit: Unit, training: Progress) -> float:
        now = time.monotonic()
        steps, start = self._first.get(unit, (training.steps, now))
        if training.steps <= steps:  # the first epoch that is seen of a training
            steps, start = self._first[unit] = training.steps, now
        return (training.steps - steps) / max(now - start, 1e-9)

    def _report(self, unit: Unit, training: Progress | None, rate: float) -> None:
        if self._on_progress is None:
            return
        spent, mine = time.monotonic() - self._start, len(self.finished)
        left = spent / mine * (self._units - self._done) if mine else float("nan")
        self._on_progress(StudyProgress(unit, self._done, self._units, training, rate, left))
