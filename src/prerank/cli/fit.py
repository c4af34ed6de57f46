"""`prerank fit`: from a table of one's own to a calibrated model and its report."""

import shlex
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prerank import defaults
from prerank.cli.course import Course
from prerank.cli.messages import (
    loading,
    named_by,
    one_line_errors,
    print_json,
    say,
)
from prerank.cli.options import AsJson, Quiet, a_number

if TYPE_CHECKING:
    from prerank.estimators import MixtureRegressor
    from prerank.files.user_tables import TrainingTable
    from prerank.training import Progress

__all__ = ["MaxEpochs", "Seed", "fit"]

_FEWEST_ROWS = 30
_PARTS = {
    "training": "training",
    "penalty": "training with a penalty",
    "head": "calibration head",
    "judging": "diagnosis",
    "drawing": "report",
}
_EPOCHS, _MEASURED = 30, 5  # that a training often has; after which its pace is known
_LARGEST_SEED = 2**32 - 1  # of numpy's generator

MaxEpochs = Annotated[
    int, typer.Option(min=1, help="Maximum number of passes over the training rows.")
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=_LARGEST_SEED, help="Random seed for the split, training and sampling."
    ),
]


def fit(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="CSV, ARFF or Parquet file, one row per case.")],
    targets: Annotated[
        list[str],
        typer.Option(
            metavar="NAMES",
            help="Columns to predict: a,b,c, or --targets a --targets 'b, with a comma'.",
        ),
    ],
    out: Annotated[Path, typer.Option(file_okay=False, help="New folder for model and report.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Columns to predict from; all others by default."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Columns to leave aside, such as names and dates."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="How to calibrate: `head` fits a calibration head to rows that the network has "
            "not seen, `network` trains it with a penalty, `none` does neither."
        ),
    ] = defaults.METHOD,
    members: Annotated[
        int, typer.Option(min=1, help="Networks whose mixture is the prediction.")
    ] = 1,
    preranks: Annotated[
        str | None,
        typer.Option(
            help="Pre-ranks of the penalty; see `prerank explain`. Default: all for `head`, "
            f"{defaults.PENALTY_PRERANKS} for `network`."
        ),
    ] = None,
    strength: Annotated[
        str, typer.Option(help="Penalty strength: a number, 0 to disable it, or `auto`.")
    ] = defaults.COMMAND_STRENGTH,
    budget: Annotated[
        float,
        typer.Option(
            min=0,
            callback=a_number,
            help="By how much the energy score may worsen, for `network` and `auto`.",
        ),
    ] = defaults.BUDGET,
    discrete: Annotated[
        str,
        typer.Option(
            help="Targets with few values or atoms: `auto` detects them and rounds their "
            "forecasts, `off` treats all targets as continuous."
        ),
    ] = defaults.DISCRETE,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW:HIGH",
            help="Bounds of a target that no forecast goes beyond, such as humid=0:100 or rain=0:; "
            "once for each target.",
        ),
    ] = None,
    components: Annotated[
        int, typer.Option(min=1, help="Gaussians in the mixture.")
    ] = defaults.N_COMPONENTS,
    max_epochs: MaxEpochs = defaults.MAX_EPOCHS,
    held_out: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=0.9,
            callback=a_number,
            help="Share of the rows held out for the diagnosis.",
        ),
    ] = defaults.HELD_OUT,
    split_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the time of each row: the last rows are held out instead of random "
            "ones, and rows of neighbouring times may depend on each other.",
        ),
    ] = None,
    dates: Annotated[
        bool,
        typer.Option(
            "--dates", help="Make inputs of dates: a trend, and the time of year, week and day."
        ),
    ] = False,
    impute: Annotated[
        bool,
        typer.Option(
            "--impute", help="Fill in missing inputs: by the median, and a flag that says where."
        ),
    ] = False,
    drop_missing: Annotated[
        bool,
        typer.Option(
            "--drop-missing",
            help="Leave out rows with missing values; with --impute, those of targets only.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the model in OUT.")] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; the GPU where there is one by default.")
    ] = None,
    seed: Seed = defaults.COMMAND_SEED,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a calibrated model on a table, diagnose it on held-out rows, save both.

    OUT gets the model, for `prerank predict`, and report.html, for a browser. It appears when all
    is done: a command that fails leaves nothing behind.
    """
    with one_line_errors():
        with loading():
            from prerank.cli.findings import as_record
            from prerank.cli.remedies import refuse_table
            from prerank.estimators import MixtureRegressor
            from prerank.estimators.durations import measured_slowness, parts_of_fit
            from prerank.estimators.model_folder import REPORT, check_model_folder
            from prerank.estimators.model_page import fit_page
            from prerank.files import new_folder
            from prerank.files.obstacles import UnfitTableError
            from prerank.files.user_tables import read_training_table
            from prerank.report.html import write_page

        check = partial(check_model_folder, replace=force)
        check(out)
        try:
            frame = read_training_table(
                data,
                named_by(targets, "--targets") or (),
                inputs=named_by(inputs, "--inputs"),
                ignore=named_by(ignore, "--ignore") or (),
                drop_missing=drop_missing,
                impute=impute,
                dates=dates,
                split_by=split_by,
                fewest=_FEWEST_ROWS,
            )
        except UnfitTableError as error:
            refuse_table(context, error)
        remarks = _remarks(frame, split_by)
        kept, test = frame.parts(held_out, seed)
        time = None if frame.time is None else frame.time.to_numpy()
        model = MixtureRegressor(
            components,
            method=method,
            members=members,
            preranks=preranks,
            strength=_number_or_auto(strength),
            budget=budget,
            discrete=_auto_or_off(discrete),
            bounds=_bounds(bounds or ()),
            impute=impute,
            dates=dates,
            max_epochs=max_epochs,
            device=device,
            random_state=seed,
        )
        for remark in remarks if not (quiet or as_json) else ():
            say(f"Note: {remark}.")
        parts = parts_of_fit(model, len(kept), frame.targets.shape[1], len(test))
        slowness = 1.0 if quiet else measured_slowness()
        with Course(parts, _PARTS, pace=slowness, shown=not quiet, lines=not as_json) as course:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what they say is printed below
                model.fit(
                    frame.inputs.iloc[kept],
                    frame.targets.iloc[kept],
                    time=None if time is None else time[kept],
                    on_progress=partial(_follow, course, parts["training"]),
                )
            course.enter("judging")
            x, y = (t.iloc[test].reset_index(drop=True) for t in (frame.inputs, frame.targets))
            about = {
                "rows": f"{len(test):,} held out ({held_out:.0%}), {len(kept):,} trained on",
                "held-out rows": "random" if split_by is None else f"the last ones by {split_by}",
                "rows left out": str(frame.loss) if frame.loss.rows else "0",
                "data": str(data),
                "seed": str(seed),
                "max epochs": str(max_epochs),
                "date": f"{date.today():%Y-%m-%d}",
            }
            title = f"Model of {data.name}"
            later = None if time is None else time[test]
            page, diagnosis = fit_page(model, x, y, title=title, settings=about, time=later)
            last = "" if split_by is None else f", the last ones by {split_by}"
            points = (
                f"Judged on {len(test):,} rows that were held out{last}; trained on {len(kept):,} "
                "others.",
                *((f"{frame.loss}.",) if frame.loss.rows else ()),
            )
            page = replace(page, points=(*points, *page.points))
            score = -model.score(x, y)
            course.enter("drawing")
            with new_folder(out, check) as folder:
                model.save(folder)
                write_page(page, folder / REPORT)
        if as_json:
            facts = {
                "strength": model.strength_,
                "energy_score": score,
                "n_train": len(kept),
                "method": method,
                "members": members,
                "head": _changes(model),
                "discrete": list(model.rounding_.words(model.target_names_)),
                "left_out": frame.loss.rows,
                "remarks": remarks,
                **({"bounds": model.bounds} if model.bounds else {}),
            }
            files = {"model": str(out), "report": str(out / REPORT)}
            print_json({**files, **facts, **as_record(diagnosis)})
        elif not quiet:
            say(
                f"Trained on {len(kept):,} rows, {len(test):,} held out{last}. "
                f"{_calibration(model)}.\n{_discrete(model)}{_within(model)}{_prepared(model)}"
                f"Energy score on held-out rows: {score:.4f} (in standard deviations of the "
                f"targets).\n{diagnosis.verdict()}\nModel: {out}; report: {out / REPORT}\n"
                f"Next: prerank predict {out} NEW.csv --out predictions.parquet"
            )


def _remarks(frame: "TrainingTable", split_by: str | None) -> list[str]:
    """What is to be said of a table before its model is trained."""
    remarks = [str(frame.loss)] if frame.loss.rows else []
    if frame.dated and split_by is None:
        remarks.append(
            f"the table is dated: with --split-by {shlex.quote(frame.dated[0])} the last rows are "
            "held out instead of random ones, as when the model is used later"
        )
    return remarks


def _follow(course: Course, seconds: float, progress: "Progress") -> None:
    """Show an epoch; the first training is expected to take so many seconds at a pace of 1."""
    course.enter(progress.part)
    count, note = progress.epoch, f"epoch {progress.epoch}"
    often = min(progress.max_epochs, _EPOCHS)
    if progress.part == "training":
        share = count / min(progress.max_epochs, max(often, count + 8))
        course.move(share, note, work=seconds * count / often if count >= _MEASURED else 0.0)
    elif progress.part == "penalty":
        course.move(0.0, note)  # a search has several trainings


def _calibration(model: "MixtureRegressor") -> str:
    """What was done, in a sentence without its full stop."""
    changes = _changes(model)
    if changes is not None:
        rows = f"Head, fitted to {model.head_rows_:,} rows: "
        return rows + "; ".join(changes)
    if model.selection_ is not None:
        return f"Penalty: {model.selection_.reason}"
    if model.method == "network":
        return f"Penalty: strength {model.strength_:g}"
    few = "; too few rows for a calibration head" if model.method == "head" else ""
    return f"Likelihood alone{few}"


def _discrete(model: "MixtureRegressor") -> str:
    """Which targets are taken as discrete, in a line; nothing where none is."""
    found = "; ".join(model.rounding_.words(model.target_names_))
    return f"Discrete targets, spread for training and rounded: {found}.\n" if found else ""


def _within(model: "MixtureRegressor") -> str:
    """The bounds that forecasts keep, in a line; nothing where there are none."""
    from prerank.estimators.bounds import bounds_in_words

    return f"Bounds: {bounds_in_words(model.bounds)}.\n" if model.bounds else ""


def _prepared(model: "MixtureRegressor") -> str:
    """What is done to dates and missing inputs, in lines; nothing where nothing is."""
    if model.encoder_ is None:
        return ""
    names = [str(name) for name in model.feature_names_in_]
    said = model.encoder_.words(names).items()
    return "".join(f"{_sentence(what)}: {words}.\n" for what, words in said)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _changes(model: "MixtureRegressor") -> list[str] | None:
    """What the head changes; None where there is none."""
    return None if model.head_ is None else model.head_.report().splitlines()


def _auto_or_off(discrete: str) -> str | bool:
    if discrete not in ("auto", "off"):
        raise typer.BadParameter(f"{discrete!r} is not auto or off", param_hint="--discrete")
    return discrete if discrete == "auto" else False


def _number_or_auto(strength: str) -> float | str:
    try:
        return strength if strength == "auto" else float(strength)
    except ValueError as error:
        raise typer.BadParameter(
            f"{strength!r} is neither a number nor auto", param_hint="--strength"
        ) from error


def _bounds(texts: Sequence[str]) -> dict[str, tuple[float | None, float | None]] | None:
    """Those of all targets, each named once."""
    found = list(map(_name_and_bounds, texts))
    twice = [name for name, count in Counter(name for name, _ in found).items() if count > 1]
    if twice:
        raise typer.BadParameter(
            f"{twice[0]!r} is named twice: write both bounds at once, such as humid=0:100",
            param_hint="--bounds",
        )
    return dict(found) or None


def _name_and_bounds(text: str) -> tuple[str, tuple[float | None, float | None]]:
    """The target and its bounds, from text such as `rain=0:`."""
    name, _, ends = text.rpartition("=")
    try:
        low, high = (float(end) if end.strip() else None for end in ends.split(":"))
    except ValueError:
        name = ""
    if not name:
        raise typer.BadParameter(
            f"{text!r} is not NAME=LOW:HIGH, such as humid=0:100 or rain=0:", param_hint="--bounds"
        )
    return name, (low, high)
