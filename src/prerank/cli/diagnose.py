"""`prerank diagnose`: predictions made elsewhere, judged without training anything."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from prerank.cli.messages import (
    MISCALIBRATED,
    Screen,
    named_by,
    one_line_errors,
    print_json,
    say,
    working,
)
from prerank.cli.options import (
    AsJson,
    ClusterColumn,
    KeyColumns,
    SampleAxis,
    SampleColumn,
    TimeColumn,
)
from prerank.defaults import SCALE, SEED
from prerank.diagnosis import (
    Diagnosis,
    GroupedDiagnosis,
    WhereDiagnosis,
    diagnose_by,
    regions_of_pits,
)
from prerank.diagnosis import diagnose as diagnose_
from prerank.distributions import Ensemble
from prerank.errors import InputError
from prerank.files import Forecasts, check_file, read_forecasts, writing
from prerank.moved import END
from prerank.report.wording import joined_names, p_text

__all__ = ["Scale", "as_record", "diagnose"]


class Scale(StrEnum):
    """By what each target is divided."""

    NONE = "none"
    SAMPLES = "samples"


_SCALE = Scale(SCALE)


def diagnose(
    samples: Annotated[
        Path, typer.Option(help="Predictive samples: .parquet, .csv, .npz, .npy or .nc.")
    ],
    observations: Annotated[Path, typer.Option(help="Observations: a table, .npy, .npz or .nc.")],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Columns to diagnose, as a,b,c (default: all that both files have).",
        ),
    ] = None,
    key: KeyColumns = None,
    sample: SampleColumn = None,
    sample_axis: SampleAxis = None,
    by: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Column that names the group of each row.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Table of inputs: search them for regions where calibration differs."),
    ] = None,
    time: TimeColumn = None,
    cluster: ClusterColumn = None,
    preranks: Annotated[
        str | None,
        typer.Option(
            help="Pre-ranks to use (default: the paper's seven, as far as they apply; `prerank "
            "explain` lists more)."
        ),
    ] = None,
    scale: Annotated[
        Scale,
        typer.Option(
            help="Units: none keeps those of the files, samples divides each target by the spread "
            "of its samples."
        ),
    ] = _SCALE,
    raw_units: Annotated[
        bool, typer.Option("--raw-units", help="Deprecated: use --scale none.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="HTML page to write, such as report.html.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 4 on evidence of miscalibration.")
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(
            help="Say whether the forecast is calibrated to within this error, such as 0.03; with "
            "--check, exit with code 4 unless that is shown."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of ties and replicates.")] = SEED,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the verdict in one line, and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge predictions made elsewhere, from samples and observations.

    Tables are long (a row for each forecast and sample) or wide (columns like rain_1, rain_2, ...);
    arrays have the samples first. Some pre-ranks mix the targets: where these have different units,
    --scale samples divides each target by the spread of its samples.
    """
    with one_line_errors():
        import pandas as pd

        if raw_units:
            _warn_of_raw_units(scale)
        if out is not None:
            check_file(out, samples, observations, *filter(None, [inputs]))
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
                inputs=inputs,
                time=time,
                cluster=cluster,
            )
        notes = [f"Note: {remark}." for remark in forecasts.remarks]
        with working("diagnosing", quiet):
            y = pd.DataFrame(forecasts.observations, columns=list(forecasts.targets))
            dist, groups = Ensemble(forecasts.samples), forecasts.groups
            options: dict[str, Any] = {"preranks": preranks, "scale": str(scale), "generator": seed}
            options |= {"time": forecasts.times, "cluster": forecasts.clusters}
            diagnosis: Diagnosis | GroupedDiagnosis
            if groups is None:
                diagnosis = diagnose_(dist, y, **options)
            else:
                diagnosis = diagnose_by(dist, y, groups, **options)
            where = _regions(forecasts, diagnosis, seed)
            if out is not None:
                size, n, dim = forecasts.samples.shape
                settings = {
                    "samples": f"{samples}, {size} of each of {n:,} rows and {dim} targets",
                    "observations": str(observations),
                    "targets": joined_names(forecasts.targets),
                    "units": _whole(diagnosis).units,
                }
                settings |= {} if inputs is None else {"inputs": str(inputs)}
                with writing(out):
                    title = f"Forecasts in {samples.name}"
                    diagnosis.to_html(
                        out, title=title, settings=settings, notes=notes, within=within, where=where
                    )
        verdict = diagnosis.verdict(within=within)
        if as_json:
            record = as_record(diagnosis, within=within) | _where_record(where)
            print_json(record | {"remarks": list(forecasts.remarks)})
        elif quiet:
            say(verdict.headline)
        else:
            for note in notes:
                say(note)
            _print(diagnosis, within, where)
            if out is not None:
                say(f"Page: {out}")
        failed = verdict.status == "bad" if within is None else not diagnosis.within(within).shown
    if check and failed:
        raise typer.Exit(MISCALIBRATED)


