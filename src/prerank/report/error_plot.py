"""The first figure of a page: errors of all pre-ranks with their limits, before and after.

It is made of HTML and lines of SVG at shares of the width, so that it is whole and legible at every
width, and its numbers are text.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from prerank.calibration.decision import DEGREES, Status

if TYPE_CHECKING:
    from prerank.report.html import Illustration

__all__ = ["Badge", "ErrorMark", "ErrorPlot", "ErrorRow", "plot_view"]

_LINEAR = 0.01  # the scale is linear up to here, and logarithmic beyond
_LEAST_END, _LARGEST_END = 0.06, 0.5
_TICKS = (0.0, 0.01, 0.03, 0.1, 0.3)
_ROOM = 0.04  # share of the width that is left of 0, and beyond the end


class Badge(NamedTuple):
    """A few words with an icon, whose colour and form repeat them."""

    status: Status
    words: str


@dataclass(frozen=True)
class ErrorMark:
    """An excess with the limits of the true error, and the excesses of its components."""

    excess: float
    lower: float = math.nan
    upper: float = math.nan
    parts: tuple[float, ...] = ()

    @property
    def words(self) -> str:
        """What the mark shows, for those who cannot see it."""
        if math.isnan(self.lower):
            return f"excess {self.excess:.3f}"
        return f"excess {self.excess:.3f}, true error between {self.lower:.3f} and {self.upper:.3f}"

    @property
    def ends(self) -> tuple[float, ...]:
        """All numbers that need room."""
        known = (self.excess, self.lower, self.upper, *self.parts)
        return tuple(value for value in known if not math.isnan(value))


@dataclass(frozen=True)
class ErrorRow:
    """A pre-rank of the figure.

    Args:
        label: of the pre-rank.
        question: that it asks.
        outcome: of its test.
        p_value: in words.
        mark: its error.
        before: the same before a change.
    """

    label: str
    question: str
    outcome: Badge
    p_value: str
    mark: ErrorMark
    before: ErrorMark | None = None


@dataclass(frozen=True)
class ErrorPlot:
    """The figure.

    Args:
        rows: from top to bottom.
        caption: for the eye below it.
        lead: what became of the errors, above it.
        change: what lies between before and after, where there is a before.
        worst: picture beside it, of the largest error.
    """

    rows: tuple[ErrorRow, ...]
    caption: str
    lead: str = ""
    change: str = ""
    worst: "Illustration | None" = None


def plot_view(plot: ErrorPlot) -> dict[str, Any]:
    """What the template draws: texts, and places in percent of the width or height.

    Example:
        >>> row = ErrorRow("hdr", "?", Badge("bad", "fails"), "p < 0.001", ErrorMark(0.2, 0.1, 0.3))
        >>> view = plot_view(ErrorPlot((row,), "Errors."))
        >>> [zone["name"] for zone in view["zones"]], view["rows"][0]["marks"][0]["dot"] < 100
        (['slight', 'moderate', 'strong'], True)
    """
    marks = [mark for row in plot.rows for mark in (row.mark, row.before) if mark is not None]
    largest = max((end for mark in marks for end in mark.ends), default=0.0)
    end = min(_LARGEST_END, max(_LEAST_END, largest))

    def place(value: float) -> float:
        """Errors below 0 are chance, and stand at 0."""
        share = _position(min(max(value, 0.0), end)) / _position(end)
        return round(100 * (_ROOM + (1 - 2 * _ROOM) * share), 2)

    starts = [place(least) for least in DEGREES.values()]
    zones = [
        {"name": name, "start": start, "width": round(stop - start, 2)}
        for name, start, stop in zip(DEGREES, starts, [*starts[1:], 100.0], strict=True)
    ]
    return {
        "rows": [
            {"row": row, "marks": list(_drawn(row, place)), "excess": _excess(row.mark)}
            for row in plot.rows
        ],
        "zones": zones,
        "ticks": [{"at": place(tick), "text": f"{tick:g}"} for tick in _TICKS if tick <= end],
        "caption": plot.caption,
        "lead": plot.lead,
        "change": plot.change,
        "parts": any(row.mark.parts for row in plot.rows),
    }


def _drawn(row: ErrorRow, place: Any) -> Iterator[dict[str, Any]]:
    """Marks of a row with their heights: before above after."""
    both = row.before is not None
    for mark, kind, y in ((row.before, "before", 28), (row.mark, "now", 68 if both else 50)):
        if mark is None or math.isnan(mark.excess):
            continue
        limited = not math.isnan(mark.lower)
        # The dot estimates the true error: near calibration the floor is subtracted, far from it
        # the floor does not apply in full, and the excess may lie just below the limits.
        at = min(max(mark.excess, mark.lower), mark.upper) if limited else mark.excess
        yield {
            "kind": kind,
            "y": y,
            "dot": place(at),
            "limits": (place(mark.lower), place(mark.upper)) if limited else None,
            "parts": [place(part) for part in mark.parts if not math.isnan(part)],
            "words": f"{kind}: {mark.words}" if both else mark.words,
        }


def _excess(mark: ErrorMark) -> str:
    """Three decimals; a number that is rounded to 0 has no sign."""
    return "" if math.isnan(mark.excess) else f"{round(mark.excess, 3) + 0.0:.3f}"


def _position(error: float) -> float:
    return error / _LINEAR if error < _LINEAR else 1 + math.log10(error / _LINEAR)
