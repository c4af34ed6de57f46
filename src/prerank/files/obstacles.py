"""Problems that prevent fitting to a table, and the options that solve them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from prerank.errors import InputError
from prerank.files.columns import family, refuse_constant
from prerank.files.frames import Frame

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Obstacle",
    "Remedy",
    "Request",
    "UnfitTableError",
    "examine",
    "missing_words",
    "refuse_infinite",
    "remedy_for",
]

_SHOWN_NAMES = 12
_LARGEST = 1e150  # that can be squared and summed
_FEW_TEXTS, _MANY_TEXTS = 20, 1000
_MOSTLY = 0.5  # share of missing values from which on a column is rather left out than filled in
_FEW_LOST = 0.1  # share of the rows that may rather be left out than have values filled in
_FEWEST_TIMES = 20  # by which rows are rather divided


@dataclass(frozen=True)
class Request:
    """What is to be learnt from a file, and how: names of columns, and options.

    Attributes:
        targets: columns to predict.
        inputs: columns to predict from.
        drop_missing: leave out rows with missing values.
        impute: fill in missing inputs.
        dates: take features of dates.
        split_by: column by which rows are divided.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...]
    drop_missing: bool = False
    impute: bool = False
    dates: bool = False
    split_by: str | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that are used."""
        last = () if self.split_by is None else (self.split_by,)
        return list(dict.fromkeys((*self.inputs, *self.targets, *last)))

    @property
    def needed(self) -> list[str]:
        """Columns without which a row cannot be used."""
        filled = set(self.inputs) - {self.split_by} if self.impute else set()
        return [name for name in self.columns if name not in filled]


@dataclass(frozen=True)
class Remedy:
    """Options that let a file be learnt from: those of `Request`, and columns to ignore."""

    ignore: tuple[str, ...] = ()
    drop_missing: bool = False
    impute: bool = False
    dates: bool = False
    split_by: str | None = None

    def applied(self, request: Request) -> Request:
        """A request with these options added."""
        return replace(
            request,
            inputs=tuple(name for name in request.inputs if name not in self.ignore),
            drop_missing=request.drop_missing or self.drop_missing,
            impute=request.impute or self.impute,
            dates=request.dates or self.dates,
            split_by=request.split_by or self.split_by,
        )


@dataclass(frozen=True)
class Obstacle:
    """One problem that prevents fitting to a table.

    Attributes:
        words: what it is and what to do.
        cure: to ignore its column, to take features of dates, to do something about missing values,
            or nothing that an option could do.
        name: of the column, where there is one.
    """

    words: str
    cure: Literal["ignore", "dates", "missing", "none"]
    name: str = ""


class UnfitTableError(InputError):
    """A model cannot be fitted to a table as it is.

    Attributes:
        path: of the file.
        problems: all of them, one sentence each.
        remedy: options with which it can; None where none help.
        left: the inputs that the remedy leaves.
    """

    def __init__(
        self, path: Path, found: Sequence[Obstacle], request: Request, remedy: Remedy | None
    ) -> None:
        self.path, self.remedy = path, remedy
        self.problems = tuple(obstacle.words for obstacle in found)
        self.left = () if remedy is None else remedy.applied(request).inputs
        super().__init__(f"{path}: {'; '.join(self.problems)}")


def examine(
    source: Frame, request: Request, *, fewest: int = 1
) -> tuple["pd.DataFrame", "pd.DataFrame", list[Obstacle]]:
    """The columns of a request, the rows of them that are used, and all obstacles.

    Args:
        source: the columns of the file.
        request: what is to be learnt.
        fewest: number of rows that are needed.
    """
    found = list(_of_kinds(source, request))
    refused = {obstacle.name for obstacle in found}
    usable = [name for name in request.columns if name not in refused]
    table = _pandas(source, usable)
    for name in request.targets:
        if name not in refused:
            try:
                table[name] = source.numbers(name, " for a target")
            except InputError as error:
                words = str(error).removeprefix(f"{source.path}: ")
                found.append(Obstacle(words, "none", name))
                table = table.drop(columns=name)
    needed = [name for name in request.needed if name in table]
    complete = table.dropna(subset=needed) if request.drop_missing else table
    found += _of_gaps(table, complete, needed, request, fewest)
    for name in complete.columns:
        found += _of_values(complete[name], request)
    return table, complete, found


def remedy_for(
    source: Frame, request: Request, found: list[Obstacle], *, fewest: int = 1
) -> Remedy | None:
    """Options that remove all obstacles, as a second look at the file has shown."""
    if any(obstacle.cure == "none" for obstacle in found):
        return None
    remedy = Remedy(tuple(o.name for o in found if o.cure == "ignore"))
    dated = [o.name for o in found if o.cure == "dates"]
    if dated:
        several = len(np.unique(source.codes(dated[0]))) >= _FEWEST_TIMES
        last = dated[0] if len(dated) == 1 and several and request.split_by is None else None
        remedy = replace(remedy, dates=True, split_by=last)
    if request.impute:
        remedy = replace(remedy, drop_missing=any(o.cure == "missing" for o in found))
    else:
        remedy = _without_gaps(source, remedy.applied(request), remedy, fewest)
    wanted = remedy.applied(request)
    if not wanted.inputs or examine(source, wanted, fewest=fewest)[2]:
        return None
    return remedy


def missing_words(table: "pd.DataFrame", what: str = "missing values") -> str:
    """Columns with missing values, how many and where the first is; nothing where there is none."""
    missing = table.isna()
    columns = [name for name in table.columns if missing[name].any()]
    if not columns:
        return ""
    shown = [
        f"{name!r} ({int(missing[name].sum())}, first in row {int(missing[name].argmax()) + 1})"
        for name in columns[:_SHOWN_NAMES]
    ]
    more = f" and {len(columns) - _SHOWN_NAMES} more" if len(columns) > _SHOWN_NAMES else ""
    return f"{what} in {', '.join(shown)}{more}"


def refuse_infinite(column: "pd.Series", largest: float = _LARGEST) -> None:
    """Refuse infinite numbers and those beyond the largest; rows count as they do in the file."""
    if column.dtype.kind != "f":
        return
    values = np.abs(column.to_numpy())
    wrong = np.isinf(values) | (values > largest)
    if wrong.any():
        raise InputError(
            f"column {column.name!r} is infinite or too large in {int(wrong.sum())} of "
            f"{len(wrong)} rows, first in row {int(column.index[wrong][0]) + 1}: remove or correct "
            "them"
        )


def _of_kinds(source: Frame, request: Request) -> Iterator[Obstacle]:
    """Columns whose type is of no use."""
    for name in request.columns:
        kind = source.columns[name].type
        held, out = family(kind), f"leave it out (--ignore {name!r})"
        if name in request.targets:
            if held == "null":
                yield Obstacle(f"target {name!r} has no value in any row", "none", name)
            elif held in ("date", "time", "duration"):
                words = f"target {name!r} holds dates or times: only numbers can be predicted"
                yield Obstacle(words, "none", name)
        elif name == request.split_by and held not in ("number", "date", "time", "duration"):
            words = f"column {name!r} for --split-by holds {held}: numbers or dates are needed"
            yield Obstacle(words, "none", name)
        elif name not in request.inputs:
            continue
        elif held == "date" and not request.dates:
            words = f"column {name!r} holds dates or times: {out}, or make inputs of it (--dates)"
            yield Obstacle(words, "dates", name)
        elif held in ("time", "duration"):
            words = (
                f"column {name!r} holds dates or times: {out}, or put numbers in its place, such "
                "as the hour of the day"
            )
            yield Obstacle(words, "ignore", name)
        elif held in ("binary", "nested"):
            words = f"column {name!r} holds {kind}: only numbers and text can be used; {out}"
            yield Obstacle(words, "ignore", name)
        elif held == "null" and request.impute:
            yield Obstacle(f"column {name!r} has no value in any row: {out}", "ignore", name)


def _pandas(source: Frame, names: list[str]) -> "pd.DataFrame":
    import pyarrow as pa

    columns = pa.table({name: source.columns[name] for name in names})
    table: pd.DataFrame = columns.to_pandas(date_as_object=False)
    return table


def _of_gaps(
    table: "pd.DataFrame",
    complete: "pd.DataFrame",
    needed: list[str],
    request: Request,
    fewest: int,
) -> Iterator[Obstacle]:
    """Missing values, and too few rows."""
    rows, left = len(table), len(complete)
    words = missing_words(table[needed])
    if words and not request.drop_missing:
        filled = any(table[name].isna().any() for name in needed if name in request.inputs)
        fill = ", fill them in (--impute)" if filled and not request.impute else ""
        advice = f"remove those rows{fill}, or leave them out (--drop-missing)"
        yield Obstacle(f"{words}: {advice}", "missing")
    if left >= max(fewest, 1):
        return
    if left == rows:
        words = f"{rows} rows are too few to train, select and judge: {fewest} at least"
        yield Obstacle(words, "none")
        return
    missing = table[needed].isna().sum()
    worst, most = str(missing.idxmax()), int(missing.max())
    few = f"{left} rows have no missing value, too few to train, select and judge"
    if not left:
        few = "no row is without a missing value"
    yield Obstacle(
        f"{few}: leave out columns such as {worst!r}, which is missing in {most} of {rows} rows "
        f"(--ignore {worst!r}), or fill them in (--impute)",
        "missing",
    )


def _of_values(column: "pd.Series", request: Request) -> Iterator[Obstacle]:
    """Values of one column that are of no use."""
    name, present = str(column.name), column.dropna()
    target = name in request.targets
    if name not in request.inputs and not target:
        return
    try:
        refuse_infinite(present)
        if target:
            refuse_constant(name, present.to_numpy())
    except InputError as error:
        yield Obstacle(str(error), "none" if target else "ignore", name)
    if target or present.dtype.kind in "biufM":
        return
    texts, rows = int(present.nunique()), len(present)
    if texts > min(max(rows / 2, _FEW_TEXTS), _MANY_TEXTS):
        words = (
            f"column {name!r} has {texts} different texts in {rows} rows, as names of cases have: "
            f"leave it out (--ignore {name!r}), or group its texts"
        )
        yield Obstacle(words, "ignore", name)


def _without_gaps(source: Frame, request: Request, remedy: Remedy, fewest: int) -> Remedy:
    """A remedy with what missing values need: columns out, rows out, or values filled in."""
    table = _pandas(source, request.columns)
    share = table.isna().mean()
    mostly = tuple(name for name in request.inputs if share[name] > _MOSTLY)
    if len(mostly) == len(request.inputs):  # something has to be left
        mostly = tuple(name for name in mostly if share[name] == 1)
    remedy = replace(remedy, ignore=(*remedy.ignore, *mostly))
    rest = table.drop(columns=list(mostly))
    kept = len(rest.dropna())
    gaps = bool(rest.isna().any(axis=None))
    if not gaps or kept >= max(fewest, (1 - _FEW_LOST) * len(table)):
        return replace(remedy, drop_missing=gaps)
    last = [] if request.split_by is None else [request.split_by]
    lost = bool(rest[[*request.targets, *last]].isna().any(axis=None))
    return replace(remedy, impute=True, drop_missing=lost)
