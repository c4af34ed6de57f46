"""Options that several commands have."""

import math
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "ClusterColumn",
    "KeyColumns",
    "Quiet",
    "SampleAxis",
    "SampleColumn",
    "TargetDimensions",
    "TimeColumn",
    "a_number",
]


def a_number(value: float) -> float:
    """The value of an option, unless it is nan: typer < 0.29 lets that through `min` and `max`."""
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


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
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress, and nothing on success.")
]
KeyColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="NAMES", help="Columns that identify the forecast of a row."),
]
SampleColumn = Annotated[
    str | None,
    typer.Option("--sample", "--member", help="Column or dimension that numbers the samples."),
]
TargetDimensions = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="DIMENSIONS",
        help="Dimensions of netCDF files and zarr stores whose places form one event, as "
        "station,lead (default: none; all are rows).",
    ),
]
SampleAxis = Annotated[
    int | None, typer.Option(help="Axis of the samples in an array (default: 0).")
]
