"""Writing beside points, where it hides neither another nor a point."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_beside"]

_HIGH = 5  # half the height of the writing, in points
# Beside a point, to the right and up.
_PLACES = [(1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.2), (0, -1.2), (1.2, 0), (-1.2, 0)]
_PLACES_AT_THE_EDGE = [(-1, 1), (-1, -1), (-1, -2), (-1, -3)]


def write_beside(
    ax: "Axes",
    texts: Sequence[str],
    places: Sequence[tuple[float, float]],
    radii: Sequence[float],
    *,
    edges: Sequence[bool] = (),
    fontsize: str = "small",
) -> None:
    """Put a text beside each point of axes whose limits are final.

    Args:
        ax: where to write.
        texts: one for each point.
        places: of the points, in the units of the axes.
        radii: of their marks, in points.
        edges: which points lie at the right edge, and have room on the left alone.
        fontsize: of the writing.
    """
    unit = 72 / ax.figure.dpi  # points in a pixel
    centres = [unit * ax.transData.transform(place) for place in places]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(centres, radii, strict=True)]
    sides = edges or [False] * len(texts)
    for text, place, (x, y), size, edge in zip(texts, places, centres, radii, sides, strict=True):
        wide = 3 * len(text) + 1  # half the size of the writing, in points
        boxes = []
        for right, up in _PLACES_AT_THE_EDGE if edge else _PLACES:
            left, low = x + right * (wide + size) - wide, y + up * (_HIGH + size) - _HIGH
            boxes.append((left, low, left + 2 * wide, low + 2 * _HIGH))
        best = min(boxes, key=lambda box: sum(_overlap(box, other) for other in taken))
        taken.append(best)
        ax.annotate(
            text,
            place,
            xytext=((best[0] + best[2]) / 2 - x, (best[1] + best[3]) / 2 - y),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=fontsize,
            parse_math=False,
        )


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(width, 0.0) * max(height, 0.0)
