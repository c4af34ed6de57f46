"""How the published runs encode the columns of a file and split its rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.files.columns import Column, as_column, as_float32, as_numbers, refuse_constant
from prerank.files.dataset_tables import Table
from prerank.files.encoding import one_hot
from prerank.files.user_tables import check_roles
from prerank.inputs import as_count, repeated

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "PUBLISHED_SEEDS",
    "Encoded",
    "Inputs",
    "Split",
    "encode_inputs",
    "encode_table",
    "published_split",
]

PUBLISHED_SEEDS = (0, 42, 866, 12, 4)
"""Seeds of the published runs: one split and one training each."""

_SHARES = (0.4, 0.1, 0.3, 0.2)  # train, validation, calibration, test
_CALIBRATION_CAP = 2048
_MOST_CODES = 10  # whole numbers with at most so many values are a category
_MOST_LEVELS = 20  # of a category that stays
_FEWEST_NUMBERS = 10  # values of a numeric column that stays
_MOST_MISSING = 0.2
_FEWEST_ROWS = 10  # so that the published split has one to validate on
_ROW_NUMBER = re.compile(r"|__index_level_\d+__")  # as R and pandas write them


@dataclass(frozen=True)
class Inputs:
    """Encoded inputs.

    Attributes:
        x: `(n, L)`, the rows without a missing value.
        names: of the L columns; `column=level` for the levels of a text.
        complete: `(N,)`, which of the rows these are.
        removed: columns that the rule removes, with the reason.
    """

    x: npt.NDArray[np.float32]
    names: tuple[str, ...]
    complete: npt.NDArray[np.bool_]
    removed: dict[str, str]


@dataclass(frozen=True)
class Encoded:
    """A table, and what was left out on the way to it.

    Attributes:
        table: inputs and targets in float32, under their names.
        removed: input columns that were removed, with the reason.
        rows_without_target: rows left out because a target is missing.
        rows_without_input: rows left out, of the others, because an input is missing.
    """

    table: Table
    removed: dict[str, str]
    rows_without_target: int
    rows_without_input: int


def encode_inputs(columns: "pa.Table") -> Inputs:
    """Turn columns of numbers, truth values and text into numbers, as the published runs did.

    1. A column is *categorical* if it holds text or truth values, or whole numbers with at most
       10 distinct values, or anything with exactly 2; otherwise it is numeric.
    2. Removed are categorical columns with more than 20 distinct values, numeric ones with fewer
       than 10, and columns in which more than 20 % of the values are missing.
    3. Then every row with a missing value is removed.
    4. Text becomes one column of zeros and ones for each of its levels, in sorted order. All other
       columns stay numbers, categorical or not.

    Nothing is scaled or transformed, and rows that occur twice stay.

    Args:
        columns: of N rows, under different names.

    Raises:
        InputError: for a column of other things, for numbers that float32 cannot hold or that lose
            in it what they say, and for two inputs that would have the same name.

    Example:
        >>> import pyarrow as pa
        >>> bed, depth = ["mud", "sand"] * 10, [i / 2 for i in range(20)]
        >>> found = encode_inputs(
        ...     pa.table({"depth": depth, "bed": bed, "few": [0.1, 0.2, 0.3] * 6 + [0.1] * 2})
        ... )
        >>> found.names, found.x.shape
        (('depth', 'bed=mud', 'bed=sand'), (20, 3))
        >>> found.removed
        {'few': 'numeric with 3 distinct values, fewer than 10'}
    """
    all_columns = [as_column(name, columns[name]) for name in columns.column_names]
    removed = {column.name: reason for column in all_columns if (reason := _objection(column))}
    kept = [column for column in all_columns if column.name not in removed]
    complete = np.ones(columns.num_rows, dtype=bool)
    for column in kept:
        complete &= ~column.missing
    parts: list[npt.NDArray[np.float32]] = []
    names: list[str] = []
    origins: list[str] = []
    for column in kept:
        if column.kind == "text":
            values = column.values[complete]
            levels = sorted(set(values))
            parts.append(one_hot(values, levels).astype(np.float32))
            names += [f"{column.name}={level}" for level in levels]
            origins += [f"level {level!r} of column {column.name!r}" for level in levels]
        else:
            parts.append(as_float32(column, complete, faithful=True)[:, None])
            names.append(column.name)
            origins.append(f"column {column.name!r}")
    again = repeated(names)
    if again:
        same = [origin for name, origin in zip(names, origins, strict=True) if name == again[0]]
        raise InputError(
            f"{len(same)} inputs would be named {again[0]!r}: {' and '.join(same)}; rename a column"
        )
    empty = np.empty((int(complete.sum()), 0), dtype=np.float32)
    return Inputs(np.concatenate([empty, *parts], axis=1), tuple(names), complete, removed)


def encode_table(
    columns: "pa.Table", name: str, targets: Sequence[str], inputs: Sequence[str] | None = None
) -> Encoded:
    """Part the columns of a file into inputs and targets, and encode them.

    Rows with a missing target are removed before the rule of `encode_inputs` is applied to the
    inputs. Targets stay as they are: numbers, or truth values as 0 and 1.

    Args:
        columns: of the file, under different names.
        name: of the table.
        targets: names of the target columns, in the order they shall have.
        inputs: names of the input columns; by default all others, but for row numbers that R or
            pandas wrote beside the data.

    Raises:
        InputError: for a column that is not there (the message names similar ones), for text or
            nothing at all in a target, for one that has the same value in every row or loses in
            float32 what it says, when nothing is left to learn from, or fewer than 10 rows.

    Example:
        >>> import pyarrow as pa
        >>> rows = [float(i) for i in range(12)]
        >>> found = encode_table(pa.table({"a": rows, "b": [None, *rows[1:]]}), "tiny", ["b"])
        >>> found.table.y.shape, found.rows_without_target
        ((11, 1), 1)
    """
    import pyarrow as pa

    targets = [targets] if isinstance(targets, str) else list(targets)
    removed: dict[str, str] = {}
    if inputs is None:
        others = [column for column in columns.column_names if column not in targets]
        removed = {c: "a row number" for c in others if _ROW_NUMBER.fullmatch(c)}
        chosen = [column for column in others if column not in removed]
    else:
        chosen = list(inputs)
    check_roles(columns.column_names, {"targets": targets, "inputs": chosen})
    _refuse_empty(columns, targets if inputs is None else [*targets, *chosen])
    outputs = [as_numbers(target, columns[target]) for target in targets]
    answered = ~np.any([output.missing for output in outputs], axis=0)
    found = encode_inputs(columns.select(chosen).filter(pa.array(answered)))
    removed |= found.removed
    rows = np.flatnonzero(answered)[found.complete]
    without_target = int((~answered).sum())
    without_input = int((~found.complete).sum())
    if len(rows) < _FEWEST_ROWS:
        raise InputError(
            f"{len(rows)} rows are left of {columns.num_rows}, and at least {_FEWEST_ROWS} are "
            f"needed ({without_target} lack a target, {without_input} others an input)"
        )
    if not found.names:
        column, reason = next(iter(removed.items()))
        raise InputError(
            f"no input is left of {len(removed)}: the rule removes them all, {column!r} since it "
            f"is {reason}"
        )
    used = np.zeros(columns.num_rows, dtype=bool)
    used[rows] = True
    y = np.stack([as_float32(output, used, faithful=True) for output in outputs], axis=1)
    for target, values in zip(targets, y.T, strict=True):
        refuse_constant(target, values)
    table = Table(name, found.x, y, found.names, tuple(targets))
    return Encoded(table, removed, without_target, without_input)


@dataclass(frozen=True)
class Split:
    """Row numbers of the four parts, each a vector of int64."""

    train: Tensor
    validation: Tensor
    calibration: Tensor
    test: Tensor


def published_split(n: int, seed: int) -> Split:
    """Split n rows as the published runs did.

    Shares of 40, 10, 30 and 20 % for training, validation, calibration and test. The calibration
    part is capped at 2048 rows and the surplus shared equally among the other three; sizes are
    truncated and what remains goes to the test part. Rows are permuted by torch's generator.

    Example:
        >>> split = published_split(10_000, seed=0)
        >>> len(split.train), len(split.validation), len(split.calibration), len(split.test)
        (4317, 1317, 2048, 2318)
    """
    as_count(n, "n", minimum=1)
    surplus = max(0.0, _SHARES[2] - _CALIBRATION_CAP / n) / 3
    train, validation = (int((share + surplus) * n) for share in _SHARES[:2])
    calibration = min(int(_SHARES[2] * n), _CALIBRATION_CAP)
    test = n - train - validation - calibration
    if min(train, validation, test) < 1:
        raise InputError(f"n = {n} rows are too few to split into four parts")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return Split(*order.split([train, validation, calibration, test]))


def _objection(column: Column) -> str:
    """Why the rule removes a column, or nothing."""
    share = column.missing.mean() if len(column.missing) else 0.0
    if share > _MOST_MISSING:
        return f"{share:.0%} missing, more than {_MOST_MISSING:.0%}"
    distinct = column.distinct
    categorical = (
        column.kind in ("text", "truth")
        or (column.kind == "whole" and distinct <= _MOST_CODES)
        or distinct == 2
    )
    if categorical and distinct > _MOST_LEVELS:
        return f"categorical with {distinct} distinct values, more than {_MOST_LEVELS}"
    if not categorical and distinct < _FEWEST_NUMBERS:
        return f"numeric with {distinct} distinct values, fewer than {_FEWEST_NUMBERS}"
    return ""


def _refuse_empty(columns: "pa.Table", names: Sequence[str]) -> None:
    for name in names:
        missing = columns[name].is_null(nan_is_null=True).to_numpy()
        if len(missing) and missing.all():
            raise InputError(f"all values of column {name!r} are missing")
