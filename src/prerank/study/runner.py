"""Working through a study: unit by unit, resumable at any moment."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from prerank.storage import read_json, write_json
from prerank.study.plans import NONE, Plan
from prerank.study.problems import Problem
from prerank.study.protocols import carry_out
from prerank.study.store import Store, Unit
from prerank.training import Checkpoint, Interrupted, Progress

__all__ = ["Outcome", "StudyProgress", "run_study"]


@dataclass(frozen=True)
class StudyProgress:
    """What a progress callback sees.

    Attributes:
        unit: that is being worked on.
        done: units that are done, by this and other processes.
        units: in all.
        training: of the present unit, or None when it is done.
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
        finished: units that this call has done.
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
    on_progress: Callable[[StudyProgress], None] | None = None,
) -> Outcome:
    """Do what is left of a study.

    A killed study goes on where it stopped, a finished one does nothing, and several processes may
    work on one folder: each unit is done by one of them.

    Args:
        plan: what to do.
        folder: where results go, and from where a study goes on.
        device: where to train.
        time_limit: seconds after which to stop, with a checkpoint of the unit at hand.
        checkpoint_every: seconds between checkpoints inside a unit.
        on_progress: called after each epoch and each unit.
    """
    work = _Work(Store(folder, plan), device, time_limit, checkpoint_every, on_progress)
    interrupted = False
    try:
        for dataset in plan.datasets:
            work.on(dataset)
    except Interrupted:
        interrupted = True
    left = tuple(unit for unit in work.store.units if not work.store.done(unit))
    return Outcome(tuple(work.finished), left, interrupted)


class _Work:
    def __init__(
        self,
        store: Store,
        device: torch.device | str,
        time_limit: float,
        every: float,
        on_progress: Callable[[StudyProgress], None] | None,
    ) -> None:
        self.store = store
        self.device = device
        self.begun = time.monotonic()
        self.until = self.begun + time_limit
        self.every = every
        self.on_progress = on_progress
        self.finished: list[Unit] = []
        self._first: tuple[int, float] | None = None
        self._done: int | None = None

    def on(self, dataset: str) -> None:
        """Do the units of one dataset that nobody else does."""
        units = [Unit(dataset, variant) for variant in self.store.plan.variants]
        if all(self.store.done(unit) for unit in units):
            return
        problem = Problem(dataset, self.store.plan, self.device)
        for unit in units:
            if time.monotonic() >= self.until:
                raise Interrupted("time is up")
            with self.store.claim(unit.stem) as held:
                if held and not self.store.done(unit):
                    self._do(unit, problem)

    def _do(self, unit: Unit, problem: Problem) -> None:
        self.store.clear(unit)
        obstacle = problem.obstacle(unit.variant)
        if obstacle is None:
            self._train(unit, problem)
        else:
            self.store.skip(unit, obstacle)
        self.finished.append(unit)
        self._report(unit, None)

    def _train(self, unit: Unit, problem: Problem) -> None:
        base = None if unit.variant == NONE else self._base(problem)
        checkpoint = self._checkpoint(unit)
        clock = _Clock(checkpoint.path.with_name(f"{checkpoint.path.name}.seconds"), self.every)

        def on_epoch(progress: Progress) -> None:
            clock.follow()
            self._report(unit, progress)

        try:
            frame, theta = carry_out(
                problem, unit.variant, base=base, checkpoint=checkpoint, on_epoch=on_epoch
            )
        except Interrupted:
            clock.write()
            raise
        if unit.variant == NONE:
            self.store.write_base(unit.dataset, theta)
        about = {"seconds": f"{clock.seconds:.3f}", "device": str(self.device)}
        self.store.write(unit, frame, about)
        checkpoint.drop()

    def _base(self, problem: Problem) -> Tensor | None:
        """Unpenalised parameters, trained once: where another process does so, wait for it."""
        if self.store.plan.protocol == "published":
            return None
        unit = Unit(problem.name, NONE)
        while True:
            base = self.store.read_base(problem.name, self.device)
            if base is not None:
                return base
            if time.monotonic() >= self.until:
                raise Interrupted("time is up")
            with self.store.claim(unit.stem) as held:
                if held and self.store.read_base(problem.name, self.device) is None:
                    self._do(unit, problem)
            time.sleep(0.1)

    def _checkpoint(self, unit: Unit) -> Checkpoint:
        path = self.store.checkpoint(unit)
        return Checkpoint(path, every=self.every, until=self.until)

    def _rate(self, training: Progress | None) -> float:
        """Steps of this process per second since the unit, or its next stack, began."""
        now = time.monotonic()
        if training is None:
            self._first = None
            return 0.0
        if self._first is None or training.steps < self._first[0]:
            self._first = training.steps, now
        steps, begun = self._first
        return (training.steps - steps) / max(now - begun, 1e-9)

    def _report(self, unit: Unit, training: Progress | None) -> None:
        if self.on_progress is None:
            return
        units = self.store.units
        if training is None or self._done is None:  # not in every epoch: it looks at every file
            self._done = sum(self.store.done(other) for other in units)
        done = self._done
        spent = time.monotonic() - self.begun
        mine = len(self.finished)
        left = spent / mine * (len(units) - done) if mine else float("nan")
        rate = self._rate(training)
        self.on_progress(StudyProgress(unit, done, len(units), training, rate, left))


class _Clock:
    """Seconds that a unit takes, over all processes that have worked on it.

    Args:
        path: of a file beside the unit's checkpoint, which goes with it.
        every: seconds between two versions.
    """

    def __init__(self, path: Path, every: float) -> None:
        self._path, self._every = path, every
        self._begun = self._written = time.monotonic()
        self._before = float(read_json(path)) if path.exists() else 0.0

    @property
    def seconds(self) -> float:
        """So far."""
        return self._before + time.monotonic() - self._begun

    def follow(self) -> None:
        """To be called after each epoch."""
        if time.monotonic() - self._written >= self._every:
            self.write()

    def write(self) -> None:
        """Keep what was spent."""
        write_json(self._path, self.seconds)
        self._written = time.monotonic()