def _warn_of_raw_units(scale: Scale) -> None:
    if scale is not Scale.NONE:
        raise InputError(f"--raw-units and --scale {scale} exclude each other: drop one")
    words = f"--raw-units is deprecated: use --scale none; it ends with prerank {END}"
    say(f"Warning: {words}", err=True)


def as_record(
    diagnosis: Diagnosis | GroupedDiagnosis, *, within: float | None = None
) -> dict[str, Any]:
    """Verdict and findings, in values that JSON knows; with `within`, also `equivalence`.

    With groups, the verdict is that of all of them and the whole, the findings are of the whole,
    and `groups` has the record of each.
    """
    verdict = diagnosis.verdict(within=within)
    whole = _whole(diagnosis)
    record: dict[str, Any] = {
        "n": whole.n,
        "verdict": {
            "mood": verdict.status,
            "headline": verdict.headline,
            "points": list(verdict.points),
            "advice": list(verdict.advice),
        },
        "findings": [
            {name: _plain(value) for name, value in row.items()} for row in whole.records()
        ],
        "skipped": whole.skipped,
    }
    if within is not None:
        claim = asdict(diagnosis.within(within))
        record["equivalence"] = {name: _plain(value) for name, value in claim.items()}
    if whole.dependence is not None:
        rows = whole.dependence
        record["rows"] = {"kind": rows.kind, "units": rows.count, "degrees": rows.degrees}
    if whole.serial is not None:
        record["serial_correlation"] = asdict(whole.serial)
    if isinstance(diagnosis, GroupedDiagnosis):
        record["groups"] = {name: as_record(one) for name, one in diagnosis.groups.items()}
    return record


def _regions(
    forecasts: Forecasts, diagnosis: Diagnosis | GroupedDiagnosis, seed: int
) -> WhereDiagnosis | None:
    """Regions of the inputs, where these were given."""
    if forecasts.inputs is None:
        return None
    pits = _whole(diagnosis).pits
    return regions_of_pits(pits, forecasts.inputs, targets=forecasts.targets, generator=seed)


def _where_record(where: WhereDiagnosis | None) -> dict[str, Any]:
    if where is None:
        return {}
    found = {"p_value": where.p_value, "headline": where.headline, "regions": where.records()}
    return {"where": found}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole(diagnosis: Diagnosis | GroupedDiagnosis) -> Diagnosis:
    return diagnosis.overall if isinstance(diagnosis, GroupedDiagnosis) else diagnosis


def _print(
    diagnosis: Diagnosis | GroupedDiagnosis, within: float | None, where: WhereDiagnosis | None
) -> None:
    console = Screen()
    whole = _whole(diagnosis)
    say(str(diagnosis.verdict(within=within)))
    console.print(_table({"": whole}))
    if isinstance(diagnosis, GroupedDiagnosis):
        console.print(_table(diagnosis.groups, "group", "rows"))
        for name, one in diagnosis.groups.items():
            say(f"{name}: {one.verdict().headline}")
    for label, reason in whole.skipped.items():
        say(f"Skipped {label}: {reason}")
    if where is not None:
        say(str(where))


def _table(diagnoses: Mapping[str, Diagnosis], *named: str) -> Table:
    """The rows of whole pre-ranks, after the name and the number of rows where these are named."""
    headings = ("error", "floor", "excess", "at most (95 %)", "p (Holm)")
    table = Table(*named, "pre-rank", *(Column(name, justify="right") for name in headings))
    for name, one in diagnoses.items():
        start = [escape(name), f"{one.n:,}"] if named else []
        for row in one.by_prerank.values():
            p = "" if math.isnan(row.p_holm) else p_text(row.p_holm)
            most = "" if math.isnan(row.upper) else f"{row.upper:.4f}"
            numbers = [f"{row.pce:.4f}", f"{row.floor:.4f}", f"{row.excess:+.4f}", most, p]
            table.add_row(*start, escape(row.prerank), *numbers)
        table.add_section()
    return table
