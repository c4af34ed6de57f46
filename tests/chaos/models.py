"""Models and calibrated files through kills: the old one stays, or the new one is there."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd

import prerank
from chaos.harms import INTERRUPTED
from chaos.moments import Place, stopped
from chaos.rounds import Round, Strike
from chaos.studies import Ground
from cli.commands import interrupted, run
from prerank.errors import PrerankError
from prerank.estimators.model_folder import check_model_folder
from prerank.files import read_tensors

_SAVES = 20  # kills of savers for each strike that a round has: they cost little

_PATIENCE = 5.0  # seconds for a saver to end after an interrupt
_STOPS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)

_LIMIT = 600.0  # seconds that a command may take

State = tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command that is killed, and replaces what it wrote before.

    Attributes:
        name: in words.
        prepare: writes what it reads into a folder.
        arguments: for a number, on which its answer depends.
        shown: what it has shown on the terminal when it trains.
        partial: pattern of what it is writing.
        state: what it wrote, file by file; raises where a file is broken.
        swept: whether the next call removes what a killed one was writing.
    """

    name: str
    prepare: Callable[[Path], None]
    arguments: Callable[[int], tuple[object, ...]]
    shown: bytes
    partial: str
    state: Callable[[Path], State]
    swept: bool = True
    engine: str = "command"

    def play(self, ground: Ground, seed: str, number: int, strikes: int) -> Round:
        """Kill it at several moments; each time all its files are the old or the new ones."""
        found, begun = Round(self.name, self.engine, ""), time.monotonic()
        rng = random.Random(seed)
        with ground.stage() as folder:
            folder.mkdir()
            self.prepare(folder)
            whole = [self._whole(folder, answer, found) for answer in (0, 1)]
            for n in range(strikes):
                moment = ("training", "writing", "start-up")[n % 3]
                number = rng.choice([signal.SIGKILL, signal.SIGTERM])
                delay = rng.uniform(0, 1.5 if moment == "start-up" else 0.5)
                self._strike(folder, moment, number, delay, n % 2, found)
                self._check(folder, whole, found)
            if self._whole(folder, 0, found) != whole[0]:
                found.faults.append("the same command gives something else afterwards")
            left = folder.glob(self.partial) if self.swept else ()
            found.faults += [f"left behind: {path.name}" for path in left]
        found.seconds = time.monotonic() - begun
        return found

    def _whole(self, folder: Path, answer: int, found: Round) -> State:
        done = run(*self.arguments(answer), cwd=folder)
        found.commands += 1
        if done.returncode:
            found.faults.append(f"exit code {done.returncode}: {done.stderr}")
            return ()
        return self.state(folder)

    def _strike(
        self,
        folder: Path,
        moment: str,
        number: signal.Signals,
        delay: float,
        answer: int,
        found: Round,
    ) -> None:
        begun: list[float] = []
        before = set(folder.glob(self.partial))

        def ready(shown: bytes) -> bool:
            there = {
                "start-up": True,
                "training": self.shown in shown,
                "writing": bool(set(folder.glob(self.partial)) - before),
            }[moment]
            if there and not begun:
                begun.append(time.monotonic())
            return bool(begun) and (moment == "writing" or time.monotonic() - begun[0] >= delay)

        with suppress(AssertionError):  # it had ended before
            code, _, shown = interrupted(
                *self.arguments(answer), cwd=folder, number=number, ready=ready, limit=_LIMIT
            )
            found.strikes.append(Strike(number.name, Place(moment)))
            if code not in (0, -number, INTERRUPTED) or "Traceback" in shown:
                found.faults.append(f"exit code {code}: {shown[-1000:]}")
        found.commands += 1

    def _check(self, folder: Path, whole: list[State], found: Round) -> None:
        try:
            state = self.state(folder)
        except (PrerankError, OSError) as error:
            found.faults.append(f"broken: {error}")
            return
        if any(
            part not in parts for part, parts in zip(state, zip(*whole, strict=True), strict=True)
        ):
            found.faults.append("neither what was there, nor what was to be there")


