"""Studies long enough to be disturbed, the undisturbed ones, and one attempt to finish a study."""

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from chaos.moments import Lives, Watch
from prerank.errors import InputError
from prerank.study import Plan, Store
from study.disturbed import assert_same, command
from study.engines.jobs import marked, wait_until
from study.tiny import tiny, write_table

CHECKPOINT_EVERY = 0.5
"""Seconds between checkpoints: a kill in training costs less than a start."""

_LIMIT = 1800.0  # seconds that one command may take, on a busy machine
_ENDS = 60.0  # and that processes may take to notice the end of their driver


def plans(length: float) -> dict[str, Plan]:
    """Studies by name.

    Args:
        length: of the trainings; with 1, units take 5 to 10 s on one core.
    """
    plan = tiny(datasets=("cubes", "cubed"), variants=("none", "marginal", "hdr"))

    def lasting(plan: Plan, epochs: float) -> Plan:
        # Nothing stops early: the number of epochs would depend on the kind of machine.
        settings = dataclasses.replace(
            plan.training, max_epochs=max(2, round(epochs * length)), patience=10**6
        )
        return dataclasses.replace(plan, training=settings)

    few = dataclasses.replace(plan, variants=("none", "marginal"))
    return {
        "exact": lasting(plan, 100),
        "search": lasting(dataclasses.replace(few, strengths="auto"), 100),
        "published": lasting(
            dataclasses.replace(few, protocol="published", strengths=(30.0,)), 1000
        ),
        "unpenalised": lasting(dataclasses.replace(plan, variants=("none",)), 3000),
    }


@dataclass
class Ground:
    """A folder for everything, with the data, and undisturbed studies as they are asked for."""

    folder: Path
    length: float
    plans: dict[str, Plan] = field(init=False)

    def __post_init__(self) -> None:
        """Write the data."""
        self.plans = plans(self.length)
        os.environ["PRERANK_DATA"] = str(self.folder / "data")
        write_table(self.folder / "data", "cubes", 3, power=3)
        write_table(self.folder / "data", "cubed", 2, power=3)

    @contextmanager
    def stage(self) -> Iterator[Path]:
        """A folder that is not there yet; removed unless an error leaves it."""
        folder = self.folder / f"stage-{len(list(self.folder.glob('stage-*')))}"
        yield folder
        shutil.rmtree(folder, ignore_errors=True)

    def kept(self, scenario: str) -> Path:
        """A new folder for what a fault left."""
        number = len(list(self.folder.glob("kept-*")))
        return self.folder / f"kept-{number}-{scenario.replace(' ', '-')}"

    def undisturbed(self, name: str) -> Path:
        """Folder of a finished study that nothing happened to."""
        folder = self.folder / "undisturbed" / name
        if not (folder / "finished").exists():
            folder.parent.mkdir(exist_ok=True)
            code, errors = Attempt(self.plans[name], folder, "processes").finish()
            if code:
                raise RuntimeError(f"the undisturbed study failed: {errors}")
            (folder / "finished").touch()
        return folder


@contextmanager
def no_process_of(stage: Path) -> Iterator[None]:
    """After the block, also one that ends by an error, no process works on a study there."""
    try:
        yield
    finally:
        for study in stage.glob("*"):
            for pid in marked(f"PRERANK_MARK={study}"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def differences(folder: Path, undisturbed: Path) -> list[str]:
    """What a study has else than the undisturbed one, in words; empty if all is equal."""
    one, two = Store(folder), Store(undisturbed)
    found = [f"not done: {unit.stem}" for unit in one.left()]
    try:
        assert_same(folder, undisturbed)
        for dataset in one.plan.datasets:
            theta, expected = (store.read_base(dataset, "cpu") for store in (one, two))
            if theta is not expected and not torch.equal(theta, expected):
                found.append(f"parameters of {dataset} differ")
    except (AssertionError, InputError, TypeError) as error:
        found.append(f"tables or parameters: {' '.join(str(error).split())[:500]}")
    found += [f"{path}: {reason}" for path, reason in one.broken().items()]
    for place in ("results/.*", "base/.*", "checkpoints/*"):
        found += [f"left behind: {path}" for path in sorted(folder.glob(place))]
    return found


class Attempt:
    """One run of `prerank study run`, beside a watch of its folder.

    Args:
        plan: of the study.
        folder: of the study.
        engine: where units run.
        options: of the command.
        environment: of its processes.
        lives: of the units.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        engine: str,
        *options: object,
        environment: Mapping[str, str] | None = None,
        lives: Lives | None = None,
    ) -> None:
        self.mark, self._sign = str(folder), f"PRERANK_MARK={folder}"
        epochs = plan.training.max_epochs
        self.watch = Watch(folder, self._sign, engine, epochs, lives or Lives())
        workers = ("--workers", 2) if engine != "local" else ()
        every = ("--checkpoint-every", CHECKPOINT_EVERY)
        self.process: subprocess.Popen[str] = command(
            plan,
            folder,
            *("--engine", engine, *workers, *every, *options),
            mark=folder,
            environment=environment,
        )
        self._end = time.monotonic() + _LIMIT

    @property
    def running(self) -> bool:
        """Whether it has not ended; one that takes far too long is ended."""
        if time.monotonic() > self._end:
            self.process.kill()
        return self.process.poll() is None

    def finish(self) -> tuple[int, str]:
        """Wait for its end, with an eye on its workers; exit code and what it said of errors."""
        while self.running:
            for pid in self.watch.workers():
                self.watch.place(pid)
            time.sleep(0.5)
        self.watch.close()
        _, errors = self.process.communicate()
        return int(self.process.returncode), errors

    def leftover(self) -> dict[int, str]:
        """Processes that outlive it."""
        wait_until(lambda: not marked(self._sign), _ENDS)
        return marked(self._sign)
