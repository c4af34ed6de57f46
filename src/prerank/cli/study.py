"""`prerank study`: run a whole study, resumably, and report on it."""

import math
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from prerank.cli.messages import UNFINISHED, AsJson, one_line_errors, print_json
from prerank.errors import InputError
from prerank.files import write_atomically, writing
from prerank.inputs import as_device
from prerank.study import (
    PRESETS,
    Plan,
    Store,
    StudyProgress,
    Unit,
    check_datasets,
    run_study,
    tables,
)
from prerank.study.engines import Event, open_engine
from prerank.study.report_files import write_report

__all__ = ["study"]

study = typer.Typer(
    help="Whole studies: datasets by penalties by seeds, resumable at any moment.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Option("--out", file_okay=False, help="Folder of the study.")]


@study.command()
def run(
    plan: Annotated[str, typer.Argument(help=f"A TOML file, or one of {', '.join(PRESETS)}.")],
    out: Folder,
    device: Annotated[
        str, typer.Option(help="Where to train: cpu, cuda, or auto for the GPU where there is one.")
    ] = "auto",
    time_limit: Annotated[
        float, typer.Option(min=0, help="Seconds after which to stop, to be gone on with later.")
    ] = math.inf,
    engine: Annotated[
        Literal["local", "processes", "ray"] | None,
        typer.Option(
            help="Where units are worked on: in this process, in worker processes, or on a Ray "
            "cluster. By default processes where there are several workers, else in this one.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Units at a time. By default one for each core, with one thread each, and no more "
            "than are left; on a GPU 1, as workers share it: give more where one does not fill it; "
            "with --engine ray as many as the cluster has cores, or GPUs.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Of a Ray cluster, such as auto or 10.0.0.1:6379; without one, --engine ray "
            "begins its own on this machine."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="First read all results, and do the broken ones again.")
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="ENTRY=VALUE", help="Change an entry of the plan: --set n_samples=1000"
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress bar.")] = False,
) -> None:
    """Carry out what is left of a study.

    A killed run goes on where it stopped; a finished study does nothing. Several calls may share
    one folder. Exit code 3 says that units are left: time was up, or another call works on them.
    """
    with one_line_errors():
        chosen = _changed(Plan.read(plan), change or [])
        if engine != "ray" and not (out / "plan.toml").exists():
            check_datasets(chosen.datasets)
        store = Store(out, chosen)
        place = device if engine == "ray" else _place(device)
        for path, reason in store.remove_broken().items() if verify else ():
            typer.echo(f"{path} is removed, and made again: {reason}", err=True)
        runs_on = open_engine(
            engine,
            workers=workers,
            tasks=len(store.left()) if place == "cpu" else 1,
            address=address,
            environment=_environment(),
        )
        with _progress_bar(quiet) as show:
            outcome = run_study(
                chosen,
                out,
                device=place,
                time_limit=time_limit,
                engine=runs_on,
                on_progress=show,
                on_event=_tell_trouble,
            )
    left = len(outcome.left)
    if left:
        typer.echo(
            f"{_units(left)} left, {len(outcome.finished)} done by this call: "
            "run the same command again to go on."
        )
        raise typer.Exit(UNFINISHED)
    typer.echo(
        f"All {len(store.units)} units are done, {len(outcome.finished)} of them by this call. "
        f"Next: prerank study report {_quoted(out)}"
    )


@study.command()
def report(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the study.")],
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where to write; FOLDER/report by default.")
    ] = None,
) -> None:
    """Write tables, figures and a page, beside the published numbers where there are some."""
    with one_line_errors():
        store = Store(folder)
        with writing(out or folder / "report"):
            page = write_report(store, out)
    typer.echo(f"Tables, figures and the page: {page}")


@study.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(file_okay=False, help="Folders of studies.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The CSV file to write.")],
) -> None:
    """Put before and after of several studies side by side, after what the paper reports.

    One row for each dataset and pre-rank. Columns of a study begin with its folder: the last part
    of the path, where only that differs.
    """
    with one_line_errors():
        _check_output(out, folders)
        stores = dict(zip(_names(folders), map(Store, folders), strict=True))
        found = tables.compared({name: store.results() for name, store in stores.items()})
        with writing(out):
            write_atomically(out, lambda file: found.to_csv(file, index=False, float_format="%.6g"))
        left = {name: len(store.left()) for name, store in stores.items()}
    for name, count in left.items():
        if count:
            typer.echo(f"{name} is not finished: {_units(count)} left", err=True)
    typer.echo(f"{len(found)} rows: {out}")


