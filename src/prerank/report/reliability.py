"""Reliability diagrams: is a curve on the diagonal, and if not, what does its shape say?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from prerank.calibration import (
    DeviationShape,
    ReliabilityBand,
    ReliabilityCurve,
    deviation_shapes,
    reliability_band,
    reliability_curve,
)
from prerank.defaults import LEVELS
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.report.drawing import COLOURS, NAMED, STYLES, PITDisplay, name_lines, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["ReliabilityDisplay", "ReliabilityGrid"]


class ReliabilityDisplay(PITDisplay):
    r"""Reliability curves of one pre-rank, one line for each component.

    .. math:: \alpha \mapsto \hat F_Z(\alpha) = \tfrac1n \#\{Z_i \le \alpha\}

    The grey band holds a line of a calibrated forecast with the probability that it states, at all
    levels at once; each of several lines has its own chance to leave it. Lines of different numbers
    of PITs have each a band of their own, the lighter ones of fewer.

    Args:
        curve: of one predictor, `observed` of shape `(L, J)`.
        band: see `prerank.calibration.reliability_band`; None draws none, as for weighted samples,
            whose PITs are not exactly uniform.
        label: name of the pre-rank.
        names: names of the J components.
        causes: what tests found in each of the J components, in words, empty where that is nothing.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
        lines_: the lines, of all components or, beyond 16, of those that deviate most.
        band_: the drawn band, or None.

    Example:
        >>> import torch
        >>> z = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
        >>> display = ReliabilityDisplay.from_pits(z**2, label="marginal", names=["rain", "wind"])
        >>> display.caption
        'marginal: PITs too small (values too often below the predicted median) in rain and wind.'
        >>> display.figure_.savefig("reliability.png")  # doctest: +SKIP
    """

    _FORM, _ALONE = "observed must have shape (L, J)", "curve"

    band: ReliabilityBand | None
    lines_: list[Any]
    band_: Any

    def __init__(
        self,
        curve: ReliabilityCurve,
        band: ReliabilityBand | None,
        *,
        label: str = "",
        names: Sequence[str] | None = None,
        causes: Sequence[str] = (),
    ) -> None:
        super().__init__(curve.observed, band, label, names, causes)
        self.curve = curve

    @staticmethod
    def _measured(z: Tensor, level: float | None, *, levels: int = LEVELS) -> dict[str, Any]:
        band = None
        if level is not None:
            band = reliability_band(z.shape[-2], level=level, levels=levels)
        return {"curve": reliability_curve(z, levels=levels), "band": band}

    def plot(self, ax: "Axes | None" = None, *, legend: bool = True, **line_options: Any) -> Self:
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw.
            legend: whether to name the lines.
            line_options: passed to `Axes.plot` for every line, such as `linewidth`.
        """
        ax = self._place(ax)
        levels = self.curve.levels.cpu().numpy()
        self.band_ = None
        if self.band is not None:
            ends = (end.reshape(len(levels), -1) for end in (self.band.lower, self.band.upper))
            bounds = [(end if end.shape[1] == 1 else end[:, self.drawn]).T.numpy() for end in ends]
            # Those of components with fewer PITs are wider: they lie below, and are lighter.
            pairs = sorted(zip(*bounds, strict=True), key=lambda pair: -(pair[1] - pair[0]).sum())
            for k, (lower, upper) in enumerate(pairs):
                drawn = ax.fill_between(
                    self.band.levels.numpy(),
                    lower,
                    upper,
                    color=str(0.85 if len(pairs) == 1 else 0.92 - 0.14 * k / (len(pairs) - 1)),
                    linewidth=0,
                )
                if k == 0:
                    drawn.set(label=f"{100 * self.band.level:g} % band", gid=NAMED)
                    self.band_ = drawn
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
        self.lines_ = []
        for k, j in enumerate(self.drawn):
            options = {
                "color": COLOURS[k % len(COLOURS)],
                "linestyle": STYLES[k % len(STYLES)],
                "linewidth": 1.3,
                "label": short_name(self.names[j]),
                "gid": NAMED,
            }
            observed = self.curve.observed[:, j].cpu().numpy()
            self.lines_ += ax.plot(levels, observed, **{**options, **line_options})
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="level", ylabel="share of PITs up to it")
        ax.set_aspect("equal")
        ax.set_title(short_name(self.label), parse_math=False)
        if legend:
            # In the corner that the curves leave: the search for "best" takes its time.
            above = bool((self.curve.observed.nanmean(-1) - self.curve.levels).mean() > 0)
            corner = "lower right" if above else "upper left"
            name_lines(ax, loc=corner, ncols=1 + len(self.drawn) // 8)
        return self

    def _deviations(self) -> Tensor:
        return (self.curve.observed - self.curve.levels.unsqueeze(-1)).abs().mean(0).nan_to_num(0)

    @property
    def shapes(self) -> list[DeviationShape]:
        """How each curve deviates; an empty list where there is no band to judge them by."""
        return [] if self.band is None else deviation_shapes(self.curve, self.band)


class ReliabilityGrid:
    """Reliability diagrams side by side: a row for each predictor, a column for each pre-rank.

    Args:
        rows: displays of each predictor, by its name; all with the same pre-ranks in order.

    Attributes:
        figure_: the figure, after `plot`.
        axes_: its axes, `(rows, columns)`.

    Example:
        >>> import torch
        >>> z = torch.rand(2, 300, 1, generator=torch.Generator().manual_seed(0))
        >>> before, after = (
        ...     [ReliabilityDisplay(reliability_curve(part), reliability_band(300), label="scale")]
        ...     for part in (z[0] ** 3, z[1])
        ... )
        >>> ReliabilityGrid({"before": before, "after": after}).plot().axes_.shape
        (2, 1)
    """

    figure_: "Figure | SubFigure"
    axes_: npt.NDArray[np.object_]

    def __init__(self, rows: Mapping[str, Sequence[ReliabilityDisplay]]) -> None:
        columns = [[display.label for display in row] for row in rows.values()]
        if not columns or not columns[0] or any(labels != columns[0] for labels in columns):
            raise InputError(f"rows must show the same pre-ranks, one at least, got {columns}")
        self.rows = {name: tuple(row) for name, row in rows.items()}
        self.labels = tuple(columns[0])

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        longest = max(len(display.drawn) for row in self.rows.values() for display in row)
        return 2.5 * len(self.labels) + 0.5, 2.5 * len(self.rows) + 0.8 + 0.18 * longest

    def plot(self, figure: "Figure | SubFigure | None" = None) -> Self:
        """Draw in the figure, or in a new one.

        Args:
            figure: an empty figure, or a part of one.
        """
        if figure is None:
            with needed_by("ReliabilityGrid.plot"):
                import matplotlib.pyplot as plt

            figure = plt.figure(figsize=self.size, layout="constrained")
        shape = len(self.rows), len(self.labels)
        self.axes_ = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
        for i, (name, displays) in enumerate(self.rows.items()):
            axes = self.axes_[i]
            for ax, display in zip(axes, displays, strict=True):
                display.plot(ax, legend=False)
                ax.label_outer()
                if i > 0:
                    ax.set_title("")
            if name:
                axes[0].set_ylabel(f"{name}\n{axes[0].get_ylabel()}")
        for ax in self.axes_[-1]:  # below the last row, where names of any length have room
            name_lines(ax, loc="upper center", bbox_to_anchor=(0.5, -0.25))
        self.figure_ = figure
        return self
