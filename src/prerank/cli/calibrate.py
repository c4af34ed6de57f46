"""`prerank calibrate`: forecasts made elsewhere, repaired without training anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prerank import defaults
from prerank.cli.messages import loading, named_by, one_line_errors, print_json, working
from prerank.cli.options import (
    AsJson,
    KeyColumns,
    Quiet,
    SampleAxis,
    SampleColumn,
    TargetDimensions,
    a_number,
)
from prerank.cli.reading import read_as_asked

if TYPE_CHECKING:
    from prerank.cli.calibration_outcome import CalibrationFiles
    from prerank.files import Forecasts, SampleFile
    from prerank.recalibration import CalibrationHead

__all__ = ["calibrate"]


def calibrate(
    samples: Annotated[
        Path | None,
        typer.Option(
            help="Predictive samples to calibrate by, of rows that the predictor was not fitted "
            "to: .parquet, .csv, .npz, .npy, .nc or .zarr."
        ),
    ] = None,
    observations: Annotated[
        Path | None, typer.Option(help="Their observations: a table, .npy, .npz, .nc or .zarr.")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option(help="New samples to calibrate; without them, only a report.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File for the calibrated samples, laid out as APPLY."),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Columns to calibrate, as a,b,c (default: all that both files have).",
        ),
    ] = None,
    key: KeyColumns = None,
    sample: SampleColumn = None,
    sample_axis: SampleAxis = None,
    target: TargetDimensions = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column with the time of each row: the last rows are held out (default: some at "
            "random).",
        ),
    ] = None,
    preranks: Annotated[
        str, typer.Option(help="Pre-ranks to calibrate and to judge; see `prerank explain`.")
    ] = "all",
    held_out: Annotated[
        float,
        typer.Option(
            "--held-out",
            "--holdout",
            min=0.01,
            max=0.9,
            callback=a_number,
            help="Share of the rows held out for the report.",
        ),
    ] = defaults.HELD_OUT,
    head: Annotated[
        Path | None,
        typer.Option(help="Stored calibration to apply, instead of --samples and --observations."),
    ] = None,
    save_head: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File for the calibration itself: .safetensors."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="HTML page to write, such as report.html."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed for the held-out rows, the fit and ties.")
    ] = defaults.COMMAND_SEED,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate forecasts made elsewhere, from samples and observations, and report the effect.

    A small change of widths, shifts and dependence is fitted to a part of the rows of SAMPLES and
    judged on the others, before and after; for OUT it is fitted again, to all of them. It is fitted
    and judged in standard deviations of the observations of each target.
    """
    with one_line_errors():
        with loading():
            import pandas as pd

            from prerank.cli.calibration_outcome import CalibrationFiles, CalibrationOutcome
            from prerank.diagnosis.trial import fit_head, held_out_rows, try_head
            from prerank.recalibration import CalibrationHead

        event = tuple(target or ())
        files = CalibrationFiles(samples, observations, apply, out, head, save_head, report, event)
        files.check()
        for name, value in {"--targets": targets, "--time": time}.items():
            if head is not None and value:
                raise typer.BadParameter("not with --head, which is fitted", param_hint=name)
        reading = _Reading(files, key, sample, sample_axis, target)
        with working("reading", quiet):
            known = reading.known(targets, time)
            fitted = None if head is None else CalibrationHead.load(head)
            new = reading.new(known, fitted)
        trial = None
        if known is not None:
            y = pd.DataFrame(known.observations, columns=list(known.targets))
            held = held_out_rows(len(y), held_out, seed=seed, times=known.groups)
            with working("judging on held-out rows", quiet):
                options: dict[str, Any] = {"preranks": preranks, "seed": seed}
                options["times"] = known.groups
                trial = try_head(known.samples, y, held, **options)
            fitted = trial.head
            if out is not None or save_head is not None:
                with working("fitting to all rows", quiet):
                    fitted = fit_head(known.samples, y, **options)
        assert fitted is not None  # from a file, or from a trial
        done = CalibrationOutcome(files, known, new, trial, fitted)
        done.write()
        if as_json:
            print_json(done.record())
        elif not quiet:
            done.print()


@dataclass(frozen=True)
class _Reading:
    """Files of samples, and the options on how to read them."""

    files: "CalibrationFiles"
    key: Sequence[str] | None
    sample: str | None
    sample_axis: int | None
    target: Sequence[str] | None

    def known(self, targets: Sequence[str] | None, time: str | None) -> "Forecasts | None":
        """Samples with observations, where there are any."""
        samples, observations = self.files.samples, self.files.observations
        if samples is None or observations is None:
            return None
        axes = self._axes(samples, self.files.apply)
        axes |= {"key": self.key, "target": self.target}
        return read_as_asked(samples, observations, targets=targets, by=time, **axes)

    def new(self, known: "Forecasts | None", head: "CalibrationHead | None") -> "SampleFile | None":
        """Samples to calibrate, of the targets of the others or of the head."""
        from prerank.files import read_samples

        apply, out = self.files.apply, self.files.out
        if apply is None or out is None:
            return None
        axes = self._axes(apply, self.files.samples)
        if known is not None and _is_array(apply) and self.sample_axis is None:
            axes["sample_axis"] = known.sample_axis
        targets = known.targets if known is not None else head.target_names_ if head else ()
        axes |= {"key": named_by(self.key, "--key")}
        new = read_samples(apply, targets, target=named_by(self.target, "--target"), **axes)
        new.keeps_layout(out)  # or cannot be written, which is better known now
        return new

    def _axes(self, file: Path, other: Path | None) -> dict[str, Any]:
        """The options on the samples of a file; beside one of another kind, those of its kind."""
        given = {"sample": self.sample, "sample_axis": self.sample_axis}
        if other is not None and _is_array(file) != _is_array(other):
            given["sample" if _is_array(file) else "sample_axis"] = None
        return given


def _is_array(file: Path) -> bool:
    return file.suffix.lower() in (".npy", ".npz")
