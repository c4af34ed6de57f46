"""`prerank study`: run a study, resumably, and report on it."""

import math
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prerank import defaults
from prerank.cli.course import duration
from prerank.cli.messages import (
    UNFINISHED,
    loading,
    one_line_errors,
    print_json,
    say,
    terminal,
)
from prerank.cli.options import AsJson, a_number
from prerank.errors import InputError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from prerank.study import Plan, StudyProgress, Unit
    from prerank.study.engines import Event

__all__ = ["study"]

_EVERY = 10.0  # seconds between two lines if the output is not a terminal

study = typer.Typer(
    help="Studies: datasets by penalties by seeds, resumable at any moment.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(file_okay=False, help="Folder of the study.")]
PlanName = Annotated[
    str, typer.Argument(help=f"A TOML file, or one of {', '.join(defaults.PRESETS)}.")
]


@study.command()
def run(
    plan: PlanName,
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="Folder of the study.")],
    device: Annotated[
        str, typer.Option(help="Where to train: cpu, cuda, or auto for the GPU if there is one.")
    ] = "auto",
    time_limit: Annotated[
        float,
        typer.Option(
            min=0,
            callback=a_number,
            help="Seconds after which to stop; the same command resumes.",
        ),
    ] = math.inf,
    engine: Annotated[
        Literal["local", "processes", "ray"] | None,
        typer.Option(
            help="Where units run: in this process, in worker processes, or on a Ray cluster. "
            "By default in processes if there are several workers, else in this one.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Units at a time. By default one for each core, with one thread each, and no more "
            "than are left; 1 on a GPU, which workers share: give more if one does not fill it; "
            "with --engine ray as many as the cluster has cores, or GPUs.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of a Ray cluster, such as auto or 10.0.0.1:6379; without one, --engine "
            "ray starts its own on this machine."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all results first, and redo the broken ones.")
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, help="Seconds between checkpoints inside a unit.")
    ] = defaults.CHECKPOINT_EVERY,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="ENTRY=VALUE", help="Change an entry of the plan: --set n_samples=1000"
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Print no progress.")] = False,
) -> None:
    """Run what is left of a study.

    A killed run is resumed where it stopped; a finished study does nothing. Several calls may share
    one folder. Exit code 3 means that units are left: time was up, or another call works on them.
    """
    with one_line_errors():
        with loading():
            from prerank.study import Plan, Store, check_datasets, run_study
            from prerank.study.engines import Processes, open_engine
            from prerank.study.work import device_name, worker_environment

        chosen = _changed(Plan.read(plan), change or [])
        if engine != "ray" and not (out / "plan.toml").exists():
            check_datasets(chosen.datasets)
        store = Store(out, chosen)
        place = device if engine == "ray" else device_name(device)
        for path, reason in store.remove_broken().items() if verify else ():
            say(f"{path} is removed, and made again: {reason}", err=True)
        runs_on = open_engine(
            engine,
            workers=workers,
            tasks=len(store.left()) if place == "cpu" else 1,
            address=address,
            environment=worker_environment(),
        )
        if not quiet and place == "cpu" and engine != "ray" and store.left():
            workers = runs_on.workers if isinstance(runs_on, Processes) else 1
            _say_duration(store.plan, store.left(), workers)
        with _shown(quiet) as show:
            outcome = run_study(
                chosen,
                out,
                device=place,
                time_limit=time_limit,
                checkpoint_every=checkpoint_every,
                engine=runs_on,
                on_progress=show,
                on_event=_print_trouble,
            )
    left = len(outcome.left)
    if left:
        say(
            f"{_units(left)} left, {len(outcome.finished)} done by this call: "
            "run the same command again to resume."
        )
        raise typer.Exit(UNFINISHED)
    done = len(set(outcome.finished) & set(store.units))  # not what these started from
    shown = shlex.quote(f"./{out}" if str(out).startswith("-") else str(out))
    say(
        f"All {len(store.units)} units are done, {done} of them by this call. "
        f"Next: prerank study report {shown}"
    )


@study.command()
def report(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where to write; FOLDER/report by default.")
    ] = None,
) -> None:
    """Write tables, figures and a page, beside the published numbers where there are some."""
    with one_line_errors():
        with loading():
            from prerank.study import Store
            from prerank.study.report_files import write_report

        page = write_report(Store(folder), out)
    say(f"Tables, figures and the page: {page}")


@study.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(file_okay=False, help="Folders of studies.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The CSV file to write.")],
) -> None:
    """Put before and after of several studies side by side, after what the paper reports.

    One row for each dataset and pre-rank. Columns of a study begin with its folder: the last part
    of the path, if the others differ in that part only.
    """
    with one_line_errors():
        with loading():
            from prerank.study.report_files import write_comparison

        rows, left = write_comparison(folders, out)
    for name, count in left.items():
        if count:
            say(f"{name} is not finished: {_units(count)} left", err=True)
    say(f"{rows} rows: {out}")


