"""What is done to a study at a moment of one of its workers, and how that is undone."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.studies import Attempt
from study.engines.jobs import marked

Harming = Callable[[Attempt, int], str]

FAILED, INTERRUPTED = 1, 130  # exit codes of the command


class Unavailable(Exception):  # noqa: N818 (nothing is wrong: this machine cannot do it)
    """A harm that this machine, or this user, cannot do."""


@dataclass(frozen=True)
class Harm:
    """One kind of harm.

    Attributes:
        do: is given a command and the id of its worker, which is stopped, and returns a word.
        reaches: whether it can harm a worker.
        undo: after the command has ended.
        codes: with which a command may then end.
        words: one of which it then says, if it ends with 1.
        once: whether a command is harmed once only.
        options: of the command.
        environment: of its processes.
    """

    do: Harming
    reaches: Callable[[int], bool] = lambda _: True
    undo: Callable[[], object] = lambda: None
    codes: frozenset[int] = frozenset({0})
    words: tuple[str, ...] = ("",)
    once: bool = True
    options: tuple[object, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


Making = Callable[[Path], "contextmanager[Harm]"]
"""A context in which there is a harm to the study that lies in a folder, under `STUDY`."""

STUDY = "study"


@contextmanager
def kill(_: Path) -> Iterator[Harm]:
    """SIGKILL for the worker."""
    yield Harm(_signal(signal.SIGKILL), once=False)


@contextmanager
def end(_: Path) -> Iterator[Harm]:
    """SIGTERM for the worker."""
    yield Harm(_signal(signal.SIGTERM), once=False)


@contextmanager
def kill_driver(_: Path) -> Iterator[Harm]:
    """SIGKILL for the command."""
    yield Harm(_signal(signal.SIGKILL, driver=True), codes=frozenset({-signal.SIGKILL}))


@contextmanager
def end_driver(_: Path) -> Iterator[Harm]:
    """SIGTERM for the command."""
    codes = frozenset({-signal.SIGTERM, INTERRUPTED})
    yield Harm(_signal(signal.SIGTERM, driver=True), codes=codes)


def _signal(number: signal.Signals, *, driver: bool = False) -> Harming:
    def do(attempt: Attempt, pid: int) -> str:
        os.kill(attempt.process.pid if driver else pid, number)
        return number.name

    return do


@contextmanager
def small_disk(stage: Path) -> Iterator[Harm]:
    """A file system of 16 MB, which is filled."""
    stage.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "prerank-chaos", str(stage)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise Unavailable("a small disk can be had by root alone")
    ballast = stage / "ballast"

    def fill(_: Attempt, __: int) -> str:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        return "full disk"

    try:
        codes = frozenset({0, FAILED})  # 0 where nothing was left to write
        yield Harm(
            fill,
            undo=lambda: ballast.unlink(missing_ok=True),
            codes=codes,
            words=("No space left",),
        )
    finally:
        subprocess.run(["umount", "--lazy", str(stage)], check=True)


@contextmanager
def unwritable(stage: Path) -> Iterator[Harm]:
    """No file can be made in the folders of the study."""
    lock, unlock = (["chattr", "+i"], ["chattr", "-i"])
    if os.geteuid():  # whom permissions bind
        lock, unlock = (["chmod", "a-w"], ["chmod", "u+w"])
    parts = [stage / STUDY / name for name in ("checkpoints", "results", "base")]

    def do(_: Attempt, __: int) -> str:
        if subprocess.run([*lock, *parts], capture_output=True, check=False).returncode:
            raise Unavailable("the file system knows no immutable folders")
        return "read-only folder"

    def undo() -> None:
        subprocess.run([*unlock, *parts], check=True)

    if shutil.which(lock[0]) is None:
        raise Unavailable(f"there is no {lock[0]}")
    try:
        codes, words = frozenset({0, FAILED}), ("not permitted", "Permission denied")
        yield Harm(do, undo=undo, codes=codes, words=words)
    finally:
        undo()


@contextmanager
def small_files(_: Path) -> Iterator[Harm]:
    """No file may be larger than 2 KB (RLIMIT_FSIZE)."""

    def do(attempt: Attempt, _: int) -> str:
        for pid in marked(f"PRERANK_MARK={attempt.mark}"):
            with suppress(ProcessLookupError):
                _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (2048, most))
        return "small files"

    yield Harm(do, codes=frozenset({0, FAILED}), words=("File too large",))


@contextmanager
def jumping_clock(stage: Path) -> Iterator[Harm]:
    """The time of day jumps to and fro by a day, under a limit of an hour."""
    stage.mkdir(parents=True)
    compiler, source = shutil.which("cc"), Path(__file__).with_name("clock.c")
    if compiler is None:
        raise Unavailable("there is no C compiler to make a clock that jumps")
    library, shift = stage / "clock.so", stage / "clock.txt"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    shift.write_text("0")
    hours = iter([24, -24] * 100)

    def do(_: Attempt, __: int) -> str:
        by = next(hours)
        shift.write_text("86400" if by > 0 else "-86400")
        return "clock forward" if by > 0 else "clock back"

    environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(shift)}
    yield Harm(do, once=False, options=("--time-limit", 3600), environment=environment)
