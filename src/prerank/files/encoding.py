"""Tables with numbers, truth values and text, as a matrix of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.frames import positions
from prerank.inputs import column_labels, repeated

__all__ = ["TableEncoder", "check_table", "in_order", "one_hot", "text_encoder"]

_MOST_LEVELS = 1000


@dataclass(frozen=True)
class TableEncoder:
    """One-hot encoding of text columns; numbers and truth values stay as they are.

    A text that was not seen in `fit` becomes zeros in all columns of its variable. Numbers where
    there was text are more likely a mistake in reading the table: they are taken as text only where
    all of them, written out, are known levels (1 for `"1"`, but not 1.0), and refused otherwise.

    Attributes:
        levels: for each column of the table, its sorted levels, or None where it is numeric.
    """

    levels: tuple[tuple[str, ...] | None, ...]

    @classmethod
    def fit(cls, table: Any) -> "TableEncoder":
        """Learn the levels of the text columns of a DataFrame."""
        found: list[tuple[str, ...] | None] = []
        for position, name in enumerate(table.columns):
            column = table.iloc[:, position]
            if column.dtype.kind in "mM":
                raise InputError(
                    f"column {name!r} holds dates or durations: give the model numbers instead, "
                    "such as the day of the year"
                )
            if _holds_numbers(column):
                found.append(None)
                continue
            _refuse_missing(column, name)
            levels = tuple(sorted({str(value) for value in column}))
            if len(levels) > _MOST_LEVELS:
                raise InputError(
                    f"column {name!r} has {len(levels)} different texts: drop it or group them"
                )
            found.append(levels)
        return cls(tuple(found))

    def __call__(self, table: Any) -> npt.NDArray[np.float64]:
        """Encode a DataFrame with the same columns."""
        parts: list[npt.NDArray[np.float64]] = []
        for position, levels in enumerate(self.levels):
            column, name = table.iloc[:, position], table.columns[position]
            if levels is None:
                if not _holds_numbers(column):
                    raise InputError(f"column {name!r} was numeric in fit and now holds text")
                parts.append(column.to_numpy(dtype=np.float64, na_value=np.nan)[:, None])
            else:
                _refuse_missing(column, name)
                text = np.array([str(value) for value in column], dtype=object)
                match = one_hot(text, levels)
                if _holds_numbers(column) and not match.any(1).all():
                    unknown = text[~match.any(1)][0]
                    raise InputError(
                        f"column {name!r} was text in fit (such as {levels[0]!r}) and now holds "
                        f"numbers that are none of its levels (such as {unknown}): convert the "
                        "column to text, written as it was in fit"
                    )
                parts.append(match.astype(np.float64))
        return np.concatenate(parts, axis=1)


def one_hot(texts: npt.NDArray[Any], levels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which of the levels each text is, `(N, levels)`.

    Example:
        >>> one_hot(np.array(["mud", "sand"], dtype=object), ("mud", "sand")).tolist()
        [[True, False], [False, True]]
    """
    match: npt.NDArray[np.bool_] = texts[:, None] == np.array(levels, dtype=object)
    return match


def text_encoder(table: Any) -> TableEncoder | None:
    """An encoder where a table has text columns, else None."""
    if not hasattr(table, "iloc") or not hasattr(table, "columns"):
        return None
    encoder = TableEncoder.fit(table)
    return encoder if any(levels is not None for levels in encoder.levels) else None


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

    return bool(is_numeric_dtype(column)) or all(isinstance(value, Number) for value in column)


def _refuse_missing(column: Any, name: object) -> None:
    if column.isna().any():
        raise InputError(
            f"column {name!r} has {int(column.isna().sum())} missing values: remove those rows or "
            "give them a level of their own"
        )
