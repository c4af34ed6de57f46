"""What `prerank calibrate` reads, writes and prints."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer
from rich.markup import escape
from rich.table import Column, Table

from prerank.cli.findings import as_record
from prerank.cli.messages import Screen, say
from prerank.diagnosis.trial import UNITS, HeadTrial
from prerank.distributions import Ensemble
from prerank.errors import InputError
from prerank.files import Forecasts, SampleFile, check_file, write_atomically, writing
from prerank.recalibration import CalibrationHead
from prerank.report.wording import joined_names, p_text

__all__ = ["CalibrationFiles", "CalibrationOutcome"]

_COLUMNS = ("excess before", "after", "p (Holm) before", "after")
_Job = tuple[Path, Callable[[Path], object]]


@dataclass(frozen=True)
class CalibrationFiles:
    """The files of the command: what is read, and what is written.

    Attributes:
        event: dimensions of netCDF files and zarr stores whose places form one event.
    """

    samples: Path | None
    observations: Path | None
    apply: Path | None
    out: Path | None
    head: Path | None
    save_head: Path | None
    report: Path | None
    event: Sequence[str] = ()

    def check(self) -> None:
        """Refuse files that do not go together, or cannot be written."""
        fitting = (self.samples, self.observations, self.save_head, self.report)
        wrong = {
            "--head": self.head and any(fitting),
            "--samples": not (self.samples or self.head),
            "--observations": not (self.observations or self.head),
            "--apply": (self.out or self.head) and not self.apply,
            "--out": self.apply and not self.out,
        }
        words = {
            "--head": "takes the place of --samples, --observations, --save-head and --report",
            "--samples": "name a file, or a stored calibration with --head",
            "--observations": "name the file with the observations of --samples",
            "--apply": "name the file with the samples to calibrate",
            "--out": "name the file for the calibrated samples",
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                raise typer.BadParameter(words[name], param_hint=name)
        read = [f for f in (self.samples, self.observations, self.apply, self.head) if f]
        endings = {self.save_head: (".safetensors",), self.report: (".html", ".htm")}
        for file in filter(None, (self.out, self.save_head, self.report)):
            check_file(file, *read)
            known = endings.get(file, (file.suffix.lower(),))
            if file.suffix.lower() not in known:
                raise InputError(f"{file}: the file to write must end in {' or '.join(known)}")


@dataclass(frozen=True)
class CalibrationOutcome:
    """A calibration, and what it is applied to."""

    files: CalibrationFiles
    known: Forecasts | None
    new: SampleFile | None
    trial: HeadTrial | None
    head: CalibrationHead

    @cached_property
    def values(self) -> npt.NDArray[np.float64] | None:
        """The new samples, calibrated."""
        if self.new is None:
            return None
        calibrated = self.head(Ensemble(self.new.values))
        assert isinstance(calibrated, Ensemble)  # as many members
        return calibrated.samples.numpy()

    @property
    def changed(self) -> bool:
        """Whether any sample is another one."""
        if self.new is not None:
            return bool((self.new.values != self.values).any())
        return bool(self.head.change_.active)

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """On how files were read and are written."""
        return (*(self.known.remarks if self.known else ()), *self._remarks_on_new())

    def _remarks_on_new(self) -> Iterator[str]:
        new, out = self.new, self.files.out
        if new is None or out is None:
            return
        yield from new.remarks
        kept = new.keeps_layout(out)
        if new.others:
            what = "copied as they are" if kept else "left out"
            yield f"samples of {joined_names(new.others)} in {new.path.name} were {what}"
        if not kept:
            key = "row" if new.key is None else joined_names(new.key)
            yield f"the layout of {new.path.name} was not kept: {key} identifies the forecasts"
        size = len(new.values) if self.known is None else len(self.known.samples)
        if size != len(new.values):
            yield f"calibrated by forecasts of {size} samples, applied to {len(new.values)}"

    def write(self) -> None:
        """Write all files; they get their names when the last one is complete, or never."""
        jobs: list[_Job] = []
        if self.files.report is not None:
            jobs.append((self.files.report, self._write_page))
        if self.files.save_head is not None:
            jobs.append((self.files.save_head, self.head.save))
        if self.files.out is not None and self.new is not None and self.values is not None:
            jobs.append((self.files.out, partial(self.new.write, values=self.values)))
        if jobs:
            _write(jobs)

    def _write_page(self, file: Path) -> None:
        trial, samples = self.trial, self.files.samples
        if trial is None or samples is None:
            return
        settings = {
            "calibrated by": f"{trial.n_fitted:,} other rows",
            "samples": str(samples),
            "observations": str(self.files.observations),
            "units": UNITS,
        }
        notes = [f"Note: {remark}." for remark in self.remarks]
        notes += [_energy_words(trial), _change_words(trial.head, trial.changed)]
        page: dict[str, Any] = {
            "before": trial.before,
            "change": "calibration",
            "settings": settings,
        }
        trial.after.to_html(file, title=f"Calibration of {samples.name}", notes=notes, **page)

    def record(self) -> dict[str, Any]:
        """All of it, in values that JSON knows."""
        record: dict[str, Any] = {
            "changed": self.changed,
            "change": _changes(self.head) if self.changed else [],
            "remarks": list(self.remarks),
        }
        trial = self.trial
        if trial is not None:
            energy = dict(zip(("before", "after"), trial.energy, strict=True))
            record |= {
                "rows": {"fitted": trial.n_fitted, "held_out": trial.after.n},
                "units": UNITS,
                "before": as_record(trial.before),
                "after": as_record(trial.after),
                "energy_score": energy | {"standard_error": trial.energy_error},
            }
        files = self.files
        written = {"samples": files.out, "head": files.save_head, "report": files.report}
        return record | {name: str(file) for name, file in written.items() if file}

    def print(self) -> None:
        """Print remarks, the trial, the change, the files and what to do next."""
        files = self.files
        for remark in self.remarks:
            say(f"Note: {remark}.")
        if self.trial is not None:
            _print_trial(self.trial)
        say(_change_words(self.head, self.changed))
        if self.new is not None:
            size, n, _ = self.new.values.shape
            rows = (
                f", calibrated by all {len(self.known.observations):,} rows" if self.known else ""
            )
            say(f"{n:,} forecasts of {size} samples{rows}: {files.out}")
        for name, file in (("Calibration", files.save_head), ("Page", files.report)):
            if file is not None:
                say(f"{name}: {file}")
        kind = ".nc" if files.event else ".csv"
        dims = f" --target {','.join(files.event)}" if files.event else ""
        applied = f"--apply NEW{kind} --out calibrated{kind}{dims}"
        if files.out is not None:
            following = f"diagnose --samples {files.out} --observations OBSERVED{kind}{dims}"
        elif files.save_head is not None:
            following = f"calibrate --head {files.save_head} {applied}"
        else:
            given = f"--samples {files.samples} --observations {files.observations}"
            following = f"calibrate {given} {applied}"
        say(f"Next: prerank {following}")


def _write(jobs: list[_Job]) -> None:
    """Write one file after the other; each job writes in one step."""
    (path, write), *others = jobs

    def all_of_them(file: Path) -> None:
        write(file)
        _write(others)

    with writing(path):
        if others:
            write_atomically(path, all_of_them)
        else:
            write(path)


def _print_trial(trial: HeadTrial) -> None:
    before, after = trial.before, trial.after
    say(
        f"Calibrated by {trial.n_fitted:,} rows, judged on {after.n:,} that were held out.\n"
        f"Units: {UNITS}.\n"
        f"Before: {before.verdict().headline}\n"
        f"After: {after.verdict().headline}"
    )
    table = Table("pre-rank", *(Column(name, justify="right") for name in _COLUMNS))
    for label, row in after.by_prerank.items():
        pair = (before.by_prerank[label], row)
        numbers = [f"{one.excess:+.4f}" for one in pair]
        tests = ["" if math.isnan(one.p_holm) else p_text(one.p_holm) for one in pair]
        table.add_row(escape(label), *numbers, *tests)
    Screen().print(table)
    say(_energy_words(trial))
    for label, row in after.by_prerank.items():
        if row.note:
            say(f"Note: {label} has {row.note}.")
    for remark in after.remarks:
        say(f"Note: {remark}")
    for label, reason in after.skipped.items():
        say(f"Skipped {label}: {reason}")


def _energy_words(trial: HeadTrial) -> str:
    before, after = trial.energy
    percent = (before or 1.0) / 100
    words = (
        f"Energy score: {before:.4f} before, {after:.4f} after ({(after - before) / percent:+.2f} "
        f"%, standard error {trial.energy_error / percent:.2f} %)."
    )
    worse = after - before > 2 * trial.energy_error
    return f"{words} Calibration makes it worse: do not apply it." if worse else words


def _changes(head: CalibrationHead) -> list[str]:
    """What a head changes, in words; small changes have none of their own."""
    words = head.report()
    return ["less than is worth naming"] if words == "nothing" else words.splitlines()


def _change_words(head: CalibrationHead, changed: bool) -> str:
    if not changed:
        return "Nothing was changed: the calibration rows do not support any change."
    return f"Changed: {'; '.join(_changes(head))}."
