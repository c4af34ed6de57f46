"""`prerank diagnose`: predictions made elsewhere, judged without training anything."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from prerank.cli.diagnosis_output import as_record, findings_table, groups_table
from prerank.cli.messages import (
    MISCALIBRATED,
    AsJson,
    named_by,
    one_line_errors,
    print_json,
    working,
)
from prerank.diagnosis import Diagnosis, GroupedDiagnosis, diagnose_by
from prerank.diagnosis import diagnose as diagnose_
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.distributions import Ensemble
from prerank.errors import InputError
from prerank.files import Forecasts, check_file, read_forecasts, writing
from prerank.report.captions import joined_names

__all__ = ["diagnose"]


def diagnose(
    samples: Annotated[
        Path, typer.Option(help="Predictive samples: .parquet, .csv, .npz, .npy or .nc.")
    ],
    observations: Annotated[
        Path, typer.Option(help="What was observed: a table, .npy, .npz or .nc.")
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="Columns to look at: a,b,c; all that both files have by default."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Columns that tell which forecast a row belongs to."),
    ] = None,
    sample: Annotated[
        str | None, typer.Option(help="Column or dimension that numbers the samples.")
    ] = None,
    sample_axis: Annotated[
        int | None, typer.Option(help="Axis of the samples in an array; 0 by default.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Column of groups to look within.")
    ] = None,
    preranks: Annotated[
        str | None,
        typer.Option(
            help="Which ones; by default the paper's seven, as far as they apply (`prerank explain`"
            " has more)."
        ),
    ] = None,
    raw_units: Annotated[
        bool,
        typer.Option(
            "--raw-units", help="Do not divide each target by the spread of its samples first."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Page to write, such as report.html.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 4 on evidence of miscalibration.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of random ties and replicates.")] = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="The verdict in one line, and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge predictions made elsewhere: samples, and what was observed.

    Tables are long (a row for each forecast and sample) or wide (columns like rain_1, rain_2, ...);
    arrays have the samples first. Each target is divided by the spread of its samples, since some
    pre-ranks mix the targets.
    """
    with one_line_errors():
        if out is not None:
            check_file(out, samples, observations)
            if out.suffix.lower() not in (".html", ".htm"):
                raise InputError(f"{out}: the page to write must end in .html or .htm")
        with working("reading", quiet):
            forecasts = read_forecasts(
                samples,
                observations,
                targets=named_by(targets, "--targets"),
                key=named_by(key, "--key"),
                sample=sample,
                sample_axis=sample_axis,
                by=by,
            )
        with working("diagnosing", quiet):
            found = _diagnosed(forecasts, preranks, raw_units, seed)
            if out is not None:
                _write_page(out, found, forecasts, samples, observations, raw_units)
        verdict = found.verdict()
        if as_json:
            print_json(as_record(found) | {"remarks": list(forecasts.remarks)})
        elif quiet:
            typer.echo(verdict.headline)
        else:
            _tell(found, forecasts, out)
    if check and verdict.mood == "bad":
        raise typer.Exit(MISCALIBRATED)


def _diagnosed(
    forecasts: Forecasts, preranks: str | None, raw_units: bool, seed: int
) -> Diagnosis | GroupedDiagnosis:
    import pandas as pd

    dist = Ensemble(forecasts.samples)
    y = pd.DataFrame(forecasts.observations, columns=list(forecasts.targets))
    scale = None
    if not raw_units:
        scale = [_spread(values) or 1.0 for values in np.moveaxis(forecasts.samples, -1, 0)]
    if forecasts.groups is None:
        return diagnose_(dist, y, preranks=preranks, scale=scale, generator=seed)
    return diagnose_by(dist, y, forecasts.groups, preranks=preranks, scale=scale, generator=seed)


def _spread(values: npt.NDArray[np.float64]) -> float:
    size = np.abs(values).max() or 1.0  # whose square may be too large for a number
    return float(size * (values / size).std())


def _write_page(
    out: Path,
    found: Diagnosis | GroupedDiagnosis,
    forecasts: Forecasts,
    samples: Path,
    observations: Path,
    raw_units: bool,
) -> None:
    from prerank.report.html import write_page

    size, n, dim = forecasts.samples.shape
    settings = {
        "samples": f"{samples}, {size} of each of {n:,} rows and {dim} targets",
        "observations": str(observations),
        "targets": joined_names(forecasts.targets),
        "units": "as they are" if raw_units else "divided by the spread of the samples",
    }
    page = diagnosis_page(found, title=f"Forecasts in {samples.name}", settings=settings)
    notes = (f"Note: {remark}." for remark in forecasts.remarks)
    page = replace(page, points=(*page.points, *notes))
    with writing(out):
        write_page(page, out)


def _tell(found: Diagnosis | GroupedDiagnosis, forecasts: Forecasts, out: Path | None) -> None:
    console = Console()
    whole = found.overall if isinstance(found, GroupedDiagnosis) else found
    for remark in forecasts.remarks:
        typer.echo(f"Note: {remark}.")
    typer.echo(str(found.verdict()))
    console.print(findings_table(whole))
    if isinstance(found, GroupedDiagnosis):
        console.print(groups_table(found))
        for name, one in found.groups.items():
            typer.echo(f"{name}: {one.verdict().headline}")
    for label, reason in whole.skipped.items():
        typer.echo(f"Skipped {label}: {reason}")
    if out is not None:
        typer.echo(f"Page: {out}")
