"""The work on one unit, in whatever process: it is claimed, trained, judged and stored."""

import os
import time
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.files import CheckpointFile, check_within, read_json, write_json
from prerank.inputs import as_device
from prerank.study.deadlines import Deadline
from prerank.study.engines import emit
from prerank.study.plans import NONE
from prerank.study.protocols import Problem, run_variant
from prerank.study.store import Store, Unit
from prerank.training import Checkpoint, Interrupted, Progress

__all__ = ["Outcome", "UnitWork", "device_name", "worker_environment"]


@dataclass(frozen=True)
class Outcome:
    """Result of a call that works on a study, or on one unit of it.

    Attributes:
        finished: units done by this call and the processes that it started. Work on a penalised
            unit includes the unpenalised one if that had to come first.
        left: units that are not done: time was up, or other processes work on them.
        interrupted: whether time was up.
    """

    finished: tuple[Unit, ...]
    left: tuple[Unit, ...]
    interrupted: bool


def device_name(device: torch.device | str) -> str:
    """Name of a device that this process has; `"auto"` is the GPU if there is one."""
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    return str(as_device(automatic if str(device) == "auto" else device, "device"))


def worker_environment() -> dict[str, str]:
    """Variables of this package, for workers on other machines: where the data lies."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("PRERANK_")}
    if "PRERANK_DATA" in variables:
        variables["PRERANK_DATA"] = str(Path(variables["PRERANK_DATA"]).absolute())
    return variables


@dataclass(eq=False)
class UnitWork:
    """A function of a unit that can be sent to other processes, and machines that share files.

    After each epoch it emits the unit and its `Progress`.

    Args:
        folder: absolute path of the study, which holds its plan.
        device: where to train; `"auto"` is the GPU if the process that works has one.
        deadline: when to stop.
        every: seconds between checkpoints.
    """

    folder: Path
    device: str
    deadline: Deadline
    every: float
    _problem: Problem | None = field(default=None, init=False)
    _finished: list[Unit] = field(default_factory=list, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """What travels: no rows."""
        return _work, (self.folder, self.device, self.deadline, self.every)

    @cached_property
    def _store(self) -> Store:
        return Store(self.folder)

    def __call__(self, unit: Unit) -> Outcome:
        """Do a unit, unless it is done or another process does it."""
        store = self._store
        self._finished = []
        interrupted = False
        try:
            self._check_time()
            with store.claim(unit.stem) as held:
                if held and not store.done(unit):
                    self._do(unit, self._open(unit.dataset))
        except Interrupted:
            interrupted = True
        left = () if store.done(unit) else (unit,)
        return Outcome(tuple(self._finished), left, interrupted)

    def _open(self, dataset: str) -> Problem:
        """The rows of a dataset, kept until another one is asked for."""
        if self._problem is None or self._problem.name != dataset:
            self._problem = None  # frees the memory of the other one first
            self._problem = Problem(dataset, self._store.plan, device_name(self.device))
        return self._problem

    def _check_time(self) -> None:
        if self.deadline.passed:
            raise Interrupted("time is up")

    def _do(self, unit: Unit, problem: Problem) -> None:
        self._store.clear(unit)
        obstacle = problem.obstacle(unit.variant)
        if obstacle is None:
            self._train(unit, problem)
        else:
            self._store.skip(unit, obstacle)
        self._finished.append(unit)

    def _train(self, unit: Unit, problem: Problem) -> None:
        store = self._store
        base = None if unit.variant == NONE else self._base(problem)
        file = CheckpointFile(store.checkpoint(unit))
        checkpoint = Checkpoint(file, every=self.every, until=self.deadline.until)
        clock = _Clock(file.part("seconds").path, self.every)

        def on_epoch(progress: Progress) -> None:
            clock.follow()
            emit((unit, progress))

        try:
            frame, theta = run_variant(
                problem, unit.variant, base=base, checkpoint=checkpoint, on_epoch=on_epoch
            )
        except Interrupted:
            clock.write()
            raise
        if unit.variant == NONE:
            store.write_base(unit.dataset, theta, content=problem.content)
        about = {"seconds": f"{clock.seconds:.3f}", "device": device_name(self.device)}
        store.write(unit, frame, {**about, "content": problem.content})
        checkpoint.drop()

    def _base(self, problem: Problem) -> Tensor | None:
        """Unpenalised parameters, trained once: if another process does so, wait for it."""
        store = self._store
        if store.plan.protocol == "published":
            return None
        unit = Unit(problem.name, NONE)
        place = device_name(self.device)
        read = partial(store.read_base, problem.name, place, content=problem.content)
        while True:
            base = read()
            if base is not None:
                return base
            self._check_time()
            with store.claim(unit.stem) as held:
                if held and read() is None:
                    self._do(unit, problem)
            time.sleep(0.1)


# A worker process that is sent one function after the other keeps what it has read.
@lru_cache(maxsize=1)
def _work(folder: Path, device: str, deadline: Deadline, every: float) -> UnitWork:
    return UnitWork(folder, device, deadline, every)


class _Clock:
    """Seconds that a unit takes, over all processes that have worked on it.

    Args:
        path: of a file beside the unit's checkpoint, which goes with it.
        every: seconds between two versions.
    """

    def __init__(self, path: Path, every: float) -> None:
        self._path, self._every = path, every
        self._start = self._written = time.monotonic()
        self._before = _seconds(path)

    @property
    def seconds(self) -> float:
        """So far."""
        return self._before + time.monotonic() - self._start

    def follow(self) -> None:
        """To be called after each epoch."""
        if time.monotonic() - self._written >= self._every:
            self.write()

    def write(self) -> None:
        """Store the seconds so far."""
        write_json(self._path, self.seconds)
        self._written = time.monotonic()


def _seconds(path: Path) -> float:
    """Seconds that a file holds; 0 if it is missing, or holds no such number."""
    try:
        seconds = float(read_json(check_within(path, path.parent)))
    except (InputError, TypeError, ValueError, OverflowError):
        return 0.0
    return seconds if 0 <= seconds < float("inf") else 0.0
