"""`prerank diagnose`: predictions made elsewhere, judged without training anything."""

from collections.abc import Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from prerank.cli.messages import (
    MISCALIBRATED,
    loading,
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
    TargetDimensions,
    TimeColumn,
)
from prerank.cli.reading import open_as_asked, read_as_asked
from prerank.defaults import MANY_VALUES, SCALE, SEED
from prerank.errors import InputError
from prerank.moved import END
from prerank.report.wording import joined_names

if TYPE_CHECKING:
    from prerank.diagnosis import Diagnosis, GroupedDiagnosis, WhereDiagnosis
    from prerank.files import Forecasts
    from prerank.files.grid_pairs import GridPair

__all__ = ["Scale", "diagnose"]


class Scale(StrEnum):
    """By what each target is divided."""

    NONE = "none"
    SAMPLES = "samples"


class Missing(StrEnum):
    """What is done where values are missing."""

    RAISE = "raise"
    AVAILABLE = "available"


_SCALE = Scale(SCALE)
_BLOCKS = "without --by, --inputs and --scale, where whole variables and dimensions are matched"


def diagnose(
    samples: Annotated[
        Path, typer.Option(help="Predictive samples: .parquet, .csv, .npz, .npy, .nc or .zarr.")
    ],
    observations: Annotated[
        Path, typer.Option(help="Observations: a table, .npy, .npz, .nc or .zarr.")
    ],
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
    target: TargetDimensions = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Column that names the group of each row; of netCDF files also a part of a date, "
            "such as time.season.",
        ),
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
    missing: Annotated[
        Missing,
        typer.Option(
            help="Missing values: raise an error, or use the targets that are available in each "
            "row (valid if whether a value is missing does not depend on the values)."
        ),
    ] = Missing.RAISE,
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
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Print only the headline of the verdict; with --within, only whether that is "
            "shown.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge predictions made elsewhere, from samples and observations.

    Tables are long (a row for each forecast and sample) or wide (columns like rain_1, rain_2, ...);
    arrays have the samples first. In netCDF files and zarr stores --member names the dimension of
    the samples, the places of --target form one event, and the other dimensions are rows. Some
    pre-ranks mix the targets: where these have different units, --scale samples divides each target
    by the spread of its samples.
    """
    with one_line_errors():
        with loading():
            from prerank.cli.findings import as_record, print_diagnosis, where_record, whole_of
            from prerank.files import check_file, writing

        if raw_units:
            _warn_of_raw_units(scale)
        if out is not None:
            check_file(out, samples, observations, *filter(None, [inputs]))
            if out.suffix.lower() not in (".html", ".htm"):
                raise InputError(f"{out}: the page to write must end in .html or .htm")
        names = {"targets": targets, "key": key, "sample": sample, "sample_axis": sample_axis}
        columns = {"by": by, "inputs": inputs, "time": time, "cluster": cluster}
        options = {"preranks": preranks, "scale": str(scale), "generator": seed}
        options["missing"] = str(missing)
        files = (samples, observations)
        judged = _judged(files, {**names, "target": target}, columns, options, quiet)
        diagnosis, where, remarks = judged.diagnosis, judged.where, judged.remarks
        notes = [f"Note: {remark}." for remark in remarks]
        if out is not None:
            size, n, dim = judged.shape
            settings = {
                "samples": f"{samples}, {size} of each of {n:,} rows and {dim} targets",
                "observations": str(observations),
                "targets": joined_names(judged.targets),
                "units": whole_of(diagnosis).units,
            }
            settings |= {} if inputs is None else {"inputs": str(inputs)}
            with working("diagnosing", quiet), writing(out):
                title = f"Forecasts in {samples.name}"
                diagnosis.to_html(
                    out, title=title, settings=settings, notes=notes, within=within, where=where
                )
        verdict = diagnosis.verdict(within=within)
        if as_json:
            record = as_record(diagnosis, within=within) | where_record(where)
            print_json(record | {"remarks": list(remarks)})
        elif quiet:
            say(verdict.headline if within is None else str(diagnosis.within(within)))
        else:
            for note in notes:
                say(note)
            print_diagnosis(diagnosis, within, where)
            if out is not None:
                say(f"Page: {out}")
        failed = verdict.status == "bad" if within is None else not diagnosis.within(within).shown
    if check and failed:
        raise typer.Exit(MISCALIBRATED)


class _Judged(NamedTuple):
    """A diagnosis of samples `(S, N, D)`, and how their files were read."""

    diagnosis: "Diagnosis | GroupedDiagnosis"
    where: "WhereDiagnosis | None"
    shape: tuple[int, ...]
    targets: tuple[str, ...]
    remarks: tuple[str, ...]


def _judged(
    files: tuple[Path, Path],
    names: Mapping[str, Any],
    columns: Mapping[str, Any],
    options: Mapping[str, Any],
    quiet: bool,
) -> _Judged:
    """Read and diagnose files, in blocks of rows if they are large and the options allow it."""
    from prerank.files.frames import naming

    with ExitStack() as opened:
        with working("reading", quiet):
            pair = None
            if not any([columns["by"], columns["inputs"], options["scale"] != Scale.NONE]):
                aside = [name for name in (columns["time"], columns["cluster"]) if name is not None]
                pair = opened.enter_context(open_as_asked(*files, **names, aside=aside))
            if pair is None:
                asked = {**names, **columns, "missing": options["missing"]}
                forecasts = read_as_asked(*files, **asked)
        with working("diagnosing", quiet):
            if pair is None:
                return _at_once(forecasts, options)
            with naming(Path(f"{files[0]} (dist) and {files[1]} (y)"), *files):
                return _in_blocks(pair, columns, options)


def _at_once(forecasts: "Forecasts", options: Mapping[str, Any]) -> _Judged:
    """Diagnose forecasts in memory."""
    import pandas as pd

    from prerank.cli.findings import whole_of
    from prerank.diagnosis import diagnose, diagnose_by
    from prerank.distributions import Ensemble

    y = pd.DataFrame(forecasts.observations, columns=list(forecasts.targets))
    dist, shape = Ensemble(forecasts.samples, missing=options["missing"]), forecasts.samples.shape
    options = {**options, "time": forecasts.times, "cluster": forecasts.clusters}
    diagnosis: Diagnosis | GroupedDiagnosis
    if forecasts.groups is None:
        diagnosis = diagnose(dist, y, **options)
    else:
        diagnosis = diagnose_by(dist, y, forecasts.groups, **options)
    where = _regions(forecasts, whole_of(diagnosis), options["generator"])
    remarks = forecasts.remarks
    if forecasts.samples.size > MANY_VALUES:
        words = f"all {forecasts.samples.size:,} values of the samples were read into memory"
        remarks = (*remarks, f"{words}: netCDF files and zarr stores are read in blocks {_BLOCKS}")
    return _Judged(diagnosis, where, shape, forecasts.targets, remarks)


def _in_blocks(pair: "GridPair", columns: Mapping[str, Any], options: Mapping[str, Any]) -> _Judged:
    """Diagnose forecasts that stay in their files, one block of rows after the other."""
    from prerank.diagnosis import diagnose

    diagnosis = diagnose(
        pair.samples,
        pair.observations,
        member=pair.member,
        target=pair.event or None,
        rows=pair.rows,
        time=columns["time"],
        cluster=columns["cluster"],
        **options,
    )
    return _Judged(diagnosis, None, pair.shape, pair.targets, pair.remarks)


def _warn_of_raw_units(scale: Scale) -> None:
    if scale is not Scale.NONE:
        raise InputError(f"--raw-units and --scale {scale} exclude each other: drop one")
    words = f"--raw-units is deprecated: use --scale none; it ends with prerank {END}"
    say(f"Warning: {words}", err=True)


def _regions(forecasts: "Forecasts", diagnosis: "Diagnosis", seed: int) -> "WhereDiagnosis | None":
    """Regions of the inputs, where these were given."""
    if forecasts.inputs is None:
        return None
    from prerank.diagnosis import regions_of_pits

    return regions_of_pits(
        diagnosis.pits,
        forecasts.inputs,
        targets=forecasts.targets,
        time=forecasts.times,
        cluster=forecasts.clusters,
        generator=seed,
    )
