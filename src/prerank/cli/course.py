"""The course of a long command: where it stands as a whole, and how long it will still take."""

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from prerank.cli.messages import say, terminal

__all__ = ["Course", "duration"]

_TICK = 0.2  # seconds between two looks at the clock
_EVERY = 10.0  # seconds between two lines if the output is not a terminal
_NEARLY = 0.9  # share of a part that is taken to be over when its time is up


class Course:
    """Shows the share of the whole that is done: a bar on a terminal, else a line now and then.

    The seconds of parts are estimates. Those of the parts to come grow or shrink with the pace of
    the measured one, and the share that is shown never falls.

    Args:
        parts: expected seconds of each part, by name, in their order.
        words: what each part does.
        pace: factor of these seconds on this machine.
        shown: whether anything is shown at all.
        lines: whether lines are printed if the output is not a terminal.
    """

    def __init__(
        self,
        parts: Mapping[str, float],
        words: Mapping[str, str],
        *,
        pace: float = 1.0,
        shown: bool = True,
        lines: bool = True,
    ) -> None:
        self._names, self._seconds = list(parts), dict(parts)
        self._words, self._pace, self._first_pace = words, pace, pace
        self._console = terminal(not shown)
        self._lines = shown and lines and self._console is None
        self._place, self._share, self._note = 0, 0.0, ""
        self._began = self._entered = self._said = time.monotonic()
        self._shown = 0.0
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Say how long all will take, and start."""
        if self._console is None and not self._lines:
            return self
        names = ", ".join(self._words[name] for name in self._names)
        whole = f"About {duration(self.left)} in all: {names}."
        if self._lines:
            say(whole, err=True)
        elif self._console is not None:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            self._console.print(whole, highlight=False)
            columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.description}")
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.add_task("", total=1.0)
            self._bar.start()
        self._clock.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the clock, and take the bar away."""
        self._over.set()
        if self._clock.is_alive():
            self._clock.join()
        if self._bar is not None:
            self._bar.stop()

    @property
    def left(self) -> float:
        """Seconds to the end, as far as can be told."""
        later = sum(self._seconds[name] for name in self._names[self._place + 1 :])
        expected = self._pace * self._seconds[self._names[self._place]]
        spent = time.monotonic() - self._entered
        if self._share:
            now = spent * (1 / self._share - 1)
        else:
            now = max(expected - spent, (1 - _NEARLY) * spent)
        return now + self._pace * later

    @property
    def done(self) -> float:
        """Share of the whole that is done; it never falls."""
        spent = time.monotonic() - self._began
        self._shown = max(self._shown, spent / max(spent + self.left, 1e-9))
        return min(self._shown, 1.0)

    def enter(self, name: str) -> None:
        """Begin a part; those before it are over, and one that is unknown changes nothing."""
        place = self._names.index(name) if name in self._names else -1
        if place > self._place:
            self._place, self._share, self._note = place, 0.0, ""
            self._entered = time.monotonic()
            self._said = 0.0

    def move(self, share: float, note: str = "", *, work: float = 0.0) -> None:
        """Set how far the present part is.

        Args:
            share: that is done; 0 where only the clock tells.
            note: what to show besides.
            work: expected seconds of what is done of it, at a pace of 1: the pace is then the
                geometric mean of that before and of the one measured.
        """
        self._share, self._note = share, note
        if work:
            measured = (time.monotonic() - self._entered) / work
            self._pace = (self._first_pace * measured) ** 0.5

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            now = self._words[self._names[self._place]]
            note = f", {self._note}" if self._note else ""
            text = f"{now}{note}; about {duration(self.left)} left"
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=self.done, description=text)
            elif time.monotonic() - self._said >= _EVERY:
                self._said = time.monotonic()
                say(f"{self.done:3.0%} {text}", err=True)


def duration(seconds: float) -> str:
    """Seconds in words, rounded.

    Example:
        >>> duration(7.2), duration(42), duration(200), duration(9000)
        ('8 s', '45 s', '4 min', '2.5 h')
    """
    if seconds < 10:
        return f"{max(1, -int(-seconds // 1))} s"
    if seconds < 90:
        return f"{5 * -int(-seconds // 5)} s"
    if seconds < 5400:
        return f"{-int(-seconds // 60)} min"
    return f"{seconds / 3600:.1f} h"
