"""`prerank predict`: what a saved model says of new rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from prerank import defaults
from prerank.cli.messages import Screen, loading, one_line_errors, print_json, say
from prerank.cli.options import AsJson, Quiet
from prerank.errors import InputError
from prerank.files.visible_text import formula_safe

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from prerank.estimators import MixtureRegressor

__all__ = ["predict"]

_CHUNK_ROWS = 5000
_MOST_SAMPLES = 1_000_000
_NAMED_TEXTS = 5
_GAPS = "missing or infinite values"


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `prerank fit` wrote.")],
    data: Annotated[Path, typer.Argument(help="CSV, ARFF or Parquet file with the inputs.")],
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="File to write, .parquet or .csv: one row per row.")
    ],
    quantiles: Annotated[
        str, typer.Option(help="Levels of the quantiles, with commas between.")
    ] = ",".join(map(str, defaults.QUANTILES)),
    samples: Annotated[
        int,
        typer.Option(
            min=0,
            max=_MOST_SAMPLES,
            help="Joint samples per row, in a file of their own by OUT, of the same kind.",
        ),
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed for the samples.")
    ] = defaults.COMMAND_SEED,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write means and quantiles of every target, and samples of all together on request.

    OUT has a row for each row of DATA, in order, without numbers where inputs are missing. Columns
    of DATA that the model does not know are ignored; those that it misses are named.
    """
    with one_line_errors():
        with loading():
            import pandas as pd

            from prerank.estimators import load_model
            from prerank.files import check_file, write_atomically, write_samples, writing

        levels = _levels(quantiles)
        suffix = out.suffix.lower()
        if suffix not in (".parquet", ".csv"):
            raise InputError(f"{out}: the file to write must end in .parquet or .csv")
        if samples == 1:
            raise InputError("--samples must be 0 or at least 2")
        check_file(out, data)
        beside = out.with_name(f"{out.stem}.samples{suffix}")
        if samples:
            check_file(beside, data)
        fitted = load_model(model)
        cases = _read(fitted, model, data)
        table = _summary(fitted, cases.usable, levels, quiet)
        remarks = [*cases.remarks, *_beyond(fitted, table)]
        table = table.set_axis(cases.rows).reindex(range(cases.size))
        table.insert(0, "row", range(cases.size))
        drawn = None
        if samples:
            drawn = fitted.sample(cases.usable, samples, random_state=seed)
            drawn = drawn.reshape(samples, len(cases.rows), -1)

        def write(file: Path) -> None:
            if suffix == ".csv":
                formula_safe(table).to_csv(file, index=False)
            else:
                table.to_parquet(file, index=False)
            if drawn is not None:  # before the table gets its name: both are there, or none
                targets = list(fitted.target_names_)
                if suffix == ".csv":
                    targets = [str(name) for name in formula_safe(pd.DataFrame(columns=targets))]
                write_samples(beside, drawn, targets, {"row": cases.rows})

        with writing(out):
            write_atomically(out, write)
        files = {"predictions": str(out)} | ({"samples": str(beside)} if samples else {})
        if as_json:
            about = {
                "n": len(table),
                "not_predicted": cases.size - len(cases.rows),
                "columns": list(table.columns),
                "remarks": remarks,
            }
            print_json({**about, **files})
        elif not quiet:
            for remark in remarks:
                say(f"Note: {remark}.")
            say(f"{len(table):,} rows: {out}")
            if samples:
                say(
                    f"{samples} samples of each: {beside}\nOnce the truth is known: prerank "
                    f"diagnose --samples {beside} --observations OBSERVED.csv"
                )


class _Cases(NamedTuple):
    """Rows of a file: how many, those that can be predicted, and what is to be said of them."""

    size: int
    rows: "npt.NDArray[np.int64]"
    usable: "pd.DataFrame"
    remarks: list[str]


