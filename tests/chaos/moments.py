"""Where a process is in its work on a study, from what is really there.

A process is stopped (SIGSTOP), then looked at: which unit's lock it holds, which files the atomic
writer has half written, which checkpoint is the latest. So the moment of a kill is known, and not
guessed from the time that has passed.
"""

import ctypes
import os
import select
import signal
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from prerank.errors import InputError
from prerank.files import CheckpointFile
from study.engines.jobs import marked, wait_until

MOMENTS = ("start-up", "training", "checkpoint", "judging", "writing")
"""Before the first epoch; between two checkpoints; while one is written; after the last epoch; and
while a result or the parameters are written."""

_CREATED, _LARGEST = 0x100, 4096  # IN_CREATE; bytes of events that are read at once
_FOLDERS = ("checkpoints", "results", "base")


@dataclass(frozen=True)
class Place:
    """Where a process is: its unit, the part of the training and the steps in its checkpoint."""

    moment: str
    unit: str = ""
    part: str = ""
    steps: int = -1


@dataclass
class Lives:
    """What becomes of units that were struck in training: they go on, or lose what they had.

    Attributes:
        resumed: units that were seen to go on from their checkpoint, by moment.
        lost: those that had fewer steps afterwards, in words.
    """

    resumed: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    _struck: dict[str, Place] = field(default_factory=dict)

    def struck(self, place: Place) -> None:
        """A unit was struck."""
        if place.steps > 0:
            self._struck[place.unit] = place

    def seen(self, place: Place) -> None:
        """A unit has a new checkpoint."""
        before = self._struck.get(place.unit)
        if before is None or before.part != place.part:
            return
        del self._struck[place.unit]
        if place.steps >= before.steps:
            self.resumed[before.moment] += 1
        else:
            self.lost.append(f"{place.unit} was at step {before.steps}, then at {place.steps}")


class Watch:
    """The processes that work on a study, which have `mark` in their environment."""

    def __init__(self, folder: Path, mark: str, engine: str, epochs: int, lives: Lives) -> None:
        self.folder, self._mark, self._engine, self._lives = folder, mark, engine, lives
        self._epochs = epochs  # of a whole training
        self._since: dict[tuple[int, str], int] = {}  # when a process was first seen in a unit
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._events = _created_in([folder / name for name in _FOLDERS])

    def close(self) -> None:
        """No longer listen to the folder."""
        os.close(self._events)

    def workers(self) -> list[int]:
        """Processes that work on units, or are about to."""
        signs = {
            "processes": lambda title: "prerank.study.engines.processes" in title,
            "ray": lambda title: title.startswith("ray::") and "--" in title,
            "local": lambda title: "-m prerank study run" in title,
        }
        return sorted(p for p, title in marked(self._mark).items() if signs[self._engine](title))

    def place(self, pid: int) -> Place:
        """Where a process is; exact if it is stopped."""
        unit = self._unit(pid)
        if not unit:
            return Place("start-up")
        since = self._since.setdefault((pid, unit), time.time_ns())
        part, written, steps, over = self._latest(unit)
        moment = "start-up"
        if self._half_written(unit, "checkpoints"):
            moment = "checkpoint"
        elif self._half_written(unit, "results", "base"):
            moment = "writing"
        elif written > since:  # by this process, and not by one that was killed before
            moment = "judging" if over else "training"
        place = Place(moment, unit, part, steps)
        if written > since:
            self._lives.seen(place)
        return place

    def announced(self, moment: str, seconds: float) -> str:
        """A unit, or a dataset, of which a file is being written now; empty if none is."""
        if not select.select([self._events], [], [], seconds)[0]:
            return ""
        data, names = os.read(self._events, _LARGEST), []
        while data:
            _, _, _, size = struct.unpack_from("iIII", data)
            names.append(data[16 : 16 + size].rstrip(b"\0").decode())
            data = data[16 + size :]
        for name in reversed(names):
            final = ".parquet." in name or ".safetensors." in name
            if name.startswith(".") and final == (moment == "writing"):
                return name[1:].partition(".")[0]
        return ""

    def holder(self, unit: str) -> int | None:
        """The process that holds the lock of a unit, or of any unit of a dataset."""
        for pid in self.workers():
            held = self._unit(pid)
            if held and unit in (held, held.partition("--")[0]):
                return pid
        return None

    def _unit(self, pid: int) -> str:
        locks = self.folder / "locks"
        with suppress(OSError):
            open_files = (os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
            held = [Path(file).stem for file in open_files if Path(file).parent == locks]
            # One that waits for the unpenalised unit, or does it on the way, has two.
            return min(held, key=lambda stem: not stem.endswith("--none"), default="")
        return ""

    def _half_written(self, unit: str, *folders: str) -> bool:
        names = [f".{unit}."]
        if unit.endswith("--none"):
            names.append(f".{unit.removesuffix('--none')}.safetensors.")
        return any(
            file.name.startswith(name) and ".seconds." not in file.name
            for name in names
            for folder in folders
            for file in (self.folder / folder).iterdir()
        )

    def _latest(self, unit: str) -> tuple[str, int, int, bool]:
        """Part, time, steps of the latest checkpoint, and whether the training is over."""
        found = []
        for path in (self.folder / "checkpoints").glob(f"{unit}.*"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
        for written, path in sorted(found, reverse=True):
            if not path.name.endswith(".seconds"):
                with suppress(InputError):
                    tensors, _ = CheckpointFile(path).load() or ({}, {})
                    if tensors:
                        stopped_early = not bool(tensors["going"].any())
                        over = stopped_early or len(tensors["history"]) >= self._epochs
                        part = path.name.removeprefix(f"{unit}.").partition("-")[0]
                        return part, written, int(tensors["number"]), over
        return "", 0, -1, False


@contextmanager
def stopped(pid: int) -> Iterator[bool]:
    """Stop a process for the time of the block; whether it is there."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        yield False
        return
    try:
        yield bool(wait_until(lambda: _state(pid) in "TZ", 5)) and _state(pid) == "T"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    """One letter: T for stopped; Z for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _created_in(folders: list[Path]) -> int:
    """A descriptor that can be read as soon as a file is created in one of the folders."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    for folder in folders:
        if libc.inotify_add_watch(descriptor, os.fsencode(folder), _CREATED) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {folder}")
    return int(descriptor)
