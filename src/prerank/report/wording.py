"""Text for readers: words for deviations, lists of names, p-values, tables."""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from prerank.defaults import BAND_LEVEL
from prerank.files.visible_text import visible_name

if TYPE_CHECKING:
    import pandas as pd

    from prerank.calibration import DeviationShape

__all__ = [
    "AtMost",
    "Cell",
    "Column",
    "Measured",
    "aligned_lines",
    "grouped_names",
    "joined_names",
    "listed",
    "p_phrase",
    "p_text",
    "reliability_caption",
    "shape_words",
    "table_columns",
]

_SMALL_P = 0.001
_THIN = "\N{THIN SPACE}"  # tables have many such numbers
_MOST_NAMES = 40  # in one sentence


def shape_words(label: str, shape: "DeviationShape") -> str:
    """What a curve of this shape says of the pre-rank, without the cause, which it does not show.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> shape_words("marginal", DeviationShape(True, -1, 0))
        'values too often below the predicted median'
    """
    from prerank.report.explanations import explanation_of

    words = explanation_of(label)
    shift = {1: words.large, -1: words.small}.get(shape.shift)
    spread = {1: words.outer, -1: words.inner}.get(shape.spread)
    # In the texts, causes that are possible follow in parentheses.
    parts = [text.partition(" (")[0] for text in (shift, spread) if text]
    return " and ".join(parts) or "PITs uneven in another way"


def reliability_caption(
    label: str,
    names: Sequence[str],
    shapes: "Sequence[DeviationShape]",
    *,
    level: float = BAND_LEVEL,
    causes: Sequence[str] = (),
    empty: Sequence[bool] = (),
) -> str:
    """Say in one sentence what the curves of one pre-rank mean: the cause, or else the curve.

    Args:
        label: of the pre-rank, which decides the words.
        names: of the J components.
        shapes: of the J components.
        level: probability of the band.
        causes: what tests found in each of the J components, empty where that is nothing.
        empty: whether all values of a component are missing.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> low, fine = DeviationShape(True, -1, 0), DeviationShape(False, -1, 0)
        >>> reliability_caption("marginal", ["rain", "wind"], [low, fine])
        'marginal: PITs too small (values too often below the predicted median) in rain; within the
        95 % band in wind.'
        >>> reliability_caption("marginal", ["rain"], [low], causes=["predictions skewed"])
        'marginal: predictions skewed.'
    """
    inside = f"within the {100 * level:g} % band"
    meanings = [_curve_words(label, shape) if shape.outside else inside for shape in shapes]
    for j, cause in enumerate(causes):
        if cause:
            meanings[j] = cause if shapes[j].outside else f"{cause}, though {inside},"
    for j, without in enumerate(empty):
        if without:
            meanings[j] = "no values"
    sentence = grouped_names(zip(names, meanings, strict=True), total=len(names)).removesuffix(",")
    return f"{label}: {sentence}." if label else f"{sentence}."


def _curve_words(label: str, shape: "DeviationShape") -> str:
    """Where the PITs are, and what that says of the pre-rank."""
    shift = {1: "too large", -1: "too small"}.get(shape.shift)
    spread = {1: "crowded at both ends", -1: "crowded in the middle"}.get(shape.spread)
    places = " and ".join(filter(None, [shift, spread]))
    words = shape_words(label, shape)
    return f"PITs {places} ({words})" if places else words


def grouped_names(
    meanings: Iterable[tuple[str, str]], *, total: int, everyone: str | None = None
) -> str:
    """Names that share a meaning, together.

    Args:
        meanings: pairs of a name and what is said of it.
        total: how many names there are; a single one is not mentioned.
        everyone: stands for all names, where all share one meaning.

    Example:
        >>> grouped_names([("a", "too low"), ("b", "too high"), ("c", "too low")], total=3)
        'too low in a and c; too high in b'
    """
    groups: dict[str, list[str]] = {}
    for name, meaning in meanings:
        groups.setdefault(meaning, []).append(name)
    if total == 1:
        return "; ".join(groups)
    return "; ".join(
        f"{meaning} in {everyone if everyone and len(names) == total else listed(_few(names))}"
        for meaning, names in groups.items()
    )


def _few(names: Sequence[str]) -> list[str]:
    """Some of many names, and how many there are beside them."""
    rest = len(names) - _MOST_NAMES
    return [*names] if rest <= 1 else [*names[:_MOST_NAMES], f"{rest} more"]


def aligned_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of text, its columns aligned on the right.

    Example:
        >>> aligned_lines([["error", "p"], ["0.01", "0.5"]])
        ['error   p', ' 0.01 0.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: `a, b and c`."""
    *most, last = map(visible_name, names)
    return f"{', '.join(most)} and {last}" if most else last


def joined_names(names: Iterable[str]) -> str:
    """Names with commas between, and quotes around one that holds a comma.

    Example:
        >>> joined_names(["rain, mm", "wind"])
        '"rain, mm", wind'
    """
    shown = map(visible_name, names)
    quoted = ('"{}"'.format(name.replace('"', '""')) if "," in name else name for name in shown)
    return ", ".join(quoted)


def p_text(value: float) -> str:
    """A p-value for readers, the same everywhere.

    Example:
        >>> p_text(0.25), p_text(2e-5)
        ('0.250', '<0.001')
    """
    return f"<{_SMALL_P:g}" if value < _SMALL_P else f"{value:.3f}"


def p_phrase(value: float) -> str:
    """The same in a sentence.

    Example:
        >>> p_phrase(0.25), p_phrase(2e-5)
        ('p = 0.250', 'p < 0.001')
    """
    text = p_text(value)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


class Measured(float):
    """A number with its standard error, which decides on its digits.

    Example:
        >>> print(Measured(0.0123456, 0.00123), "or", Measured(0.0123456))
        0.0123\u2009±\u20090.0012 or 0.01235
    """

    error: float

    def __new__(cls, value: float, error: float = math.nan) -> "Measured":
        """A number that sorts and counts like others."""
        made = super().__new__(cls, value)
        made.error = float(error)
        return made

    def __str__(self) -> str:
        """Both, with two significant digits of the error."""
        if not (0 < self.error < math.inf and math.isfinite(self)):
            return _digits(float(self))
        decimals = min(7, max(0, 1 - math.floor(math.log10(self.error))))
        return f"{float(self):.{decimals}f}{_THIN}±{_THIN}{self.error:.{decimals}f}"


class AtMost(float):
    """A p-value at the resolution of its replicates."""


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
    import numpy as np

    if isinstance(value, bool | np.bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral) or not _is_number(value):
        return str(value)
    number = float(value)
    if is_p and 0 <= number <= 1:
        text = p_text(number)
        return f"≤{text}" if isinstance(value, AtMost) and not text.startswith("<") else text
    return str(value) if isinstance(value, Measured) else _digits(number)


def _digits(number: float) -> str:
    """Four significant ones."""
    import numpy as np

    if number == 0 or 1e-4 <= abs(number) < 1e7:
        return np.format_float_positional(
            number, precision=4, unique=False, fractional=False, trim="-"
        )
    return f"{number:.4g}"


def _raw(value: Any) -> str:
    if value is None or isinstance(value, numbers.Integral):
        return str(value)
    return repr(float(value)).replace("inf", "Infinity")  # as a browser reads it
