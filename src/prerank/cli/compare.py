"""`prerank compare`: two forecasts of the same observations, side by side."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prerank.cli.diagnose import Scale
from prerank.cli.messages import loading, one_line_errors, print_json, say, working
from prerank.cli.options import (
    AsJson,
    ClusterColumn,
    KeyColumns,
    SampleAxis,
    SampleColumn,
    TargetDimensions,
    TimeColumn,
)
from prerank.cli.reading import read_as_asked
from prerank.defaults import SCALE, SEED
from prerank.errors import InputError
from prerank.report.wording import joined_names

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from prerank.files import Forecasts

__all__ = ["compare"]


def compare(
    samples: Annotated[
        Path,
        typer.Option(
            help="Samples of the first forecast: .parquet, .csv, .npz, .npy, .nc or .zarr."
        ),
    ],
    versus: Annotated[Path, typer.Option(help="Samples of the second forecast.")],
    observations: Annotated[
        Path, typer.Option(help="Observations: a table, .npy, .npz, .nc or .zarr.")
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="Columns to compare, as a,b,c (default: all that the files have)."
        ),
    ] = None,
    key: KeyColumns = None,
    sample: SampleColumn = None,
    sample_axis: SampleAxis = None,
    target: TargetDimensions = None,
    time: TimeColumn = None,
    cluster: ClusterColumn = None,
    preranks: Annotated[
        str | None, typer.Option(help="Pre-ranks to use (default: those that apply).")
    ] = None,
    scale: Annotated[
        Scale,
        typer.Option(
            help="Units: none keeps those of the files, samples divides each target by the spread "
            "of the samples of the first forecast."
        ),
    ] = Scale(SCALE),  # noqa: B008
    seed: Annotated[int, typer.Option(min=0, help="Random seed of ties and draws.")] = SEED,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answers, and no table.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two forecasts of the same rows: which is better calibrated, which scores better.

    Differences are paired by row, with intervals. Rows that only one of the files has are left out.
    """
    with one_line_errors():
        with loading():
            from prerank.diagnosis import compare as compare_
            from prerank.distributions import Ensemble

        with working("reading", quiet):
            columns: dict[str, Any] = {"sample": sample, "sample_axis": sample_axis}
            columns |= {"target": target, "time": time, "cluster": cluster}
            first, second = (
                read_as_asked(file, observations, targets=targets, key=key, **columns)
                for file in (samples, versus)
            )
            first, second = _shared(first, second)
        names = (samples.name, versus.name)
        if samples.name == versus.name:
            names = (str(samples), str(versus))
        if samples == versus:
            raise InputError(f"--samples and --versus are the same file, {samples}: name two")
        with working("comparing", quiet):
            found = compare_(
                Ensemble(first.samples),
                Ensemble(second.samples),
                first.observations,
                preranks=preranks,
                time=first.times,
                cluster=first.clusters,
                names=names,
                scale=str(scale),
                generator=seed,
            )
        remarks = list(dict.fromkeys((*first.remarks, *second.remarks)))
        if as_json:
            print_json(
                {
                    "n": len(first.observations),
                    "names": list(names),
                    "targets": list(first.targets),
                    "better_calibrated": found.better_calibrated,
                    "better_scoring": found.better_scoring,
                    "level": found.level,
                    "assumption": found.assumption,
                    "differences": found.records(),
                    "skipped": found.skipped,
                    "remarks": remarks,
                }
            )
        elif quiet:
            say("\n".join(found.sentences))
        else:
            for remark in remarks:
                say(f"Note: {remark}.")
            say(str(found))


def _numbers(one: "Forecasts") -> "npt.NDArray[np.int64]":
    """Rows of the observations that have a forecast."""
    import numpy as np

    return np.arange(len(one.observations)) if one.rows is None else one.rows


def _shared(first: "Forecasts", second: "Forecasts") -> "tuple[Forecasts, Forecasts]":
    """The rows and targets that both forecasts have."""
    import numpy as np

    from prerank.files.frames import positions

    shared = set(second.targets)
    targets = [name for name in first.targets if name in shared]
    if not targets:
        raise InputError(
            f"the files have no target in common: {joined_names(first.targets)} and "
            f"{joined_names(second.targets)}"
        )
    rows, *places = np.intersect1d(_numbers(first), _numbers(second), return_indices=True)
    if not len(rows):
        raise InputError("no row of the observations has a forecast in both files")
    parts = []
    for one, at in zip((first, second), places, strict=True):
        columns = positions(targets, one.targets)
        lost = len(one.observations) - len(rows)
        remarks = one.remarks
        if lost:
            remarks = (*remarks, f"{lost} forecasts that only one file has were left out")
        times, clusters = (
            None if values is None else tuple(values[k] for k in at)
            for values in (one.times, one.clusters)
        )
        parts.append(
            replace(
                one,
                samples=one.samples[:, at][..., columns],
                observations=one.observations[at][:, columns],
                targets=tuple(targets),
                remarks=remarks,
                times=times,
                clusters=clusters,
                rows=rows,
            )
        )
    return parts[0], parts[1]
