"""Inputs and targets of one's own file as data frames, with every obstacle named."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.column_files import ROW_NUMBERS, read_columns
from prerank.files.columns import as_numbers, refuse_constant
from prerank.inputs import repeated

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Frame", "Names", "pick_names", "read_frame", "read_inputs"]

Names = Sequence[str] | Callable[[Collection[str]], Sequence[str]]
"""Names of columns, or a function that gives them once those of the file are known."""

_SHOWN_NAMES = 12
_LARGEST = 1e150  # that can be squared and summed
_NO_DATES = "leave it out (--ignore {!r}), or put numbers in its place, such as the day of the year"
_FEW_TEXTS, _MANY_TEXTS = 20, 1000


@dataclass(frozen=True)
class Frame:
    """A file to learn from.

    Attributes:
        inputs: `(N, L)`: numbers, truth values and text.
        targets: `(N, D)`: numbers.
        dropped: rows that were left out because of missing values.
    """

    inputs: "pd.DataFrame"
    targets: "pd.DataFrame"
    dropped: int


def read_frame(
    path: str | os.PathLike[str],
    targets: Names,
    *,
    inputs: Names | None = None,
    ignore: Names = (),
    drop_missing: bool = False,
) -> Frame:
    r"""Read inputs and targets from a CSV, ARFF or Parquet file.

    Args:
        path: of the file; its suffix tells the format.
        targets: names of the target columns, in the order they shall have.
        inputs: names of the input columns; all others by default, but for an index without a name
            that pandas wrote along.
        ignore: columns that are neither.
        drop_missing: leave out rows with missing values, instead of refusing them.

    Raises:
        InputError: the message begins with the path, names the column and says what to do.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "rivers.csv")
        ...     _ = file.write_text("bed,depth,flow\nmud,1.5,3\nsand,2.5,\nmud,1.0,2\n")
        ...     frame = read_frame(file, ["flow"], drop_missing=True)
        >>> list(frame.inputs), len(frame.targets), frame.dropped
        (['bed', 'depth'], 2, 1)
    """
    file = Path(path)
    table = read_columns(file)
    known = table.column_names
    try:
        return _frame(
            table,
            pick_names(targets, known),
            None if inputs is None else pick_names(inputs, known),
            pick_names(ignore, known),
            drop_missing,
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


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
    file = Path(path)
    table = read_columns(file, text=set(names) - set(numbers))
    try:
        _check_known(table, names, "inputs")
        _check_rows(table)
        frame = _pandas(table, list(names), "write it as in the table that the model is fitted to")
        _refuse_missing(frame, "remove those rows, or fill them in")
        for name in numbers:
            if _is_text(table, name):
                frame[name] = _numbers(table, name, "input")
        _refuse_infinite(frame)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return frame


def pick_names(names: Names, known: Collection[str]) -> list[str]:
    """The names themselves, or those that a function gives for the known ones."""
    return list(names(known) if callable(names) else names)


def _frame(
    table: "pa.Table",
    targets: list[str],
    inputs: list[str] | None,
    ignore: list[str],
    drop_missing: bool,
) -> Frame:
    if not targets:
        raise InputError("name at least one target column")
    _check_known(table, targets, "targets")
    _check_known(table, ignore, "ignored columns")
    if inputs is None:
        others = [name for name in table.column_names if not ROW_NUMBERS.fullmatch(name)]
        inputs = [name for name in others if name not in {*targets, *ignore}]
    _check_known(table, inputs, "inputs")
    both = sorted(set(targets) & {*inputs, *ignore})
    if both:
        raise InputError(f"{', '.join(both)}: a target cannot be an input, or ignored, as well")
    both = sorted(set(inputs) & set(ignore))
    if both:
        raise InputError(f"{', '.join(both)}: an input cannot be ignored as well")
    if not inputs:
        raise InputError("every column is a target or ignored: there is no input to learn from")
    _check_rows(table)
    names = [*inputs, *targets]
    frame = _pandas(table, names, _NO_DATES)
    for name in targets:
        frame[name] = _numbers(table, name, "target")
    advice = "remove those rows, fill them in, or let --drop-missing leave them out"
    dropped = 0
    if drop_missing:
        complete = frame.notna().all(axis=1)
        dropped = int((~complete).sum())
        if dropped == len(frame):
            worst = frame.isna().sum().idxmax()
            raise InputError(
                f"no row is without a missing value: leave out columns such as {worst!r}, which is "
                f"missing in {int(frame[worst].isna().sum())} of {len(frame)} rows (--ignore "
                f"{str(worst)!r})"
            )
        frame = frame[complete]
    else:
        _refuse_missing(frame, advice)
    _refuse_infinite(frame, _LARGEST)
    for name in targets:
        refuse_constant(name, frame[name].to_numpy())
    _refuse_identifiers(frame[inputs])
    frame = frame.reset_index(drop=True)
    return Frame(frame[inputs], frame[targets], dropped)


def _pandas(table: "pa.Table", names: list[str], instead: str) -> "pd.DataFrame":
    import pyarrow as pa

    for name in names:
        kind = table.schema.field(name).type
        if pa.types.is_temporal(kind):
            raise InputError(f"column {name!r} holds dates or times: {instead.format(name)}")
        if pa.types.is_nested(kind) or _is_binary(kind):
            raise InputError(f"column {name!r} holds {kind}: only numbers and text can be used")
    # What pandas noted about an index in the file would take that column away.
    frame: pd.DataFrame = table.select(names).to_pandas(ignore_metadata=True)
    return frame


def _is_binary(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def _check_rows(table: "pa.Table") -> None:
    if table.num_rows == 0:
        raise InputError("there are names of columns, and no row below them")


def _check_known(table: "pa.Table", names: Sequence[str], what: str) -> None:
    again = repeated(names)
    if again:
        raise InputError(f"{what} name {', '.join(again)} more than once: name each once")
    missing = [name for name in names if name not in table.column_names]
    if not missing:
        return
    close = [get_close_matches(name, table.column_names, n=1) for name in missing]
    hints = [f"{found[0]!r}" for found in close if found]
    known = ", ".join(table.column_names[:_SHOWN_NAMES])
    more = ", ..." if len(table.column_names) > _SHOWN_NAMES else ""
    meant = f" Did you mean {', '.join(hints)}?" if hints else ""
    raise InputError(
        f"there is no column {', '.join(map(repr, missing))} for the {what}.{meant} "
        f"The columns are {known}{more}"
    )


def _is_text(table: "pa.Table", name: str) -> bool:
    import pyarrow as pa

    kind = table.schema.field(name).type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return not (numeric or pa.types.is_boolean(kind))


def _numbers(table: "pa.Table", name: str, what: str) -> npt.NDArray[np.float64]:
    """The numbers of a column, NaN where there is none; text will do where it reads as numbers."""
    import pandas as pd
    import pyarrow as pa

    if pa.types.is_null(table.schema.field(name).type):
        raise InputError(f"{what} {name!r} has no value in any row")
    try:
        return as_numbers(name, table.column(name)).values
    except InputError as error:
        values = pd.Series(table.column(name).to_pylist(), dtype=object)
        text = pd.to_numeric(values, errors="coerce").isna() & values.notna()
        raise InputError(
            f"{error} ({int(text.sum())} of {len(text)} rows, first in row "
            f"{int(text.to_numpy().argmax()) + 1}): {what}s must be numbers"
        ) from error


def _refuse_missing(frame: "pd.DataFrame", advice: str) -> None:
    missing = frame.isna()
    columns = [name for name in frame.columns if missing[name].any()]
    if not columns:
        return
    told = [
        f"{name!r} ({int(missing[name].sum())}, first in row {int(missing[name].argmax()) + 1})"
        for name in columns[:_SHOWN_NAMES]
    ]
    more = f" and {len(columns) - _SHOWN_NAMES} more" if len(columns) > _SHOWN_NAMES else ""
    raise InputError(f"missing values in {', '.join(told)}{more}: {advice}")


def _refuse_infinite(frame: "pd.DataFrame", largest: float = np.inf) -> None:
    """Refuse infinite numbers and those beyond the largest; rows count as they do in the file."""
    for name in [name for name in frame.columns if frame[name].dtype.kind == "f"]:
        values = np.abs(frame[name].to_numpy())
        wrong = np.isinf(values) | (values > largest)
        if wrong.any():
            raise InputError(
                f"column {name!r} is infinite or too large in {int(wrong.sum())} of {len(wrong)} "
                f"rows, first in row {int(frame.index[wrong][0]) + 1}: remove or correct them"
            )


def _refuse_identifiers(inputs: "pd.DataFrame") -> None:
    """Refuse texts of which hardly any comes twice: what they say of a row helps with no other."""
    for name in [name for name in inputs if inputs[name].dtype.kind not in "biuf"]:
        texts, rows = int(inputs[name].nunique()), len(inputs)
        if texts > min(max(rows / 2, _FEW_TEXTS), _MANY_TEXTS):
            raise InputError(
                f"column {name!r} has {texts} different texts in {rows} rows, as names of cases "
                f"have: leave it out (--ignore {str(name)!r}), or group its texts"
            )
