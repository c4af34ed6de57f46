"""Output shared by all commands: one-line errors, JSON for scripts, exit codes.

| code | meaning |
|---:|---|
| 0 | done |
| 1 | the input or the file system does not allow it: one line on standard error says why |
| 2 | unknown command, option or argument |
| 3 | a study is not finished: the same command resumes it |
| 4 | `diagnose --check` or `monitor --check` found evidence of miscalibration |
| 130 | interrupted; no partial output is left |
"""

import csv
import json
import re
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from prerank.errors import MissingLibraryError, PrerankError
from prerank.files.visible_text import visible
from prerank.interrupts import leave_when_interrupted, restore

__all__ = [
    "INTERRUPTED",
    "MISCALIBRATED",
    "UNFINISHED",
    "Screen",
    "complain",
    "loading",
    "named_by",
    "one_line_errors",
    "print_json",
    "say",
    "split_names",
    "terminal",
    "working",
]

UNFINISHED, MISCALIBRATED, INTERRUPTED = 3, 4, 130

_NO_MEMORY = re.compile("out of memory|n[o']t allocate memory")  # torch has no type for it


class Screen(Console):
    """A console that shows control characters of texts as escapes, and no names as pictures."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Turn a text, such as a cell of a table, into what is shown."""
        return super().render_str(visible(text), **options)


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a line, with control characters as escapes."""
    typer.echo(visible(str(text)), err=err, nl=nl)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the command with one line if its input or the file system does not allow it."""
    try:
        restore()  # an interrupt has something to undo from here on
        with _terminable():
            yield
    except (BrokenPipeError, MissingLibraryError):
        raise  # the reader closed the pipe, which typer handles; `main` names the command
    except (PrerankError, OSError) as error:
        complain(error)
        raise typer.Exit(1) from error
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        complain("not enough memory: give fewer rows or samples at a time")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        complain("interrupted: nothing half done is left")
        raise typer.Exit(INTERRUPTED) from error


@contextmanager
def loading() -> Iterator[None]:
    """Import what a command works with: where it is run, since its help needs none of that."""
    undo = leave_when_interrupted()
    try:
        yield
    finally:
        if undo:
            restore()


def terminal(quiet: bool) -> Console | None:
    """Standard error, if it is a terminal and progress is wanted."""
    console = Screen(stderr=True)
    return console if console.is_terminal and not quiet else None


def working(words: str, quiet: bool) -> AbstractContextManager[object]:
    """Show on a terminal what takes its time."""
    console = terminal(quiet)
    return nullcontext() if console is None else console.status(words)


def complain(error: object) -> None:
    """Print an error as one line."""
    say(f"Error: {' '.join(str(error).split())}", err=True)


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity must have become None."""
    say(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def split_names(text: str, option: str) -> list[str]:
    """Names between commas; one that holds a comma is quoted."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise typer.BadParameter(f"{text!r} leaves a name empty", param_hint=option)
    return names


def named_by(
    values: Sequence[str] | None, option: str
) -> Callable[[Collection[str]], list[str]] | None:
    """Names that an option gives, once those of the columns are known; None without the option.

    The option may come several times. A value is a name where a column has it, and otherwise names
    between commas.

    Example:
        >>> named_by(["rain, mm", "wind,sun"], "--targets")({"rain, mm", "wind", "sun"})
        ['rain, mm', 'wind', 'sun']
    """
    if not values:
        return None

    def names(known: Collection[str]) -> list[str]:
        parts = [[text] if text in known else split_names(text, option) for text in values]
        return [name for part in parts for name in part]

    return names


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM clean up as an interrupt from the keyboard does."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