def _read(fitted: "MixtureRegressor", model: Path, data: Path) -> _Cases:
    """The inputs of a model; rows that lack one are left out, unless the model fills it in."""
    import numpy as np

    from prerank.files.encoding import TableEncoder
    from prerank.files.obstacles import missing_words
    from prerank.files.user_tables import read_inputs

    names = [str(name) for name in getattr(fitted, "feature_names_in_", ())]
    if not names:
        raise InputError(f"{model} was fitted to columns without names: use it from Python")
    encoder = fitted.encoder_ or TableEncoder((None,) * len(names))
    known = dict(zip(names, encoder.levels, strict=True))
    dated = [names[j] for j in encoder.dates]
    numbers = [name for name in names if known[name] is None and name not in dated]
    x = read_inputs(data, names, numbers, dated)
    needed = encoder.unfilled(x)
    rows = np.flatnonzero(needed.notna().all(axis=1))
    gaps = missing_words(needed, _GAPS)
    if not len(rows):
        raise InputError(f"{data}: no row can be predicted: {gaps}")
    usable = x.iloc[rows].reset_index(drop=True)
    remarks = list(_unknown(known, usable))
    if len(rows) < len(x):
        count = f"{len(x) - len(rows):,} of {len(x):,} rows"
        remarks.append(f"{count} cannot be predicted and have no numbers: {gaps}")
    filled = missing_words(x.drop(columns=list(needed)), _GAPS)
    if filled:
        remarks.append(f"imputed as in training: {filled}")
    return _Cases(len(x), rows, usable, remarks)


def _unknown(known: "dict[str, tuple[str, ...] | None]", x: "pd.DataFrame") -> Iterator[str]:
    """Texts that the model was not fitted to, column by column."""
    for name, levels in known.items():
        if levels is None:
            continue
        texts = x[name].map(str)
        counts = texts[~texts.isin(levels)].value_counts()
        if len(counts):
            named = [f"{value!r} ({count:,})" for value, count in counts[:_NAMED_TEXTS].items()]
            more = f" and {len(counts) - len(named)} more" if len(counts) > len(named) else ""
            yield (
                f"column {name!r} has values in {counts.sum():,} rows that the model was not "
                f"fitted to: {', '.join(named)}{more}; they count as none of those it knows"
            )


def _beyond(model: "MixtureRegressor", table: "pd.DataFrame") -> Iterator[str]:
    """Predictions outside the range of the training rows, target by target."""
    import torch

    units = model.y_scaler_
    low, high = (units.loc + units.scale * end for end in (units.low, units.high))
    seen = model.rounding_.snap(torch.stack([low.amin((0, 1)), high.amax((0, 1))])).tolist()
    width = len(table.columns) // model.n_outputs_
    for d, name in enumerate(model.target_names_):
        values = table.iloc[:, d * width : (d + 1) * width].to_numpy()
        least, most = (end[d] for end in seen)
        slack = 1e-6 * max(abs(least), abs(most))  # the ends may be rounded
        count = int(((values < least - slack) | (values > most + slack)).any(axis=1).sum())
        if count:
            yield (
                f"predictions of {name!r} go from {values.min():.6g} to {values.max():.6g}, beyond "
                f"what was seen in training ({least:.6g} to {most:.6g}) in {count:,} of "
                f"{len(values):,} rows"
            )


def _levels(text: str) -> list[float]:
    try:
        levels = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} are no numbers", param_hint="--quantiles") from error
    if not all(0 < level < 1 for level in levels) or len(set(levels)) < len(levels):
        raise typer.BadParameter(
            f"levels lie between 0 and 1, each once: {text!r}", param_hint="--quantiles"
        )
    return levels


def _summary(
    model: "MixtureRegressor", x: "pd.DataFrame", levels: list[float], quiet: bool
) -> "pd.DataFrame":
    """Columns `TARGET_mean`, `TARGET_q05`, ... for each target."""
    import pandas as pd
    from rich.progress import track

    starts = range(0, len(x), _CHUNK_ROWS)
    console = Screen(stderr=True)
    hidden = quiet or not console.is_terminal or len(starts) == 1
    parts = []
    for start in track(starts, "predicting", console=console, transient=True, disable=hidden):
        rows = x.iloc[start : start + _CHUNK_ROWS]
        mean = model.predict(rows).reshape(len(rows), -1)
        tables = model.predict_quantiles(rows, levels).reshape(len(levels), len(rows), -1)
        columns: dict[str, npt.NDArray[Any]] = {}
        for d, name in enumerate(model.target_names_):
            columns[f"{name}_mean"] = mean[:, d]
            for q, level in enumerate(levels):
                columns[f"{name}_q{_percent(level)}"] = tables[q, :, d]
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _percent(level: float) -> str:
    """05 for .05, 97.5 for .975."""
    whole, dot, rest = f"{100 * level:.10g}".partition(".")
    return f"{whole:0>2}{dot}{rest}"