@study.command()
def status(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the study.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all results, and name the broken ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is done and what is left."""
    with one_line_errors():
        store = Store(folder)
        left = store.left()
        broken = store.broken() if verify else {}
    units = len(store.units)
    if as_json:
        missing = [{"dataset": unit.dataset, "variant": unit.variant} for unit in left]
        told = {"plan": store.plan.name, "units": units, "left": missing}
        if verify:
            told["broken"] = {str(path): reason for path, reason in broken.items()}
        print_json(told)
        return
    typer.echo(f"{store.plan.name}: {units - len(left)} of {units} units done")
    for unit in left:
        typer.echo(f"left: {unit.dataset}, {unit.variant}")
    for reason in broken.values():
        typer.echo(f"broken: {reason}")


@study.command()
def plan(
    name: Annotated[str, typer.Argument(help=f"A TOML file, or one of {', '.join(PRESETS)}.")],
) -> None:
    """Print a plan as TOML, to be changed and run."""
    with one_line_errors():
        typer.echo(Plan.read(name).to_toml(), nl=False)


def _units(count: int) -> str:
    return "1 unit is" if count == 1 else f"{count} units are"


def _quoted(folder: Path) -> str:
    """A path as a shell takes it, and no option."""
    return shlex.quote(f"./{folder}" if str(folder).startswith("-") else str(folder))


def _check_output(out: Path, folders: list[Path]) -> None:
    """Refuse to write into a study that is compared, or to compare one with itself."""
    places = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if out.resolve().is_relative_to(place):
            raise InputError(f"--out {out} lies in the study {folder}: choose a place outside")
        if places.count(place) > 1:
            raise InputError(f"{folder} is given twice")


def _names(folders: list[Path]) -> list[str]:
    """Last parts of the paths, if they lie side by side; else the paths."""
    last = [folder.name for folder in folders]
    alike = len({folder.parent for folder in folders}) == 1
    return last if alike and all(last) and len(set(last)) == len(last) else list(map(str, folders))


def _changed(plan: Plan, changes: list[str]) -> Plan:
    pairs = [change.partition("=") for change in changes]
    for entry, equals, _ in pairs:
        if not equals or not entry.strip():
            raise InputError(f"--set {entry}: say ENTRY=VALUE")
    return plan.changed({entry.strip(): value for entry, _, value in pairs})


def _place(device: str) -> str:
    """The device's name, if this machine has it."""
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    return str(as_device(automatic if device == "auto" else device, "device"))


def _environment() -> dict[str, str]:
    """Variables of ours, for workers that another process begins: where the data lies."""
    found = {name: value for name, value in os.environ.items() if name.startswith("PRERANK_")}
    if "PRERANK_DATA" in found:
        found["PRERANK_DATA"] = str(Path(found["PRERANK_DATA"]).absolute())
    return found


def _tell_trouble(event: Event) -> None:
    """Say what is tried again, and whether in vain; the error at the end names all that failed."""
    if event.kind == "retried" or (event.kind == "failed" and event.attempt > 1):
        typer.echo(str(event), err=True)


@contextmanager
def _progress_bar(quiet: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    """A callback that draws units, and epochs of each, on standard error where it is a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task("units", total=None, note="")
        lines: dict[Unit, TaskID] = {}

        def show(progress: StudyProgress) -> None:
            unit, training = progress.unit, progress.training
            left = "" if math.isnan(progress.left) else f"about {progress.left:.0f} s left"
            bar.update(whole, completed=progress.done, total=progress.units, note=left)
            if training is None:
                if unit in lines:
                    bar.remove_task(lines.pop(unit))
                return
            if unit not in lines:
                lines[unit] = bar.add_task(f"{unit.dataset}, {unit.variant}", note="")
            note = f"{training.running} of {training.runs} runs, {progress.rate:.1f} steps/s"
            total = training.max_epochs
            bar.update(lines[unit], completed=training.epoch, total=total, note=note, refresh=True)

        yield show
