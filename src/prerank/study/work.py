"""What is done for one unit, in whatever process: claimed, trained, judged, put in place."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.files import CheckpointFile, check_within, read_json, write_json
from prerank.inputs import as_device
from prerank.study.engines import tell
from prerank.study.plans import NONE
from prerank.study.problems import Problem
from prerank.study.protocols import run_variant
from prerank.study.store import Store, Unit
from prerank.training import Checkpoint, Interrupted, Progress

__all__ = ["UnitWork", "WorkDone"]


@dataclass(frozen=True)
class WorkDone:
    """How the work on a unit ended.

    Attributes:
        finished: units that were done: the unit, and the unpenalised one where it had to come
            first. None where the unit was done already, or another process works on it.
        done: whether nothing of the unit is left to do, by whomever.
        interrupted: whether time was up.
    """

    finished: tuple[Unit, ...]
    done: bool
    interrupted: bool


class UnitWork:
    """A function of a unit that can be sent to other processes, and machines that share files.

    Args:
        folder: of the study, which holds its plan.
        device: where to train; `"auto"` is the GPU where the process that works has one.
        deadline: when to stop, as `time.time` counts.
        every: seconds between checkpoints.
        on_epoch: called after each epoch; stays in this process. Others tell their engine.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        device: torch.device | str = "cpu",
        deadline: float = float("inf"),
        every: float = 30.0,
        on_epoch: Callable[[Unit, Progress], None] | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.device = str(device)
        self.deadline = deadline
        self.every = every
        self._on_epoch = on_epoch
        self._store: Store | None = None
        self._problem: Problem | None = None
        self._finished: list[Unit] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """What travels: neither rows nor callbacks."""
        return _work, (self.folder, self.device, self.deadline, self.every)

    def __call__(self, unit: Unit) -> WorkDone:
        """Do a unit, unless it is done or another process does it."""
        if self._store is None:
            self._store = Store(self.folder)
        store = self._store
        self._finished = []
        interrupted = False
        try:
            self._check_time()
            with store.claim(unit.stem) as held:
                if held and not store.done(unit):
                    self._do(store, unit, self._open(store, unit.dataset))
        except Interrupted:
            interrupted = True
        return WorkDone(tuple(self._finished), store.done(unit), interrupted)

    def _open(self, store: Store, dataset: str) -> Problem:
        """The rows of a dataset, kept until another one is asked for."""
        if self._problem is None or self._problem.name != dataset:
            self._problem = None  # first let the other one go
            self._problem = Problem(dataset, store.plan, self._place)
        return self._problem

    @property
    def _place(self) -> str:
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        return str(as_device(automatic if self.device == "auto" else self.device, "device"))

    def _check_time(self) -> None:
        if time.time() >= self.deadline:
            raise Interrupted("time is up")

    def _do(self, store: Store, unit: Unit, problem: Problem) -> None:
        store.clear(unit)
        obstacle = problem.obstacle(unit.variant)
        if obstacle is None:
            self._train(store, unit, problem)
        else:
            store.skip(unit, obstacle)
        self._finished.append(unit)

    def _train(self, store: Store, unit: Unit, problem: Problem) -> None:
        base = None if unit.variant == NONE else self._base(store, problem)
        until = time.monotonic() + (self.deadline - time.time())
        file = CheckpointFile(store.checkpoint(unit))
        checkpoint = Checkpoint(file, every=self.every, until=until)
        clock = _Clock(file.part("seconds").path, self.every)

        def on_epoch(progress: Progress) -> None:
            clock.follow()
            if self._on_epoch is not None:
                self._on_epoch(unit, progress)

        try:
            frame, theta = run_variant(
                problem, unit.variant, base=base, checkpoint=checkpoint, on_epoch=on_epoch
            )
        except Interrupted:
            clock.write()
            raise
        if unit.variant == NONE:
            store.write_base(unit.dataset, theta, content=problem.content)
        about = {"seconds": f"{clock.seconds:.3f}", "device": self._place}
        store.write(unit, frame, {**about, "content": problem.content})
        checkpoint.drop()

    def _base(self, store: Store, problem: Problem) -> Tensor | None:
        """Unpenalised parameters, trained once: where another process does so, wait for it."""
        if store.plan.protocol == "published":
            return None
        unit = Unit(problem.name, NONE)
        read = partial(store.read_base, problem.name, self._place, content=problem.content)
        while True:
            base = read()
            if base is not None:
                return base
            self._check_time()
            with store.claim(unit.stem) as held:
                if held and read() is None:
                    self._do(store, unit, problem)
            time.sleep(0.1)


# A worker process that is sent one function after the other keeps what it has read.
@lru_cache(maxsize=1)
def _work(folder: Path, device: str, deadline: float, every: float) -> UnitWork:
    def on_epoch(unit: Unit, training: Progress) -> None:
        tell((unit, training))

    return UnitWork(folder, device=device, deadline=deadline, every=every, on_epoch=on_epoch)


class _Clock:
    """Seconds that a unit takes, over all processes that have worked on it.

    Args:
        path: of a file beside the unit's checkpoint, which goes with it.
        every: seconds between two versions.
    """

    def __init__(self, path: Path, every: float) -> None:
        self._path, self._every = path, every
        self._begun = self._written = time.monotonic()
        self._before = _seconds(path)

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


def _seconds(path: Path) -> float:
    """Seconds that a file tells; 0 where it is not there, or tells nothing of the kind."""
    try:
        seconds = float(read_json(check_within(path, path.parent)))
    except (InputError, TypeError, ValueError, OverflowError):
        return 0.0
    return seconds if 0 <= seconds < float("inf") else 0.0
