"""Where in the inputs PITs differ: a curve over one input, or a map of two."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from prerank.calibration.axes import Axis, InputColumn
from prerank.calibration.regions import Region, Score
from prerank.report.drawing import COLOURS, Display, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RegionDisplay"]

_BINS, _MAP_BINS = 20, 10
_DEGREES = {1: "location", 2: "spread", 3: "skew", 4: "tails", 5: "tails"}


class RegionDisplay(Display):
    r"""Mean of one score of the PITs over the inputs that bound a region, with the region marked.

    .. math:: \frac1{m_b} \sum_{i \in b} L_d(Z_i)

    for the rows of each bin b of the inputs. Zero is calibrated. Over one input the bars are two
    standard errors, and the region is shaded; two inputs span a map, with a frame around it.

    Args:
        region: see `prerank.calibration.regions.find_regions`.
        columns: the inputs that bound it, one or two.
        values: the score of each row, `(N,)`.
        label: name of what is scored.
        score: its pre-rank, component and degree.
        words: what the region means, which is the caption.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
    """

    def __init__(
        self,
        region: Region,
        columns: Sequence[InputColumn],
        values: Tensor,
        label: str,
        score: Score,
        words: str,
    ) -> None:
        self.region, self.columns = region, tuple(columns)
        self.values = values.numpy()
        self.label, self.words = f"{short_name(label)}: {_DEGREES[score.degree]} of PITs", words

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 4.4, 3.4

    @property
    def caption(self) -> str:
        """The region and its fault, in words."""
        return self.words

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw.
        """
        ax = self._place(ax)
        if len(self.columns) == 1:
            self._curve(ax)
        else:
            self._map(ax)
        ax.set_title(self.label, parse_math=False)
        return self

    def _curve(self, ax: "Axes") -> None:
        axis = self.columns[0].cut(_BINS)
        counts, means = self._means([axis])
        used = counts > 1
        places = np.arange(axis.bins)
        errors = 2 * self.values.std() / np.sqrt(np.maximum(counts, 1))
        ax.axhline(0, color="0.5", linewidth=0.8)
        start, stop = self._side(axis)
        ax.axvspan(start, stop, color=COLOURS[5], alpha=0.3, linewidth=0)
        ax.errorbar(
            places[used], means[used], errors[used], fmt="o", markersize=4, color=COLOURS[0]
        )
        ax.set_ylabel("mean score (0 is calibrated)")
        self._name_bins(ax, axis, "x")

    def _map(self, ax: "Axes") -> None:
        axes = [column.cut(_MAP_BINS) for column in self.columns]
        counts, means = self._means(axes)
        grid = np.where(counts > 0, means, np.nan).reshape([axis.bins for axis in axes])
        top = np.nanmax(np.abs(grid))
        image = ax.imshow(grid.T, origin="lower", aspect="auto", cmap="PuOr", vmin=-top, vmax=top)
        ax.figure.colorbar(image, ax=ax, label="mean score (0 is calibrated)")
        (left, right), (bottom, top_) = (self._side(axis) for axis in axes)
        xs, ys = [left, right, right, left, left], [bottom, bottom, top_, top_, bottom]
        ax.plot(xs, ys, color="black", linewidth=2)
        self._name_bins(ax, axes[0], "x")
        self._name_bins(ax, axes[1], "y")

    def _means(self, axes: Sequence[Axis]) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
        """Number of rows and mean score of each cell."""
        shape = [axis.bins for axis in axes]
        cells = np.ravel_multi_index([axis.codes for axis in axes], shape)
        counts = np.bincount(cells, minlength=math.prod(shape))
        sums = np.bincount(cells, self.values, minlength=len(counts))
        return counts, sums / np.maximum(counts, 1)

    def _side(self, axis: Axis) -> tuple[float, float]:
        """From where to where the region reaches, in bins; inside one, by the share of its rows."""
        names = [condition.name for condition in self.region.conditions]
        met = axis.column.meets(self.region.conditions[names.index(axis.column.name)])
        counts = np.bincount(axis.codes, minlength=axis.bins)
        shares = np.bincount(axis.codes[met], minlength=axis.bins) / np.maximum(counts, 1)
        low, high = np.flatnonzero(shares)[[0, -1]]
        if low == high:
            return low - 0.5, low + 0.5
        return low + 0.5 - shares[low], high - 0.5 + shares[high]

    def _name_bins(self, ax: "Axes", axis: Axis, which: str) -> None:
        """Write values, or levels, below some of the bins."""
        numbers = [f"{value:.3g}" for value in (axis.lows + axis.highs) / 2]
        names = [short_name(name) for name in [*numbers, *axis.column.levels]]
        step = 1 if len(axis.column.levels) > 1 else max(1, math.ceil(len(names) / 6))
        at = list(range(0, len(names), step))
        if which == "x":
            ax.set_xticks(at, [names[i] for i in at], rotation=45 if step == 1 else 0)
            ax.set_xlabel(short_name(axis.column.name), parse_math=False)
        else:
            ax.set_yticks(at, [names[i] for i in at])
            ax.set_ylabel(short_name(axis.column.name), parse_math=False)
