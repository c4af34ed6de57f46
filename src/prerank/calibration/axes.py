"""Inputs cut into bins: the places among which a search for regions looks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.files.visible_text import visible_name
from prerank.inputs import as_array, as_names, column_labels, refuse_collections, repeated

__all__ = ["Axis", "Condition", "InputColumn", "input_columns"]

_OTHERS, _MISSING = "other levels", "missing"
_MOST_LEVELS = 40


@dataclass(frozen=True)
class Condition:
    """Which values of one input belong to a region.

    Attributes:
        name: of the input.
        low: lower bound, or None.
        high: upper bound, or None; without both, all numbers belong to it.
        level: the text, or that the value is missing; None for numbers.

    Example:
        >>> str(Condition("humidity", low=80.0)), str(Condition("station", level="Bonn"))
        ('humidity above 80', 'station is Bonn')
        >>> str(Condition("month", 6.0, 8.0)), str(Condition("rain", level="missing"))
        ('month between 6 and 8', 'rain is missing')
        >>> str(Condition("rain"))
        'rain is not missing'
    """

    name: str
    low: float | None = None
    high: float | None = None
    level: str | None = None

    @property
    def is_rest(self) -> bool:
        """Whether it is that of the least frequent levels, taken together."""
        return self.level == _OTHERS

    def __str__(self) -> str:
        """In words."""
        name = visible_name(self.name)
        if self.level is not None:
            verb = "is one of the" if self.is_rest else "is"
            return f"{name} {verb} {visible_name(self.level)}"
        if self.low is None and self.high is None:
            return f"{name} is not missing"
        if self.low is None:
            return f"{name} below {self.high:.4g}"
        if self.high is None:
            return f"{name} above {self.low:.4g}"
        if self.low == self.high:
            return f"{name} = {self.low:.4g}"
        return f"{name} between {self.low:.4g} and {self.high:.4g}"


@dataclass(frozen=True, eq=False)
class Axis:
    """One input, cut into bins.

    Attributes:
        column: the input.
        codes: bin of each row, `(N,)`.
        ranges: first bin and the bin after the last one of each range that may be a side of a
            region, `(R, 2)`; the first range is that of all bins.
        lows: least value in each bin of numbers.
        highs: largest value in each bin of numbers.
    """

    column: "InputColumn"
    codes: npt.NDArray[np.int64]
    ranges: npt.NDArray[np.int64]
    lows: npt.NDArray[np.float64]
    highs: npt.NDArray[np.float64]

    @property
    def bins(self) -> int:
        """How many there are."""
        return int(self.ranges[0, 1])

    def condition(self, start: int, stop: int) -> Condition | None:
        """A range in words; None for all values.

        A bound lies half way between two values that occur, unless these are few.
        """
        if (start, stop) == tuple(self.ranges[0]):
            return None
        name, numbers = self.column.name, len(self.lows)
        if start >= numbers:
            return Condition(name, level=self.column.levels[start - numbers])
        values = self.column.values  # of all rows, also where the axis has some of them
        first, last = float(self.lows[start]), float(self.highs[stop - 1])
        below, above = values[values < first], values[values > last]
        if self.column.few_values and (start == stop - 1 or (len(below) and len(above))):
            return Condition(name, first, last)
        low = (float(below[-1]) + first) / 2 if len(below) else None
        high = (last + float(above[0])) / 2 if len(above) else None
        return Condition(name, low, high)


@dataclass(frozen=True, eq=False)
class InputColumn:
    """One input of N rows: numbers, or levels without an order.

    Attributes:
        name: of the input.
        numbers: `(N,)`, NaN where the row has a level instead.
        levels: texts, the most frequent ones where there are many, and that a value is missing.
        members: `(N,)`, the level of each row, -1 where it has a number.
    """

    name: str
    numbers: npt.NDArray[np.float64]
    levels: tuple[str, ...]
    members: npt.NDArray[np.int64]

    @cached_property
    def values(self) -> npt.NDArray[np.float64]:
        """Numbers that occur, in ascending order."""
        return np.unique(self.numbers[self.members < 0])

    @property
    def few_values(self) -> bool:
        """Whether the input has so few numbers that each is named, as months are."""
        return len(self.values) <= _MOST_LEVELS

    @property
    def is_constant(self) -> bool:
        """Whether all rows are alike, so that there is nothing to search."""
        return len(self.values) + len(self.levels) < 2

    def suits(self, condition: Condition) -> bool:
        """Whether a condition is on what this input holds: numbers, or texts."""
        texts = bool(set(self.levels) - {_MISSING})
        if condition.level is not None:
            return condition.level == _MISSING or not len(self.values)
        return not texts

    def meets(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """Which rows a condition holds for, `(N,)`."""
        if condition.level is not None:
            known = condition.level in self.levels
            return self.members == (self.levels.index(condition.level) if known else -2)
        low = -np.inf if condition.low is None else condition.low
        high = np.inf if condition.high is None else condition.high
        met: npt.NDArray[np.bool_] = (self.numbers >= low) & (self.numbers <= high)
        return met

    def of_rows(self, rows: npt.NDArray[np.int64]) -> "InputColumn":
        """Some of the rows, by their numbers."""
        return replace(self, numbers=self.numbers[rows], members=self.members[rows])

    def cut(self, bins: int, rows: npt.NDArray[np.int64] | None = None) -> Axis:
        """Put the numbers into bins of about equal size, equal ones together.

        Args:
            bins: the most that numbers get; each level has one of its own.
            rows: some of the rows; all by default.

        Example:
            >>> [month] = input_columns(np.array([[1.0], [2.0], [2.0], [3.0]]), ["month"], 4)
            >>> axis = month.cut(20)
            >>> axis.codes, str(axis.condition(1, 3))
            (array([0, 1, 1, 2]), 'month above 1.5')
        """
        numbers, members = self.numbers, self.members
        if rows is not None:
            numbers, members = numbers[rows], members[rows]
        known = members < 0
        values = np.sort(numbers[known])
        upper = values[:0]  # largest value of each bin
        if len(values):
            upper = np.unique(values)
            if len(upper) > bins:
                places = np.ceil(np.arange(1, bins + 1) / bins * len(values)).astype(int) - 1
                upper = np.unique(values[places])
        size = len(upper)
        codes = np.where(known, np.searchsorted(upper, np.where(known, numbers, 0.0)), 0)
        codes = np.where(known, codes, size + members).astype(np.int64)
        firsts = np.searchsorted(values, np.concatenate([[-np.inf], upper[:-1]]), side="right")
        total = size + len(self.levels)
        ordered = [(a, b) for a in range(size) for b in range(a + 1, size + 1) if b - a < total]
        single = [(a, a + 1) for a in range(size, total)] if total > 1 else []
        ranges = np.array([(0, total), *ordered, *single], dtype=np.int64)
        lows = values[firsts] if size else upper
        return Axis(self, codes, ranges, lows, upper)


def input_columns(
    X: Any, names: Sequence[str] | None, n: int, *, all_levels: bool = False
) -> tuple[InputColumn, ...]:
    """Read the inputs of n rows: an array, a tensor or a table, `(N, p)`.

    Numbers and truth values have an order; texts and categories of a table are levels. A missing
    value is a level of its own. Of many levels the least frequent ones are taken together.

    Args:
        X: the inputs; `(N,)` will do for a single one.
        names: of the inputs; those of the table by default, else x0, x1, ...
        n: number of rows.
        all_levels: keep even the least frequent ones.
    """
    refuse_collections(X, "X")
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    labels = column_labels(X)
    table = hasattr(X, "iloc") and labels is not None
    array = None if table else as_array(X.to_numpy() if hasattr(X, "to_numpy") else X, "X")
    if array is not None and array.ndim == 1:
        array = array[:, None]
    shape = X.shape if array is None else array.shape
    if len(shape) != 2 or shape[0] != n or shape[1] == 0:
        raise ShapeError(
            f"X has shape {tuple(shape)}, but there are {n} rows: it must be ({n}, p), one row of "
            "inputs for each forecast"
        )
    if names is None:
        known = labels is not None and len(labels) == shape[1]
        names = [str(label) for label in labels] if known and labels is not None else None
    names = [f"x{j}" for j in range(shape[1])] if names is None else names
    names = as_names(names, shape[1], "names")
    if again := repeated(names):
        raise InputError(f"X has several inputs named {', '.join(again)}: give each its own name")
    columns = [X.iloc[:, j] if array is None else array[:, j] for j in range(shape[1])]
    most = n + 1 if all_levels else _MOST_LEVELS
    return tuple(_column(name, part, most) for name, part in zip(names, columns, strict=True))


def _column(name: str, values: Any, most: int) -> InputColumn:
    kind = getattr(values.dtype, "kind", "O")
    if kind in "mM":
        raise InputTypeError(
            f"input {name!r} holds dates or durations: use numbers instead, such as the day of the "
            "year"
        )
    if kind == "c":
        raise InputTypeError(f"input {name!r} holds complex numbers: use real ones")
    if kind in "biuf":
        return _of_numbers(name, _as_floats(values))
    texts = list(values)
    missing = np.array([_is_missing(value) for value in texts])
    pairs = list(zip(texts, missing, strict=True))
    present = [value for value, gone in pairs if not gone]
    if not hasattr(values.dtype, "categories") and all(_is_number(value) for value in present):
        return _of_numbers(name, np.array([np.nan if gone else float(v) for v, gone in pairs]))
    return _of_texts(name, [_MISSING if gone else str(value) for value, gone in pairs], most)


def _of_numbers(name: str, numbers: npt.NDArray[np.float64]) -> InputColumn:
    if np.isinf(numbers).any():
        raise InputError(
            f"input {name!r} is infinite in {int(np.isinf(numbers).sum())} of {len(numbers)} rows: "
            "correct them, or make them missing (NaN)"
        )
    missing = np.isnan(numbers)
    levels = (_MISSING,) if missing.any() else ()
    return InputColumn(name, numbers, levels, np.where(missing, 0, -1))


def _of_texts(name: str, texts: Sequence[str], most: int) -> InputColumn:
    levels, members, counts = np.unique(texts, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    names = [str(level) for level in levels[order]]
    if len(names) > most:
        names = [*names[: most - 1], _OTHERS]
    members = np.minimum(place[members], len(names) - 1)
    return InputColumn(name, np.full(len(texts), np.nan), tuple(names), members)


def _as_floats(values: Any) -> npt.NDArray[np.float64]:
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values, dtype=np.float64)


def _is_missing(value: Any) -> bool:
    return value is None or (str(value) in ("nan", "NaT", "<NA>") and not isinstance(value, str))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_)
