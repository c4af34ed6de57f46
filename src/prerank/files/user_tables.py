"""Inputs and targets of a user's own file as data frames, with every obstacle named."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from prerank.errors import InputError
from prerank.files.column_files import ROW_NUMBERS, read_frame
from prerank.files.columns import family, refuse_constant
from prerank.files.frames import Frame, did_you_mean, listed, naming
from prerank.inputs import repeated

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Names",
    "TrainingTable",
    "check_roles",
    "pick_names",
    "read_inputs",
    "read_training_table",
]

Names = Sequence[str] | Callable[[Collection[str]], Sequence[str]]
"""Names of columns, or a function that gives them once those of the file are known."""

_NEEDED = {
    "targets": "name at least one target column",
    "inputs": "there is no input to learn from: name at least one column that is not a target",
}
_SHOWN_NAMES = 12
_LARGEST = 1e150  # that can be squared and summed
_NO_DATES = "leave it out (--ignore {!r}), or put numbers in its place, such as the day of the year"
_FEW_TEXTS, _MANY_TEXTS = 20, 1000


@dataclass(frozen=True)
class TrainingTable:
    """A file to learn from.

    Attributes:
        inputs: `(N, L)`: numbers, truth values and text.
        targets: `(N, D)`: numbers.
        dropped: rows that were left out because of missing values.
    """

    inputs: "pd.DataFrame"
    targets: "pd.DataFrame"
    dropped: int


def read_training_table(
    path: str | os.PathLike[str],
    targets: Names,
    *,
    inputs: Names | None = None,
    ignore: Names = (),
    drop_missing: bool = False,
) -> TrainingTable:
    r"""Read inputs and targets from a CSV, ARFF or Parquet file.

    Args:
        path: of the file; its suffix determines the format.
        targets: names of the target columns, in the order they shall have.
        inputs: names of the input columns; all others by default, but for an index without a name
            that pandas wrote along.
        ignore: columns that are neither.
        drop_missing: leave out rows with missing values, instead of refusing them.

    Raises:
        InputError: the message begins with the path, names the column and says what to do.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "rivers.csv")
        ...     _ = file.write_text("bed,depth,flow\nmud,1.5,3\nsand,2.5,\nmud,1.0,2\n")
        ...     table = read_training_table(file, ["flow"], drop_missing=True)
        >>> list(table.inputs), len(table.targets), table.dropped
        (['bed', 'depth'], 2, 1)
    """
    source = read_frame(path)
    goals, ignored = (pick_names(names, source.columns) for names in (targets, ignore))
    if inputs is None:
        others, left = {*goals, *ignored}, ROW_NUMBERS
        chosen = [n for n in source.columns if n not in others and not left.fullmatch(n)]
    else:
        chosen = pick_names(inputs, source.columns)
    with naming(source.path):
        roles = {"targets": goals, "ignored columns": ignored, "inputs": chosen}
        check_roles(source.columns, roles)
        table = _pandas(source, [*chosen, *goals], _NO_DATES)
        for name in goals:
            if family(source.columns[name].type) == "null":
                raise InputError(f"target {name!r} has no value in any row")
            table[name] = source.numbers(name, " for a target")
        if not drop_missing:
            advice = "remove those rows, fill them in, or let --drop-missing leave them out"
            _refuse_missing(table, advice)
        complete = table.dropna()
        if complete.empty:
            worst = table.isna().sum().idxmax()
            raise InputError(
                f"no row is without a missing value: leave out columns such as {worst!r}, which is "
                f"missing in {int(table[worst].isna().sum())} of {len(table)} rows (--ignore "
                f"{str(worst)!r})"
            )
        _refuse_infinite(complete, _LARGEST)
        for name in goals:
            refuse_constant(name, complete[name].to_numpy())
        _refuse_identifiers(complete[chosen])
    dropped = len(table) - len(complete)
    complete = complete.reset_index(drop=True)
    return TrainingTable(complete[chosen], complete[goals], dropped)


def read_inputs(
    path: str | os.PathLike[str], names: Sequence[str], numbers: Sequence[str] = ()
) -> "pd.DataFrame":
    """Read the named input columns; others are ignored, and missing values refused.

    Args:
        path: of a CSV, ARFF or Parquet file.
        names: of the columns, in the order they shall have.
        numbers: those among them that must be numbers or truth values; in a CSV file the others
            are text, even where every value looks like a number.
    """
    source = read_frame(path, text=set(names) - set(numbers))
    with naming(source.path):
        check_roles(source.columns, {"inputs": names})
        table = _pandas(source, list(names), "write it as in the table that the model is fitted to")
        _refuse_missing(table, "remove those rows, or fill them in")
        for name in numbers:
            if family(source.columns[name].type) not in ("number", "truth"):
                table[name] = source.numbers(name, " for an input")
        _refuse_infinite(table)
    return table


def pick_names(names: Names, known: Collection[str]) -> list[str]:
    """The names themselves, or those that a function gives for the known ones."""
    return list(names(known) if callable(names) else names)


def check_roles(known: Collection[str], roles: Mapping[str, Sequence[str]]) -> None:
    """Refuse names that are unknown, repeated or in two roles, and targets or inputs without any.

    Args:
        known: names of the columns.
        roles: names of the `targets`, the `inputs` and the `ignored columns`.

    Example:
        >>> check_roles(["flow", "depth"], {"targets": ["flow"], "inputs": ["dpth"]})
        Traceback (most recent call last):
        prerank.errors.InputError: no column 'dpth' for the inputs; did you mean depth?
    """
    for role, names in roles.items():
        again = repeated(names)
        if again:
            raise InputError(f"{role} name {', '.join(again)} more than once: name each once")
        missing = [name for name in names if name not in known]
        if missing:
            unknown = listed([repr(name) for name in missing])
            raise InputError(f"no column {unknown} for the {role}; {did_you_mean(missing, known)}")
        if not names and role in _NEEDED:
            raise InputError(_NEEDED[role])
    for (one, names), (other, others) in combinations(roles.items(), 2):
        both = sorted(set(names) & set(others))
        if both:
            raise InputError(f"{', '.join(both)}: named for the {one} and for the {other}")


def _pandas(source: Frame, names: list[str], instead: str) -> "pd.DataFrame":
    import pyarrow as pa

    for name in names:
        kind = source.columns[name].type
        if family(kind) in ("date", "time", "duration"):
            raise InputError(f"column {name!r} holds dates or times: {instead.format(name)}")
        if family(kind) in ("binary", "nested"):
            raise InputError(f"column {name!r} holds {kind}: only numbers and text can be used")
    table: pd.DataFrame = pa.table({name: source.columns[name] for name in names}).to_pandas()
    return table


def _refuse_missing(table: "pd.DataFrame", advice: str) -> None:
    missing = table.isna()
    columns = [name for name in table.columns if missing[name].any()]
    if not columns:
        return
    shown = [
        f"{name!r} ({int(missing[name].sum())}, first in row {int(missing[name].argmax()) + 1})"
        for name in columns[:_SHOWN_NAMES]
    ]
    more = f" and {len(columns) - _SHOWN_NAMES} more" if len(columns) > _SHOWN_NAMES else ""
    raise InputError(f"missing values in {', '.join(shown)}{more}: {advice}")


def _refuse_infinite(table: "pd.DataFrame", largest: float = np.inf) -> None:
    """Refuse infinite numbers and those beyond the largest; rows count as they do in the file."""
    for name in table.columns[[kind.kind == "f" for kind in table.dtypes]]:
        values = np.abs(table[name].to_numpy())
        wrong = np.isinf(values) | (values > largest)
        if wrong.any():
            raise InputError(
                f"column {name!r} is infinite or too large in {int(wrong.sum())} of {len(wrong)} "
                f"rows, first in row {int(table.index[wrong][0]) + 1}: remove or correct them"
            )


def _refuse_identifiers(inputs: "pd.DataFrame") -> None:
    """Refuse text columns of which hardly any value occurs twice: nothing can be learnt from it."""
    for name in inputs.columns[[kind.kind not in "biuf" for kind in inputs.dtypes]]:
        texts, rows = int(inputs[name].nunique()), len(inputs)
        if texts > min(max(rows / 2, _FEW_TEXTS), _MANY_TEXTS):
            raise InputError(
                f"column {name!r} has {texts} different texts in {rows} rows, as names of cases "
                f"have: leave it out (--ignore {str(name)!r}), or group its texts"
            )
