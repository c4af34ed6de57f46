"""Labels of named dimensions as text, and the names of events that several dimensions form."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

__all__ = ["SAMPLE_NAMES", "dimension_names", "event_names", "label_texts", "quoted"]

SAMPLE_NAMES = ("sample", "member", "realization", "number", "draw", "ensemble")
"""Names of columns and dimensions that number the samples."""

_DURATIONS = {"h": "h", "m": "min", "s": "s"}


def label_texts(labels: Any) -> list[str]:
    """Labels as short text: dates without the zeros of their time, durations in hours.

    Numbers have the digits that their own precision needs, so that 0.1 reads alike in float32 and
    float64.

    Example:
        >>> label_texts(np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[ns]"))
        ['2026-01-01', '2026-01-02']
        >>> label_texts(np.array([6, 12], dtype="timedelta64[h]").astype("timedelta64[ns]"))
        ['6h', '12h']
        >>> label_texts(np.array([850, 0.1], dtype=np.float32))
        ['850', '0.1']
    """
    values = np.asarray(labels)
    if values.dtype.kind == "M":
        return [str(text) for text in np.datetime_as_string(values, unit="auto")]
    if values.dtype.kind == "m":
        for unit, name in _DURATIONS.items():
            whole = values.astype(f"timedelta64[{unit}]")
            if (whole == values).all():
                return [f"{count}{name}" for count in whole.astype(np.int64)]
    if values.dtype.kind == "f":
        return [str(value).removesuffix(".0") for value in values]
    return [str(value) for value in values]


def dimension_names(dim: object, index: Any, size: int) -> list[str]:
    """Names of the places of a dimension: its labels, or its own name with numbers from 0.

    Example:
        >>> dimension_names("lead", None, 2), dimension_names("lead", [6, 12], 2)
        (['lead0', 'lead1'], ['6', '12'])
    """
    return [f"{dim}{k}" for k in range(size)] if index is None else label_texts(index)


def event_names(parts: Sequence[Sequence[str]]) -> list[str]:
    """Names of all combinations, the last part running fastest.

    Example:
        >>> event_names([["Bonn", "Ghent"], ["6h", "12h"]])
        ['Bonn/6h', 'Bonn/12h', 'Ghent/6h', 'Ghent/12h']
    """
    return ["/".join(names) for names in product(*parts)]


def quoted(names: Iterable[object]) -> str:
    """Names in quotes with commas; `none` where there are none.

    Example:
        >>> quoted(["time", "lead"]), quoted([])
        ("'time', 'lead'", 'none')
    """
    return ", ".join(repr(str(name)) for name in names) or "none"
