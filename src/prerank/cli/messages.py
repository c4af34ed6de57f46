"""How a command fails: one line that says what is wrong, and exit code 1."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from prerank.errors import PrerankError

__all__ = ["complain", "one_line_errors"]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the command with a line where its input or the file system does not allow it."""
    try:
        yield
    except (PrerankError, OSError) as error:
        complain(error)
        raise typer.Exit(1) from error


def complain(error: object) -> None:
    """Write the line, whatever breaks the text has."""
    typer.echo(f"Error: {' '.join(str(error).split())}", err=True)
