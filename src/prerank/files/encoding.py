"""Tables with numbers, truth values and text, as a matrix of numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.date_features import DateFeatures, holds_dates
from prerank.files.frames import positions
from prerank.inputs import column_labels, repeated

__all__ = ["Fill", "TableEncoder", "check_table", "in_order", "one_hot", "table_encoder"]

_MOST_LEVELS = 1000


@dataclass(frozen=True)
class Fill:
    """What takes the place of a missing value.

    Attributes:
        values: of the encoded columns: medians of those in `fit`, zeros for text.
        flagged: whether another column says where a value was missing; so it does if one was
            missing in `fit`.

    Example:
        >>> Fill((2.0,), True)(np.array([[1.0], [np.nan]])).tolist()
        [[1.0, 0.0], [2.0, 1.0]]
    """

    values: tuple[float, ...]
    flagged: bool

    def __call__(self, part: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Fill encoded columns `(N, W)` where they are NaN, and append the flag."""
        missing = np.isnan(part).any(1, keepdims=True)
        filled: npt.NDArray[np.float64] = np.where(missing, np.array(self.values), part)
        return np.concatenate([filled, missing], axis=1) if self.flagged else filled


@dataclass(frozen=True)
class TableEncoder:
    """One-hot encoding of text columns, and features of dates; numbers and truth values stay.

    A text that was not seen in `fit` becomes zeros in all columns of its variable. Numbers where
    there was text are more likely a mistake in reading the table: they are taken as text only where
    all of them, written out, are known levels (1 for `"1"`, but not 1.0), and refused otherwise.

    Attributes:
        levels: for each column of the table, its sorted levels, or None if it is not text.
        dates: features of the columns of dates, by position.
        fills: what takes the place of missing values, by position; empty if none is imputed.
    """

    levels: tuple[tuple[str, ...] | None, ...]
    dates: Mapping[int, DateFeatures] = field(default_factory=dict)
    fills: Mapping[int, Fill] = field(default_factory=dict)

    @classmethod
    def fit(cls, table: Any, *, impute: bool = False, dates: bool = False) -> "TableEncoder":
        """Learn the columns of a DataFrame.

        Args:
            table: to be encoded.
            impute: fill in missing values, and flag them.
            dates: take features of dates, which are refused otherwise.
        """
        levels: list[tuple[str, ...] | None] = []
        features: dict[int, DateFeatures] = {}
        for position, name in enumerate(table.columns):
            column = table.iloc[:, position]
            if dates and holds_dates(column):
                features[position] = DateFeatures.fit(column)
            elif column.dtype.kind in "mM" or holds_dates(column):
                raise InputError(
                    f"column {name!r} holds dates or durations: give the model numbers instead, "
                    "such as the day of the year, or let it take features of dates (dates=True)"
                )
            levels.append(
                None if position in features or _holds_numbers(column) else _levels(column, impute)
            )
        encoder = cls(tuple(levels), features)
        if not impute:
            return encoder
        fills = {}
        for position, name in enumerate(table.columns):
            part = encoder._part(position, table.iloc[:, position])
            missing = np.isnan(part).any(1)
            if missing.all():
                _refuse_missing(table.iloc[:, position], name)
            text = levels[position] is not None
            values = np.zeros(part.shape[1]) if text else np.median(part[~missing], axis=0)
            fills[position] = Fill(tuple(map(float, values)), bool(missing.any()))
        return replace(encoder, fills=fills)

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        widths = map(self.width_of, range(len(self.levels)))
        return sum(widths) + sum(fill.flagged for fill in self.fills.values())

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers that stay as they are."""
        return not (any(texts is not None for texts in self.levels) or self.dates or self.fills)

    def __call__(self, table: Any) -> npt.NDArray[np.float64]:
        """Encode a DataFrame with the same columns."""
        parts: list[npt.NDArray[np.float64]] = []
        for position in range(len(self.levels)):
            column, fill = table.iloc[:, position], self.fills.get(position)
            if fill is None and self.levels[position] is not None:
                _refuse_missing(column, column.name)
            part = self._part(position, column)
            parts.append(part if fill is None else fill(part))
        return np.concatenate(parts, axis=1)

    def width_of(self, position: int) -> int:
        """Number of encoded columns of one column, without its flag."""
        texts, dates = self.levels[position], self.dates.get(position)
        if dates is not None:
            return dates.width
        return 1 if texts is None else len(texts)

    def unfilled(self, table: Any) -> Any:
        """The columns of a DataFrame whose missing values are not imputed."""
        return table[[name for j, name in enumerate(table.columns) if j not in self.fills]]

    def words(self, names: Sequence[str]) -> dict[str, str]:
        """What is done to dates and missing values, for a report; nothing where nothing is.

        Example:
            >>> TableEncoder((None,), fills={0: Fill((2.5,), True)}).words(["depth"])
            {'missing inputs': 'median and a flag: depth (2.5)'}
        """
        said = {}
        if self.dates:
            dated = (f"{names[j]}: {features}" for j, features in self.dates.items())
            said["dates"] = "; ".join(dated)
        if self.fills:
            filled = [
                f"{names[j]} ({'no level' if self.levels[j] else f'{fill.values[0]:.6g}'})"
                for j, fill in self.fills.items()
                if fill.flagged
            ]
            said["missing inputs"] = (
                f"median and a flag: {', '.join(filled)}" if filled else "median; none in training"
            )
        return said

    def _part(self, position: int, column: Any) -> npt.NDArray[np.float64]:
        """Encode one column, with NaN where a value is missing."""
        levels, name = self.levels[position], column.name
        if position in self.dates:
            return self.dates[position](column)
        if levels is None:
            if column.notna().any() and not _holds_numbers(column):
                raise InputError(f"column {name!r} was numeric in fit and now holds text")
            values: npt.NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
            return values[:, None]
        missing = column.isna().to_numpy()
        text = np.array([str(value) for value in column], dtype=object)
        match = one_hot(text, levels)
        known = match.any(1) | missing
        if _holds_numbers(column) and not known.all():
            unknown = text[~known][0]
            raise InputError(
                f"column {name!r} was text in fit (such as {levels[0]!r}) and now holds "
                f"numbers that are none of its levels (such as {unknown}): convert the "
                "column to text, written as it was in fit"
            )
        encoded: npt.NDArray[np.float64] = np.where(missing[:, None], np.nan, match)
        return encoded


def one_hot(texts: npt.NDArray[Any], levels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which of the levels each text is, `(N, levels)`.

    Example:
        >>> one_hot(np.array(["mud", "sand"], dtype=object), ("mud", "sand")).tolist()
        [[True, False], [False, True]]
    """
    match: npt.NDArray[np.bool_] = texts[:, None] == np.array(levels, dtype=object)
    return match


