"""`prerank monitor`: new forecasts and observations, added to a state that is kept in a file."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prerank.cli.messages import (
    MISCALIBRATED,
    loading,
    one_line_errors,
    print_json,
    say,
    working,
)
from prerank.cli.options import AsJson, KeyColumns, SampleAxis, SampleColumn, TargetDimensions
from prerank.cli.reading import read_as_asked
from prerank.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from prerank.diagnosis import Monitor
    from prerank.files import Forecasts

__all__ = ["monitor"]


def monitor(
    samples: Annotated[
        Path,
        typer.Option(help="Predictive samples of new rows: a table, .npz, .nc or .zarr."),
    ],
    observations: Annotated[Path, typer.Option(help="Observations of these rows.")],
    state: Annotated[
        Path, typer.Option(dir_okay=False, help="File of the state, created on first use.")
    ],
    time: Annotated[
        str | None, typer.Option(help="Column with the time of each row, a number or a date.")
    ] = None,
    skip_seen: Annotated[
        bool, typer.Option("--skip-seen", help="Leave out rows that were added, by --time.")
    ] = False,
    targets: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Columns to monitor, as a,b,c.")
    ] = None,
    key: KeyColumns = None,
    sample: SampleColumn = None,
    sample_axis: SampleAxis = None,
    target: TargetDimensions = None,
    alpha: Annotated[
        float | None, typer.Option(help="Probability of a false alarm, ever (default: 0.01).")
    ] = None,
    preranks: Annotated[
        str | None, typer.Option(help="Pre-ranks to use (default: all that apply).")
    ] = None,
    lead: Annotated[
        int | None, typer.Option(help="Rows by which forecasts are ahead (default: 1).")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Divisors of the targets, as 2.5,1013.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed of ties (default: 0).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Picture to write, such as path.png.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 4 on an alarm.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print one line, and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch forecasts over time: add new rows, print the evidence so far.

    The first call creates the file of the state, with its settings (--alpha, --preranks, --lead,
    --scale, --seed); later calls keep them. Rows come in the order of time. Rows that were added
    before are refused: with --time, those not later than the last one; without, a file that begins
    with rows of earlier ones, with ten different observations at least.
    """
    with one_line_errors():
        with loading():
            import prerank.diagnosis  # noqa: F401
            from prerank.files import check_file, writing

        if skip_seen and time is None:
            raise InputError("--skip-seen needs --time, which tells what is new")
        for out in (state, plot) if plot is not None else (state,):
            check_file(out, samples, observations)
        given: dict[str, Any] = {"alpha": alpha, "preranks": preranks, "lead": lead, "seed": seed}
        given["scale"] = None if scale is None else _numbers(scale)
        with _locked(state):
            watch = _opened(state, {k: v for k, v in given.items() if v is not None})
            with working("reading", quiet):
                columns: dict[str, Any] = {"sample": sample, "sample_axis": sample_axis}
                columns |= {"target": target, "by": time}
                new = read_as_asked(samples, observations, targets=targets, key=key, **columns)
            with working("adding rows", quiet), writing(state):
                added = _add(watch, new, skip_seen)
                if added:
                    watch.save(state)
        if plot is not None:
            with writing(plot):
                _draw(watch, plot)
        if as_json:
            print_json(_record(watch, added, new))
        else:
            for remark in () if quiet else new.remarks:
                say(f"Note: {remark}.")
            say(str(watch))
            if not quiet:
                values = ", ".join(f"{name} {e:.3g}" for name, e in watch.by_prerank.items())
                say(f"Added {added:,} rows. Evidence of each pre-rank: {values}.")
    if check and watch.alarm:
        raise typer.Exit(MISCALIBRATED)


@contextmanager
def _locked(state: Path) -> "Iterator[None]":
    """Keep other commands from adding rows to the same state meanwhile."""
    from prerank.files import FileLock, writing

    with writing(state), FileLock(state.with_name(f".{state.name}.lock")) as free:
        if not free:
            raise InputError(f"{state} is in use by another command: wait for its end")
        yield


def _opened(state: Path, given: dict[str, Any]) -> "Monitor":
    """The state in a file, or a new one; settings other than those of the file are refused."""
    from prerank.diagnosis import Monitor

    if not state.exists():
        return Monitor(**given)
    watch = Monitor.load(state)
    for name, value in given.items():
        kept = getattr(watch, name)
        if value != kept:
            raise InputError(f"{state} was created with --{name} {kept}: it cannot become {value}")
    return watch


def _add(watch: "Monitor", new: "Forecasts", skip_seen: bool) -> int:
    """Add rows in the order of their time, if there is one, and return how many."""
    import numpy as np
    import pandas as pd

    from prerank.distributions import Ensemble
    from prerank.inputs import as_ranks

    rows: npt.NDArray[np.int64] = np.arange(len(new.observations))
    if new.groups is not None:
        last = watch.times[-1:]
        ranks = as_ranks([*last, *new.groups], "--time")
        order = ranks[len(last) :]
        rows = np.argsort(order, kind="stable")
        if skip_seen and last:
            rows = rows[order[rows] > ranks[0]]
    if not len(rows):
        return 0
    y = pd.DataFrame(new.observations[rows], columns=list(new.targets))
    times = None if new.groups is None else [new.groups[row] for row in rows]
    watch.update(Ensemble(new.samples[:, rows]), y, time=times)
    return len(rows)


def _draw(watch: "Monitor", path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    watch.plot(figure.subplots())
    try:
        figure.savefig(path)
    except ValueError as error:  # matplotlib does not know the suffix
        raise InputError(f"{path}: {error}") from error


def _record(watch: "Monitor", added: int, new: "Forecasts") -> dict[str, Any]:
    at = watch.alarm_row
    return {
        "alarm": watch.alarm,
        "alarm_row": at,
        "alarm_time": watch.times[at] if at is not None and watch.times else None,
        "evidence": watch.evidence,
        "threshold": 1 / watch.alpha,
        "rows": watch.rows,
        "added": added,
        "by_prerank": watch.by_prerank,
        "remarks": list(new.remarks),
    }


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--scale must be numbers between commas, got {text!r}") from error
