"""Several panels in the place of one pair of axes."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["split_axes"]

Share = Literal["none", "all", "row", "col"]


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
