"""What all figures share: colours, names that users give, panels, and a base of displays."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from prerank.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "COLOURS",
    "NAMED",
    "STYLES",
    "Display",
    "name_lines",
    "names_of",
    "short_name",
    "split_axes",
]

# The colours of Okabe and Ito, which readers of all kinds of colour vision tell apart. Seven
# colours and four line styles give 28 pairs before one comes back, and lines differ in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":")

NAMED = "named"
"""Mark (`gid`) of what a legend shall name."""

_WIDEST = 16  # characters beside an axis

Share = Literal["none", "all", "row", "col"]


class Display:
    """A result that can be drawn: `plot` takes axes or makes a figure, `caption` says it in words.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
    """

    ax_: "Axes"
    figure_: "Figure | SubFigure"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 4.0, 4.0

    @property
    def caption(self) -> str:
        """One sentence on what is seen."""
        raise NotImplementedError

    def plot(self, ax: "Axes | None" = None) -> Any:
        """Draw on the axes, or in a new figure."""
        raise NotImplementedError

    def _place(self, ax: "Axes | None") -> "Axes":
        """The axes that were given, or those of a new figure."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=self.size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def names_of(components: int, names: Sequence[str] | None, alone: str) -> tuple[str, ...]:
    """Names of the components of a pre-rank, where none were given too.

    Args:
        components: J.
        names: of all of them, or None: then they are numbered.
        alone: name of a single one without a name.
    """
    if names is None:
        return tuple(str(j) for j in range(components)) if components > 1 else (alone,)
    if len(names) != components:
        raise ShapeError(f"{len(names)} names for {components} components: {list(names)}")
    return tuple(names)


def short_name(name: str) -> str:
    """Both ends of a long name: which one tells it from the others is not known.

    Example:
        >>> short_name("temperature at two metres above ground")
        'temperat… ground'
    """
    half = _WIDEST // 2
    return name if len(name) <= _WIDEST else f"{name[:half]}…{name[1 - half :]}"


def name_lines(ax: "Axes", **options: Any) -> None:
    """Draw a legend that takes names for what they are: no formulas in them, none left out.

    Args:
        ax: where to draw, and whose lines have names.
        options: passed to `Axes.legend`.
    """
    drawn = [artist for artist in (*ax.collections, *ax.lines) if artist.get_gid() == NAMED]
    names = [str(artist.get_label()) for artist in drawn]
    # A leading underscore would hide the entry, and a dollar sign begin a formula.
    shown = [f" {name}" if name.startswith("_") else name for name in names]
    legend = ax.legend(drawn, shown, fontsize="small", frameon=False, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)


def split_axes(
    ax: "Axes", rows: int, columns: int, *, sharex: Share = "all", sharey: Share = "all"
) -> npt.NDArray[np.object_]:
    """Hide axes and put a grid of panels in their place.

    Args:
        ax: axes of any figure, in a grid or at a place of their own.
        rows: of the grid.
        columns: of the grid.
        sharex: which panels share the horizontal axis.
        sharey: likewise.

    Returns:
        Axes `(rows, columns)`.

    Example:
        >>> from matplotlib.figure import Figure
        >>> split_axes(Figure().subplots(), 2, 3).shape
        (2, 3)
    """
    ax.set_axis_off()
    spec, box = ax.get_subplotspec(), ax.get_position()
    grid: Any
    if spec is not None:
        grid = spec.subgridspec(rows, columns)
    else:
        edges = {"left": box.x0, "bottom": box.y0, "right": box.x1, "top": box.y1}
        grid = ax.figure.add_gridspec(rows, columns, **edges)
    return grid.subplots(sharex=sharex, sharey=sharey, squeeze=False)
