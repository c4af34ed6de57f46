"""Inputs and targets of a user's own file as data frames, with every obstacle named."""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from prerank.errors import InputError
from prerank.files.column_files import ROW_NUMBERS, read_frame
from prerank.files.columns import family
from prerank.files.frames import did_you_mean, find_name, listed, naming
from prerank.files.obstacles import Request, UnfitTableError, examine, remedy_for
from prerank.inputs import repeated

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Loss",
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


_MUCH = 0.1  # share of missing values from which on it is worth a thought to ignore a column


@dataclass(frozen=True)
class Loss:
    """Rows that were left out because of missing values.

    Attributes:
        rows: how many.
        of: rows of the file.
        worst: the input that is missing most often; None where no input is.
        missing: rows in which it is.
        without: rows that would be left if it were ignored.
    """

    rows: int
    of: int
    worst: str | None = None
    missing: int = 0
    without: int = 0

    def __str__(self) -> str:
        """One sentence without its full stop."""
        said = f"{self.rows:,} of {self.of:,} rows left out because of missing values"
        if self.worst is None:
            return said
        share = self.missing / self.of
        said += f"; {self.worst!r} costs most: it is missing in {self.missing:,} ({share:.0%})"
        if share < _MUCH:
            return said
        kept = f"{self.without:,} rows instead of {self.of - self.rows:,}"
        return f"{said}, and with --ignore {self.worst!r} {kept} are left"


@dataclass(frozen=True)
class TrainingTable:
    """A file to learn from.

    Attributes:
        inputs: `(N, L)`: numbers, truth values and text; dates and missing values on request.
        targets: `(N, D)`: numbers.
        loss: rows that were left out.
        time: `(N,)`, the column that divides the rows; None where none was named.
        dated: names of all columns of dates in the file.
    """

    inputs: "pd.DataFrame"
    targets: "pd.DataFrame"
    loss: Loss
    time: "pd.Series | None" = None
    dated: tuple[str, ...] = ()

    @property
    def dropped(self) -> int:
        """Rows that were left out because of missing values."""
        return self.loss.rows

    def parts(self, share: float, seed: int) -> tuple[list[int], list[int]]:
        """Rows to train on, and held-out ones: at random, or the last ones in time.

        Args:
            share: of the rows that are held out; rows of one time stay together.
            seed: of the random ones.
        """
        rows = len(self.targets)
        if self.time is None:
            from sklearn.model_selection import train_test_split

            kept, held = train_test_split(list(range(rows)), test_size=share, random_state=seed)
            return kept, held
        time = self.time.to_numpy()
        first = np.sort(time)[rows - max(1, math.ceil(share * rows))]
        last = time >= first
        if last.all():
            raise InputError(
                f"column {self.time.name!r} has one value in most rows: nothing would be left "
                "before the rows that are held out"
            )
        return np.flatnonzero(~last).tolist(), np.flatnonzero(last).tolist()