def table_encoder(table: Any, *, impute: bool = False, dates: bool = False) -> TableEncoder | None:
    """An encoder where a table has more than numbers or is to be imputed, else None."""
    if not hasattr(table, "iloc") or not hasattr(table, "columns"):
        if impute or dates:
            named = "impute" if impute else "dates"
            raise InputError(f"{named}=True needs a DataFrame: an array has no kinds of columns")
        return None
    encoder = TableEncoder.fit(table, impute=impute, dates=dates)
    return None if encoder.plain else encoder


def check_table(table: Any, name: str) -> None:
    """Refuse repeated names of columns and masked values; other things pass."""
    again = repeated(str(column) for column in getattr(table, "columns", ()))
    if again:
        raise InputError(
            f"{name} has several columns named {', '.join(again)}: give each a name of its own"
        )
    if np.ma.is_masked(table):
        raise InputError(f"{name} has masked values: remove those rows or impute them")


def in_order(y: Any, names: tuple[str, ...]) -> Any:
    """Labelled targets in the order of `fit`; what has no labels passes."""
    labels = column_labels(y)
    columns = [] if labels is None else [str(column) for column in labels]
    if not columns or tuple(columns) == names:
        return y
    if sorted(columns) != sorted(names):
        raise InputError(
            f"y has the columns {', '.join(columns)}, but the model was fitted to "
            f"{', '.join(names)}"
        )
    order = positions(names, columns)
    return y.iloc[:, order] if hasattr(y, "iloc") else y[:, order]


def _holds_numbers(column: Any) -> bool:
    """Whether all values are numbers, though the column may be declared as one of objects."""
    from pandas.api.types import is_numeric_dtype

    present = column.dropna()
    objects = len(present) > 0 and all(isinstance(value, Number) for value in present)
    return bool(is_numeric_dtype(column)) or objects


def _levels(column: Any, impute: bool) -> tuple[str, ...]:
    """The different texts of a column, sorted."""
    if not impute or column.isna().all():
        _refuse_missing(column, column.name)
    levels = tuple(sorted({str(value) for value in column[column.notna()]}))
    if len(levels) > _MOST_LEVELS:
        raise InputError(
            f"column {column.name!r} has {len(levels)} different texts: drop it or group them"
        )
    return levels


def _refuse_missing(column: Any, name: object) -> None:
    if column.isna().any():
        raise InputError(
            f"column {name!r} has {int(column.isna().sum())} missing values: remove those rows or "
            "give them a level of their own"
        )