@dataclass(frozen=True)
class Savers:
    """Processes that save two models into one folder again and again, and are stopped."""

    name: str
    savers: int
    engine: str = "save"

    def play(self, ground: Ground, seed: str, number: int, strikes: int) -> Round:
        """Stop savers while they write: the folder holds one of the two models at any time."""
        found, begun = Round(self.name, self.engine, ""), time.monotonic()
        rng = random.Random(seed)
        fork = multiprocessing.get_context("forkserver")
        fork.set_forkserver_preload([__name__])
        with ground.stage() as folder:
            models = _two_models(folder)
            target, whole = folder / "model", [_theta(path) for path in models]
            prerank.load_model(models[0]).save(target)
            for _ in range(_SAVES * strikes):
                running = [
                    fork.Process(target=_save_for_ever, args=(models, target), daemon=True)
                    for _ in range(self.savers)
                ]
                for process in running:
                    process.start()
                stop = rng.choice(_STOPS)
                place = _while_writing(running[0].pid or 0, target, rng.uniform(0, 0.05), stop)
                found.strikes.append(Strike(stop.name, place))
                _compare(target, whole, found)  # others still save
                running[0].join(_PATIENCE)  # an interrupt may be swallowed in a finalizer
                for process in running:
                    process.kill()
                    process.join()
                _compare(target, whole, found)
                with suppress(PrerankError):
                    check_model_folder(target, replace=True)
                    continue
                found.faults.append("the folder of the model cannot be replaced")
                break
            prerank.load_model(models[1]).save(target)
            _compare(target, whole[1:], found)
            files = sorted(path.name for path in target.iterdir())
            if len(files) != 3:  # the lock, the settings and the weights
                found.faults.append(f"left behind: {files}")
        found.seconds = time.monotonic() - begun
        return found


def _while_writing(pid: int, folder: Path, delay: float, number: signal.Signals) -> Place:
    """Stop a process that has half a file in a folder, some time after it was begun."""
    time.sleep(delay)
    end = time.monotonic() + 5
    while True:
        with stopped(pid):
            half = any(path.name.startswith(".") for path in folder.glob(".*.*"))
            if half or time.monotonic() > end:
                os.kill(pid, number)
                return Place("writing" if half else "training")


def _save_for_ever(models: list[Path], target: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # as the command line has it
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        loaded = [prerank.load_model(path) for path in models]
        for model in cycle(loaded):
            model.save(target)


def _compare(folder: Path, whole: list[str], found: Round) -> None:
    try:
        if _theta(folder) not in whole:
            found.faults.append("the folder holds a third model")
    except PrerankError as error:
        found.faults.append(f"broken: {error}")


def _theta(folder: Path) -> str:
    return sha256(prerank.load_model(folder).theta_.numpy().tobytes()).hexdigest()


def _two_models(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    paths = [folder / "one", folder / "two"]
    for seed, path in enumerate(paths):
        model = prerank.MixtureRegressor(
            1, method="none", hidden=(4,), max_epochs=1, random_state=seed
        )
        model.fit(x, y).save(path)
    return paths


# Commands


def _table(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = x + rng.normal(size=(300, 2)) ** 3
    pd.DataFrame(np.hstack([x, y]), columns=["a", "b", "u", "v"]).to_csv(
        folder / "table.csv", index=False
    )


def _fit(answer: int) -> tuple[object, ...]:
    return (
        *("fit", "table.csv", "--targets", "u,v", "--out", "model", "--force"),
        *("--method", "network", "--components", 1, "--preranks", "marginal"),
        *("--strength", 5, "--max-epochs", 100, "--seed", answer),
    )


def _forecasts(folder: Path) -> None:
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(100, 2))
    np.save(folder / "samples.npy", centre + 0.7 * rng.normal(size=(12, 100, 2)))
    np.save(folder / "observed.npy", centre + rng.normal(size=(100, 2)))


def _calibrate(answer: int) -> tuple[object, ...]:
    return (
        *("calibrate", "--samples", "samples.npy", "--observations", "observed.npy"),
        *("--apply", "samples.npy", "--out", "out.npy", "--save-head", "head.safetensors"),
        *("--preranks", "marginal", "--seed", answer),
    )


def _calibrated(folder: Path) -> State:
    tensors, _ = read_tensors(folder / "head.safetensors")
    head = sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors)))
    return sha256((folder / "out.npy").read_bytes()).hexdigest(), head.hexdigest()


MODELS = (
    Savers("saver stopped", 1),
    Savers("two savers, one stopped", 2),
    Command(
        "fit killed",
        _table,
        _fit,
        b"training, ",
        ".model.*",
        lambda folder: (_theta(folder / "model"),),
    ),
    Command(
        "calibrate killed",
        _forecasts,
        _calibrate,
        b"fitting to all",
        ".*",
        _calibrated,
        swept=False,  # docs/reliability.md
    ),
)