def read_training_table(
    path: str | os.PathLike[str],
    targets: Names,
    *,
    inputs: Names | None = None,
    ignore: Names = (),
    drop_missing: bool = False,
    impute: bool = False,
    dates: bool = False,
    split_by: str | None = None,
    fewest: int = 1,
) -> TrainingTable:
    r"""Read inputs and targets from a CSV, ARFF or Parquet file.

    Args:
        path: of the file; its suffix determines the format.
        targets: names of the target columns, in the order they shall have.
        inputs: names of the input columns; all others by default, but for an index without a name
            that pandas wrote along.
        ignore: columns that are neither.
        drop_missing: leave out rows with missing values, instead of refusing them.
        impute: leave missing inputs as they are, for a regressor that fills them in.
        dates: leave dates as they are, for a regressor that takes features of them.
        split_by: column that divides the rows. It is an input only if `inputs` names it, or if it
            holds dates and `dates` is true.
        fewest: rows that are needed.

    Raises:
        UnfitTableError: with all obstacles; it begins with the path, names the columns and says
            what to do.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "rivers.csv")
        ...     _ = file.write_text("bed,depth,flow\nmud,1.5,3\nsand,2.5,\nmud,1.0,2\n")
        ...     table = read_training_table(file, ["flow"], drop_missing=True)
        >>> list(table.inputs), len(table.targets), str(table.loss)
        (['bed', 'depth'], 2, '1 of 3 rows left out because of missing values')
    """
    source = read_frame(path)
    goals, ignored = (pick_names(names, source.columns) for names in (targets, ignore))
    dated = tuple(n for n, column in source.columns.items() if family(column.type) == "date")
    with naming(source.path):
        if split_by is not None:
            find_name(split_by, source.columns, " for --split-by")
        if inputs is None:
            set_aside = {split_by} - (set(dated) if dates else set())
            others = {*goals, *ignored, *set_aside}
            names = source.columns
            chosen = [n for n in names if n not in others and not ROW_NUMBERS.fullmatch(n)]
        else:
            chosen = pick_names(inputs, source.columns)
        check_roles(
            source.columns, {"targets": goals, "ignored columns": ignored, "inputs": chosen}
        )
    request = Request(tuple(goals), tuple(chosen), drop_missing, impute, dates, split_by)
    table, complete, found = examine(source, request, fewest=fewest)
    if found:
        remedy = remedy_for(source, request, found, fewest=fewest)
        raise UnfitTableError(source.path, found, request, remedy)
    complete = complete.reset_index(drop=True)
    time = None if split_by is None else complete[split_by]
    loss = _loss(table, request, len(complete))
    return TrainingTable(complete[chosen], complete[goals], loss, time, dated)


def _loss(table: "pd.DataFrame", request: Request, kept: int) -> Loss:
    rows = len(table)
    missing = table[[name for name in request.needed if name in request.inputs]].isna().sum()
    if kept == rows or not missing.any():
        return Loss(rows - kept, rows)
    worst = str(missing.idxmax())
    without = len(table[[name for name in request.needed if name != worst]].dropna())
    return Loss(rows - kept, rows, worst, int(missing.max()), without)


def read_inputs(
    path: str | os.PathLike[str],
    names: Sequence[str],
    numbers: Sequence[str] = (),
    dates: Sequence[str] = (),
) -> "pd.DataFrame":
    """Read the named input columns, with nothing for missing and infinite values.

    Args:
        path: of a CSV, ARFF or Parquet file.
        names: of the columns, in the order they shall have.
        numbers: those among them that must be numbers or truth values.
        dates: those among them that must be dates. In a CSV file the others are text, even where
            every value looks like a number.

    Returns:
        A table of all rows of the file. Further columns of the file are ignored.
    """
    import pyarrow as pa

    source = read_frame(path, text=set(names) - {*numbers, *dates})
    with naming(source.path):
        check_roles(source.columns, {"inputs": names})
        for name in names:
            kind = source.columns[name].type
            held = family(kind)
            if name in dates:
                if held not in ("date", "null"):
                    raise InputError(f"column {name!r} held dates in fit and now holds {held}")
            elif held in ("date", "time", "duration"):
                raise InputError(
                    f"column {name!r} holds dates or times: write it as in the table that the "
                    "model is fitted to"
                )
            elif held in ("binary", "nested"):
                raise InputError(f"column {name!r} holds {kind}: only numbers and text can be used")
        columns = pa.table({name: source.columns[name] for name in names})
        table: pd.DataFrame = columns.to_pandas(date_as_object=False)
        for name in numbers:
            if family(source.columns[name].type) not in ("number", "truth"):
                table[name] = source.numbers(name, " for an input")
        for name in dates:
            if family(source.columns[name].type) == "null":
                table[name] = table[name].astype("datetime64[us]")
        for name in table.columns[[kind.kind == "f" for kind in table.dtypes]]:
            table[name] = table[name].where(np.isfinite(table[name]))
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
