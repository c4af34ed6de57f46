"""PIT histograms as small multiples: the same picture for each of several groups."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.report.drawing import COLOURS, short_name
from prerank.report.histogram_display import PITHistogramDisplay
from prerank.report.wording import reliability_caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["HistogramGrid"]

_MOST_COLUMNS = 6  # of a single row, before it is broken


class HistogramGrid:
    """PIT histograms in rows and columns, all with one vertical axis and bands of their own.

    A histogram that leaves its band is filled, one that keeps to it is an outline. Each band holds
    for one panel: of twenty panels, one leaves its band by chance.

    Args:
        rows: histograms of one component each, by the name of the row and of the column; a
            combination without PITs may be absent, or None. A single row is broken after six
            panels.
        label: of what is ranked, above the panels.

    Attributes:
        figure_: the figure, after `plot`.
        axes_: its panels, `(rows, columns)`; empty ones are hidden.

    Example:
        >>> import torch
        >>> z = torch.rand(3, 300, 1, generator=torch.Generator().manual_seed(0))
        >>> z[2] = z[2] ** 2
        >>> leads = {
        ...     f"{6 * k + 6} h": PITHistogramDisplay.from_pits(part, label="location")
        ...     for k, part in enumerate(z)
        ... }
        >>> HistogramGrid({"": leads}).caption
        'location: within the 95 % band in 6 h and 12 h; PITs too small (means of the targets too
        often below the predicted median) in 18 h.'
    """

    figure_: "Figure | SubFigure"
    axes_: npt.NDArray[np.object_]

    def __init__(
        self, rows: Mapping[str, Mapping[str, PITHistogramDisplay | None]], *, label: str = ""
    ) -> None:
        present = {
            name: {column: display for column, display in row.items() if display is not None}
            for name, row in rows.items()
        }
        every = [display for row in present.values() for display in row.values()]
        if not every or any(len(display.names) != 1 for display in every):
            raise InputError("rows must hold histograms of one component each, one at least")
        self.rows = {name: row for name, row in present.items() if row}
        columns = dict.fromkeys(name for row in rows.values() for name in row)
        self.columns = [name for name in columns if any(name in row for row in present.values())]
        self.label = label or every[0].label

    @property
    def panels(self) -> list[list[tuple[str, PITHistogramDisplay | None]]]:
        """Title and histogram of each panel, row by row."""
        if len(self.rows) > 1:
            return [[(name, row.get(name)) for name in self.columns] for row in self.rows.values()]
        [row] = self.rows.values()
        lines = -(-len(row) // _MOST_COLUMNS)
        width = -(-len(row) // lines)
        panels: list[tuple[str, PITHistogramDisplay | None]] = [*row.items()]
        panels += [("", None)] * (lines * width - len(row))
        return [panels[start : start + width] for start in range(0, len(panels), width)]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        panels = self.panels
        return 1.5 * max(len(panels[0]), 2) + 0.8, 1.25 * len(panels) + 1.0

    @property
    def caption(self) -> str:
        """One sentence on which histograms leave their bands, and how."""
        named = {
            f"{row} {column}".strip(): display
            for row, displays in self.rows.items()
            for column, display in displays.items()
        }
        banded = {name: display for name, display in named.items() if display.band is not None}
        if not banded:
            return f"{self.label}: no band, since samples are weighted."
        shapes = [display.shapes[0] for display in banded.values()]
        level = max(display.band.level for display in banded.values() if display.band)
        own = next(iter(banded.values())).label  # decides the words
        caption = reliability_caption(own, list(banded), shapes, level=level)
        return f"{self.label}{caption.removeprefix(own)}"

    def plot(self, figure: "Figure | SubFigure | None" = None) -> Self:
        """Draw in the figure, or in a new one.

        Args:
            figure: an empty figure, or a part of one.
        """
        if figure is None:
            with needed_by("HistogramGrid.plot"):
                import matplotlib.pyplot as plt

            figure = plt.figure(figsize=self.size, layout="constrained")
        panels = self.panels
        shape = len(panels), len(panels[0])
        axes = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
        top = 0.0
        for i, line in enumerate(panels):
            for j, (title, display) in enumerate(line):
                ax = axes[i, j]
                if display is None:
                    ax.set_axis_off()
                    continue
                self._panel(ax, display)
                top = max(top, ax.get_ylim()[1])
                if len(self.rows) == 1 or not any(above.axison for above in axes[:i, j]):
                    ax.set_title(short_name(title), fontsize="small", parse_math=False)
        for name, across in zip(self.rows, axes, strict=False):
            words = f"{short_name(name)}\ndensity" if name else "density"
            first = next(ax for ax in across if ax.axison)
            first.set_ylabel(words, fontsize="small", parse_math=False)
            first.tick_params(labelleft=True)
        if len(self.rows) == 1:
            for ax in axes[:, 0]:
                ax.set_ylabel("density", fontsize="small")
        axes[0, 0].set_ylim(0, 1.15 * top)  # above the bars: the number of rows
        _name_bottom(axes)
        levels = {d.band.level for line in panels for _, d in line if d is not None and d.band}
        band = f" (grey: {100 * max(levels):g} % band of each panel)" if levels else ""
        figure.suptitle(f"{self.label}{band}", fontsize="medium", parse_math=False)
        self.figure_, self.axes_ = figure, axes
        return self

    def _panel(self, ax: "Axes", display: PITHistogramDisplay) -> None:
        """Draw one histogram, filled where it leaves its band."""
        outside = any(shape.outside for shape in display.shapes)
        look: dict[str, Any] = {"linewidth": 1.2}
        if outside:
            look |= {"fill": True, "color": COLOURS[1], "alpha": 0.6}
        display.plot(ax, legend=False, **look)
        ax.set_title("", loc="left")
        ax.set(xlabel="", ylabel="")
        ax.label_outer()
        ax.text(
            0.97,
            0.96,
            f"n = {display.band.n:,}" if display.band else "",
            transform=ax.transAxes,
            ha="right",
            va="top",
            fontsize="x-small",
        )
        ax.tick_params(labelsize="small")


def _name_bottom(axes: npt.NDArray[np.object_]) -> None:
    """Name the horizontal axis below the last panel of each column."""
    for column in axes.T:
        drawn = [ax for ax in column if ax.axison]
        if drawn:
            drawn[-1].set_xlabel("PIT", fontsize="small")
            drawn[-1].tick_params(labelbottom=True)
