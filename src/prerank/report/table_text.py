"""Tables as text for readers, with the values that a browser sorts by."""

import numbers
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prerank.report.wording import p_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Column", "table_columns"]


class Cell(NamedTuple):
    """What a cell shows, and what it is sorted by: None where the value is missing."""

    text: str
    value: str | None


class Column(NamedTuple):
    """Name, kind and cells of a column."""

    name: str
    numeric: bool
    cells: list[Cell]


def table_columns(frame: "pd.DataFrame") -> list[Column]:
    """Turn the columns of a table into text.

    Floats get four significant digits, and p-values, in a column `p` or `p_...`, three decimals.
    Truth values read yes and no. Missing values and empty strings are blank.

    Args:
        frame: any table; its index is left out.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"n": [12, 3], "pce": [0.0123456, None], "p": [2e-5, 0.25]})
        >>> for column in table_columns(frame):
        ...     print(column.name, [cell.text for cell in column.cells])
        n ['12', '3']
        pce ['0.01235', '']
        p ['<0.001', '0.250']
    """
    # By position, because names may repeat.
    return [_column(str(name), frame.iloc[:, j]) for j, name in enumerate(frame.columns)]


def _column(name: str, values: Iterable[object]) -> Column:
    known = [None if _is_missing(value) else value for value in values]
    present = [value for value in known if value is not None]
    numeric = bool(present) and all(_is_number(value) for value in present)
    is_p = name == "p" or name.startswith("p_")
    cells = []
    for value in known:
        text = "" if value is None else _text(value, is_p)
        raw = _raw(value) if numeric else text
        cells.append(Cell(text, None if value is None else raw))
    return Column(name, numeric, cells)


def _is_missing(value: Any) -> bool:
    import pandas as pd

    if isinstance(value, str):
        return not value.strip()
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _text(value: Any, is_p: bool) -> str:
    if isinstance(value, bool | np.bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral) or not _is_number(value):
        return str(value)
    number = float(value)
    if is_p and 0 <= number <= 1:
        return p_text(number)
    if number == 0 or 1e-4 <= abs(number) < 1e7:
        return np.format_float_positional(
            number, precision=4, unique=False, fractional=False, trim="-"
        )
    return f"{number:.4g}"


def _raw(value: Any) -> str:
    if value is None or isinstance(value, numbers.Integral):
        return str(value)
    return repr(float(value)).replace("inf", "Infinity")  # as a browser reads it
