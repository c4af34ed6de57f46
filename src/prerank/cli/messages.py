"""How a command speaks: errors in one line, JSON for scripts, and exit codes that mean something.

| code | meaning |
|---:|---|
| 0 | done |
| 1 | the input, or the file system, did not allow it: one line on standard error says why |
| 2 | the command was called in a way it does not know |
| 3 | a study was stopped before its end: the same command goes on |
| 4 | `diagnose --check` found evidence of miscalibration |
| 130 | interrupted; nothing half done is left |
"""

import csv
import json
import re
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from prerank.errors import PrerankError

__all__ = [
    "INTERRUPTED",
    "MISCALIBRATED",
    "UNFINISHED",
    "AsJson",
    "Quiet",
    "complain",
    "named_by",
    "one_line_errors",
    "print_json",
    "split_names",
    "working",
]

UNFINISHED, MISCALIBRATED, INTERRUPTED = 3, 4, 130

_NO_MEMORY = re.compile("out of memory|n[o']t allocate memory")  # torch has no type for it

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and no words on success.")]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the command with a line where its input or the file system does not allow it."""
    try:
        with _terminable():
            yield
    except BrokenPipeError:
        raise  # who reads has enough: no error, and typer knows what to do
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
def working(words: str, quiet: bool) -> Iterator[None]:
    """Say on a terminal what takes its time."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(words):
        yield


def complain(error: object) -> None:
    """Write the line, whatever breaks the text has."""
    typer.echo(f"Error: {' '.join(str(error).split())}", err=True)


def print_json(value: object) -> None:
    """Print a value as JSON; numbers that JSON has no word for must have become None."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def split_names(text: str, option: str) -> list[str]:
    """Names between commas; one that holds a comma is quoted."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise typer.BadParameter(f"{text!r} leaves a name empty", param_hint=option)
    return names


def named_by(
    values: Sequence[str] | None, option: str
) -> Callable[[Collection[str]], list[str]] | None:
    """Names that an option gives, once those of the columns are known; None where it is not given.

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
    """Let a polite end (SIGTERM) clean up, as an interrupt from the keyboard does."""

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
