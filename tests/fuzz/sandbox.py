"""Walls around a case: what it opens, starts, allocates, and how long it takes."""

import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 10
"""Longest that a case may take; sound ones take milliseconds."""
PATIENCE = 20
"""Seconds more after which the process ends: code in C does not hear the first alarm."""
BYTES = 3 << 30
"""Most address space that a case may ask for beyond what the process has."""

_FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn"),
    *("socket.connect", "socket.bind", "urllib.Request", "pickle.find_class", "ctypes.dlopen"),
}
_WRITING = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
}
_walls: list["_Walls"] = []


class Escape(BaseException):
    """A case did what no reader of files may do. Not an `Exception`: nothing shall swallow it."""


class Hang(BaseException):
    """A case took too long."""


class _Walls:
    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN:
            raise Escape(f"{event} {args!r:.200}")
        if event == "open" and _writes(args):
            self._inside(event, args[0])
        elif event in _WRITING:
            for path in args:
                if isinstance(path, str | bytes):
                    self._inside(event, path)

    def _inside(self, event: str, path: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        where = os.path.realpath(os.fsdecode(path))
        if (
            where != self.folder
            and not where.startswith(self.folder + os.sep)
            and where != os.devnull
        ):
            raise Escape(f"{event} {where}")


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _walls:
        walls = _walls.pop()  # what looking does itself is not looked at
        try:
            walls.look(event, args)
        finally:
            _walls.append(walls)


def build() -> None:
    """Set up once in a process; audit hooks and limits stay."""
    sys.addaudithook(_hook)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _late)


def _late(*_: object) -> None:
    raise Hang(f"still busy after {SECONDS} s")


@contextmanager
def walls(folder: Path) -> Iterator[None]:
    """While this is entered, only `folder` may be written to."""
    _walls.append(_Walls(folder))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(SECONDS + PATIENCE, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        _walls.clear()
