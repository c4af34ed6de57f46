"""The end of the time that a call was given, whatever becomes of the machine's clock."""

import socket
import time
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

__all__ = ["Deadline"]


@dataclass(frozen=True)
class Deadline:
    """A moment that processes share, on one machine or several.

    The clock of a machine may be set while a study runs. Processes of the machine that made the
    deadline use its monotonic clock, which they share. Another machine has another one: there, the
    seconds that are left follow from the time of day, once.

    Attributes:
        boot: what tells the machine, since its start, from all others.
        tick: the moment, as `time.monotonic` counts there.
        wall: the same as `time.time` counted when the deadline was made.

    Example:
        >>> Deadline.after(60.0).passed, Deadline.after(0.0).passed
        (False, True)
    """

    boot: str
    tick: float
    wall: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """So many seconds from now."""
        return cls(_boot(), time.monotonic() + seconds, time.time() + seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        """What travels: not `until`, which depends on the machine."""
        return Deadline, (self.boot, self.tick, self.wall)

    @cached_property
    def until(self) -> float:
        """The moment as `time.monotonic` counts on this machine."""
        if self.boot == _boot():
            return self.tick
        return time.monotonic() + (self.wall - time.time())

    @property
    def passed(self) -> bool:
        """Whether time is up."""
        return time.monotonic() >= self.until


@cache
def _boot() -> str:
    """What tells this machine, since its start, from others; its name where there is no more."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else socket.gethostname()
