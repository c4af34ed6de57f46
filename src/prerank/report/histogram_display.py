"""PIT histograms: are the bars level, and if not, what does their shape say?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from prerank.calibration import (
    DeviationShape,
    HistogramBand,
    PITHistogram,
    default_bins,
    histogram_band,
    histogram_shapes,
    pit_histogram,
)
from prerank.calibration.evidence import curve_shapes
from prerank.errors import ShapeError
from prerank.report.drawing import COLOURS, PITDisplay, short_name, split_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PITHistogramDisplay"]

_COLUMNS = 4


class PITHistogramDisplay(PITDisplay):
    r"""Histogram of the PITs of one pre-rank, one panel for each component.

    .. math:: h_b = \frac{B}{n} \#\{i : (b - 1) / B < Z_i \le b / B\}, \qquad b = 1, \dots, B

    Bars of a calibrated forecast have an expected height of 1. The grey band holds all of them at
    once with the probability that it states; each of several panels has its own chance to leave it.

    Args:
        histogram: of one predictor, `density` of shape `(bins, J)`.
        band: see `prerank.calibration.histogram_band`; None draws none, as for weighted samples,
            whose PITs are not exactly uniform.
        label: name of the pre-rank.
        names: names of the J components.
        curves: how the J reliability curves of the same PITs deviate: then curves and bars are
            read alike. By default, the bars are added up to a coarse curve.
        causes: what tests found in each of the J components, in words, empty where that is nothing.

    Attributes:
        ax_: the axes, after `plot`. Where there are several components, the panels lie in their
            place, and they themselves are hidden.
        figure_: their figure.
        axes_: the panels, of all components or, beyond 16, of those that deviate most; the axes
            themselves where J is 1.
        bars_: their outlines.
        bands_: their drawn bands, or an empty list.

    Example:
        >>> import torch
        >>> z = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
        >>> z[:, 0] = (3 * (z[:, 0] - 0.5)).sigmoid()
        >>> display = PITHistogramDisplay.from_pits(z, label="marginal", names=["rain", "wind"])
        >>> display.caption
        'marginal: PITs crowded in the middle (values too often near the predicted median) in rain;
        within the 95 % band in wind.'
        >>> display.figure_.savefig("histogram.png")  # doctest: +SKIP
    """

    _FORM, _ALONE = "density must have shape (bins, J)", "PITs"

    band: HistogramBand | None
    axes_: "list[Axes]"
    bars_: list[Any]
    bands_: list[Any]

    def __init__(
        self,
        histogram: PITHistogram,
        band: HistogramBand | None,
        *,
        label: str = "",
        names: Sequence[str] | None = None,
        curves: Sequence[DeviationShape] = (),
        causes: Sequence[str] = (),
    ) -> None:
        super().__init__(histogram.density, band, label, names, causes)
        bins = len(histogram.density)
        if band is not None and band.bins != bins:
            raise ShapeError(f"the band is for {band.bins} bins, but the histogram has {bins}")
        if curves and len(curves) != len(self.names):
            raise ShapeError(f"{len(curves)} curves for {len(self.names)} components")
        self.histogram = histogram
        self.curves = tuple(curves)

    @staticmethod
    def _measured(z: Tensor, level: float | None, *, bins: int | None = None) -> dict[str, Any]:
        n = z.shape[-2]
        histogram = pit_histogram(z, bins=default_bins(n) if bins is None else bins)
        parts: dict[str, Any] = {"histogram": histogram, "band": None}
        if level is not None and z.dim() == 2:  # a stack is refused later
            parts["band"] = histogram_band(n, histogram.density.shape[-2], level)
            parts["curves"] = curve_shapes(z, level=level)
        return parts

    def of_component(self, number: int) -> "PITHistogramDisplay":
        """One of the components, on its own.

        Args:
            number: from 0.
        """
        edges, density = self.histogram
        return PITHistogramDisplay(
            PITHistogram(edges, density[:, number : number + 1]),
            self._band_of(number),
            label=self.label,
            names=self.names[number : number + 1],
            curves=self.curves[number : number + 1],
            causes=self.causes[number : number + 1],
        )

    @property
    def is_empty(self) -> bool:
        """Whether there are no PITs, since all values are missing."""
        return all(self._empty)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        rows, columns = self._grid
        return (4.5, 3.2) if rows * columns == 1 else (1.8 * columns + 0.5, 1.5 * rows + 0.8)

    def plot(self, ax: "Axes | None" = None, *, legend: bool = True, **bar_options: Any) -> Self:
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw; several components take their place in panels of their own.
            legend: whether to name the band.
            bar_options: passed to `Axes.stairs` for every panel, such as `linewidth`.
        """
        ax = self._place(ax)
        several = len(self.names) > 1
        self.axes_ = self._panels(ax)
        density = self.histogram.density[:, self.drawn].detach().cpu().numpy()
        edges = self.histogram.edges.cpu().numpy()
        bounds = self._bounds
        top = max([float(np.nan_to_num(density).max()), 1.0, *(upper for _, upper in bounds)])
        options = {"color": COLOURS[0], "linewidth": 1.3, **bar_options}
        self.bars_, self.bands_ = [], []
        for j, panel in enumerate(self.axes_):
            if bounds:
                span = panel.axhspan(*bounds[j], color="0.85", linewidth=0)
                self.bands_.append(span)
            panel.axhline(1, color="0.5", linewidth=0.8)
            self.bars_.append(panel.stairs(density[:, j], edges, **options))
            panel.set(xlim=(0, 1), ylim=(0, 1.08 * top))
            panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
            if several:
                name = short_name(self.names[self.drawn[j]])
                panel.set_title(name, fontsize="small", parse_math=False)
        # Above the names of the panels, not above the hidden axes: layouts would let them overlap.
        title = short_name(self.label) + ("\n" if several else "")
        self.axes_[0].set_title(title, loc="left", parse_math=False)
        if legend and self.band is not None:
            self.axes_[self._grid[1] - 1].legend(
                self.bands_[:1],
                [f"{100 * self.band.level:g} % band"],
                loc="lower right",
                bbox_to_anchor=(1, 1),
                borderaxespad=2 if several else 0,
                fontsize="small",
                frameon=False,
            )
        return self

    @property
    def shapes(self) -> list[DeviationShape]:
        """How the bars deviate; an empty list where there is no band to judge them by.

        Bars and curves have each a band of their own, and what leaves it one meaning.
        """
        if self.band is None:
            return []
        own = histogram_shapes(self.histogram, self.band)
        return [
            curve._replace(outside=bars.outside)
            for curve, bars in zip(self.curves or own, own, strict=True)
        ]

    def _band_of(self, number: int) -> HistogramBand | None:
        """That of one component, where they have different ones."""
        if self.band is None or not isinstance(self.band.n, Tensor):
            return self.band
        ends = torch.as_tensor(self.band.lower), torch.as_tensor(self.band.upper)
        lower, upper = (float(end[number]) for end in ends)
        return self.band._replace(lower=lower, upper=upper, n=int(self.band.n[number]))

    @property
    def _bounds(self) -> list[tuple[float, float]]:
        """Lower and upper end of the band of each drawn component; none without a band."""
        if self.band is None:
            return []
        size = len(self.names)
        ends = (torch.as_tensor(end).expand(size) for end in (self.band.lower, self.band.upper))
        lower, upper = (end[self.drawn].tolist() for end in ends)
        return list(zip(lower, upper, strict=True))

    def _deviations(self) -> Tensor:
        density, edges = self.histogram.density, self.histogram.edges
        reached = density.cumsum(0) / len(density)  # of the curve, at the upper edges
        return (reached - edges[1:].unsqueeze(-1)).abs().mean(0).nan_to_num(0)

    @property
    def _grid(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        size = len(self.drawn)
        rows = -(-size // (2 if size <= _COLUMNS else _COLUMNS))  # two fit the width of a phone
        return rows, -(-size // rows)

    def _panels(self, ax: "Axes") -> "list[Axes]":
        """One for each component, with names of the axes at the outer ones."""
        rows, columns = self._grid
        panels: list[Axes] = [ax]
        if rows * columns > 1:
            panels = split_axes(ax, rows, columns).flatten().tolist()
        size = len(self.drawn)
        for panel in panels[size:]:
            panel.remove()
        panels = panels[:size]
        for panel in panels[::columns]:
            panel.set_ylabel("density")
        for panel in panels[-columns:]:  # the last ones of their columns
            panel.tick_params(labelbottom=True)
            panel.set_xlabel("PIT")
        return panels