@study.command()
def status(
    folder: Folder,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all results, and name the broken ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is done and what is left."""
    with one_line_errors():
        with loading():
            from prerank.study import Store

        store = Store(folder)
        left = store.left()
        broken = store.broken() if verify else {}
    units = len(store.units)
    if as_json:
        missing = [{"dataset": unit.dataset, "variant": unit.variant} for unit in left]
        value = {"plan": store.plan.name, "units": units, "left": missing}
        if verify:
            value["broken"] = {str(path): reason for path, reason in broken.items()}
        print_json(value)
        return
    say(f"{store.plan.name}: {units - len(left)} of {units} units done")
    for unit in left:
        say(f"left: {unit.dataset}, {unit.variant}")
    for reason in broken.values():
        say(f"broken: {reason}")


@study.command()
def plan(name: PlanName) -> None:
    """Print a plan as TOML, to be changed and run.

    How long it will take on this machine's CPU, as far as its datasets are here, goes to standard
    error.
    """
    with one_line_errors():
        with loading():
            from prerank.study import Plan, Unit, check_datasets
            from prerank.study.engines.processes import cores

        chosen = Plan.read(name)
        say(chosen.to_toml(), nl=False)
        try:
            check_datasets(chosen.datasets)
        except InputError as error:
            say(f"No estimate of the time: {error}", err=True)
            return
        units = [Unit(d, v) for d in chosen.datasets for v in chosen.variants]
        _say_duration(chosen, units, cores())


def _say_duration(plan: "Plan", units: "list[Unit]", workers: int) -> None:
    """Say how long units will take here, from the time of a few training steps."""
    from prerank.study.timetable import expected_seconds

    workers = min(workers, len(units))
    seconds = expected_seconds(plan, units, workers=workers)
    where = "1 process" if workers == 1 else f"{workers} processes"
    done = "1 unit" if len(units) == 1 else f"{len(units)} units"
    say(f"About {duration(seconds)} for {done} on {where} here (CPU).", err=True)


def _units(count: int) -> str:
    return "1 unit is" if count == 1 else f"{count} units are"


def _changed(plan: "Plan", changes: list[str]) -> "Plan":
    pairs = [change.partition("=") for change in changes]
    for entry, equals, _ in pairs:
        if not equals or not entry.strip():
            raise InputError(f"--set {entry}: write ENTRY=VALUE")
    return plan.changed({entry.strip(): value for entry, _, value in pairs})


def _print_trouble(event: "Event") -> None:
    """Print what is tried again, and whether in vain; the error at the end names all failures."""
    if event.kind == "retried" or (event.kind == "failed" and event.attempt > 1):
        say(str(event), err=True)


@contextmanager
def _shown(quiet: bool) -> Iterator["Callable[[StudyProgress], None] | None"]:
    """A callback that shows the course of a study: a bar on a terminal, else a line now and then.

    On a terminal, the epochs of the units that are worked on stand below the bar of the whole.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = terminal(quiet)
    if quiet:
        yield None
        return
    if console is None:
        yield _Lines()
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    note = TextColumn("{task.fields[note]}")
    with Progress(*columns, note, console=console, transient=True) as bar:
        whole = bar.add_task("study", total=1.0, note="")
        lines: dict[Unit, TaskID] = {}

        def show(progress: "StudyProgress") -> None:
            unit, training = progress.unit, progress.training
            counted = f"{progress.done} of {progress.units} units{_left(progress)}"
            share = max(progress.share, bar.tasks[0].completed)
            bar.update(whole, completed=share, note=counted)
            if training is None:
                if unit in lines:
                    bar.remove_task(lines.pop(unit))
                return
            if unit not in lines:
                lines[unit] = bar.add_task(f"{unit.dataset}, {unit.variant}", note="")
            note = (
                f"epoch {training.epoch}, {training.running} of {training.runs} runs, "
                f"{progress.rate:.1f} steps/s"
            )
            total = training.max_epochs
            bar.update(lines[unit], completed=training.epoch, total=total, note=note, refresh=True)

        yield show


class _Lines:
    """Prints the progress of a study if the output is not a terminal."""

    def __init__(self) -> None:
        self._share, self._said = 0.0, -math.inf

    def __call__(self, progress: "StudyProgress") -> None:
        """Print a line for the first epoch, for each unit that is done, and every ten seconds."""
        now, training = time.monotonic(), progress.training
        self._share = max(self._share, progress.share)
        if training is not None and now - self._said < _EVERY:
            return
        self._said = now
        doing = "done" if training is None else f"epoch {training.epoch}"
        say(
            f"{self._share:4.0%} {progress.unit.dataset}, {progress.unit.variant}: {doing}; "
            f"{progress.done} of {progress.units} units{_left(progress)}",
            err=True,
        )


def _left(progress: "StudyProgress") -> str:
    return "" if math.isnan(progress.left) else f"; about {duration(progress.left)} left"
