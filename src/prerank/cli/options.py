"""Options that several commands have."""

from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "ClusterColumn",
    "KeyColumns",
    "Quiet",
    "SampleAxis",
    "SampleColumn",
    "TimeColumn",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column with the time of each row: rows of the same and of neighbouring times may "
        "depend on each other.",
    ),
]
ClusterColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column with the cluster of each row, such as a station: rows of one cluster may "
        "depend on each other.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and no words on success.")]
KeyColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="NAMES", help="Columns that identify the forecast of a row."),
]
SampleColumn = Annotated[
    str | None, typer.Option(help="Column or dimension that numbers the samples.")
]
SampleAxis = Annotated[
    int | None, typer.Option(help="Axis of the samples in an array (default: 0).")
]
