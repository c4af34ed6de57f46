"""Reliability diagrams: is a curve on the diagonal, and if not, what does its shape say?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributions import Distribution

from prerank.calibration import (
    DeviationShape,
    ReliabilityBand,
    ReliabilityCurve,
    deviation_shapes,
    reliability_band,
    reliability_curve,
)
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor, column_names
from prerank.pits import ProjectedPIT, project_pits
from prerank.pits.ranks import WEIGHTED
from prerank.preranks import PreRankLike, parse
from prerank.report.captions import reliability_caption
from prerank.report.colours import COLOURS, STYLES
from prerank.report.figure_text import NAMED, name_lines, names_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["ReliabilityDisplay", "ReliabilityGrid"]


class ReliabilityDisplay:
    r"""Reliability curves of one pre-rank, one line for each component.

    .. math:: \alpha \mapsto \hat F_Z(\alpha) = \tfrac1n \#\{Z_i \le \alpha\}

    The grey band holds a line of a right predictor with the probability that it states, at all
    levels at once; each of several lines has its own chance to leave it.

    Args:
        curve: of one predictor, `observed` of shape `(L, J)`.
        band: see `prerank.calibration.reliability_band`; None draws none, as for weighted samples,
            whose PITs are not exactly uniform.
        label: name of the pre-rank.
        names: names of the J components.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
        lines_: the J lines.
        band_: the drawn band, or None.

    Example:
        >>> z = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
        >>> display = ReliabilityDisplay.from_pits(z**2, label="marginal", names=["rain", "wind"])
        >>> display.caption
        'marginal: observed values lower than predicted in rain and wind.'
        >>> display.figure_.savefig("reliability.png")  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure | SubFigure"
    lines_: list[Any]
    band_: Any

    def __init__(
        self,
        curve: ReliabilityCurve,
        band: ReliabilityBand | None,
        *,
        label: str = "",
        names: Sequence[str] | None = None,
    ) -> None:
        if curve.observed.dim() != 2:
            raise ShapeError(
                f"a display shows one predictor: observed must have shape (L, J), got "
                f"{tuple(curve.observed.shape)}"
            )
        components = curve.observed.shape[1]
        self.curve = curve
        self.band = band
        self.label = label
        self.names = names_of(components, names, label or "curve")

    @classmethod
    def from_predictions(
        cls,
        dist: Distribution,
        y: object,
        prerank: PreRankLike,
        *,
        n_samples: int = 100,
        level: float = 0.95,
        levels: int = 100,
        generator: torch.Generator | int | None = None,
        ax: "Axes | None" = None,
    ) -> "ReliabilityDisplay":
        """Compute the PITs of predictions and draw them.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
            prerank: one pre-rank.
            n_samples: draws per row where there is no closed form.
            level: probability of the band.
            levels: number of levels of curve and band.
            generator: a generator or seed.
            ax: where to draw; a new figure by default.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> dist = MultivariateNormal(torch.zeros(200, 3), torch.eye(3))
            >>> y = 0.3 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
            >>> ReliabilityDisplay.from_predictions(dist, y, "marginal", generator=0).caption
            'marginal: predictions too wide in y0, y1 and y2.'
        """
        found, names = pits_and_names(dist, y, prerank, n_samples=n_samples, generator=generator)
        curve = reliability_curve(found.z, levels=levels)
        uniform = found.method != WEIGHTED
        band = reliability_band(found.z.shape[-2], level=level, levels=levels) if uniform else None
        return cls(curve, band, label=found.prerank.label, names=names).plot(ax)

    @classmethod
    def from_pits(
        cls,
        z: object,
        *,
        label: str = "",
        names: Sequence[str] | None = None,
        level: float = 0.95,
        levels: int = 100,
        ax: "Axes | None" = None,
    ) -> "ReliabilityDisplay":
        """Draw PITs `(N, J)` that are already there; the other arguments are as above."""
        curve = reliability_curve(z, levels=levels)
        band = reliability_band(as_tensor(z, "z").shape[-2], level=level, levels=levels)
        return cls(curve, band, label=label, names=names).plot(ax)

    def plot(
        self, ax: "Axes | None" = None, *, legend: bool = True, **line_options: Any
    ) -> "ReliabilityDisplay":
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw.
            legend: whether to name the lines.
            line_options: passed to `Axes.plot` for every line, such as `linewidth`.
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(4, 4), layout="constrained")
        levels = self.curve.levels.cpu().numpy()
        self.band_ = None
        if self.band is not None:
            self.band_ = ax.fill_between(
                self.band.levels.numpy(),
                self.band.lower.numpy(),
                self.band.upper.numpy(),
                color="0.85",
                linewidth=0,
                label=f"{100 * self.band.level:g} % band",
                gid=NAMED,
            )
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
        self.lines_ = []
        for j, name in enumerate(self.names):
            options = {
                "color": COLOURS[j % len(COLOURS)],
                "linestyle": STYLES[j % len(STYLES)],
                "linewidth": 1.3,
                "label": short_name(name),
                "gid": NAMED,
            }
            observed = self.curve.observed[:, j].cpu().numpy()
            self.lines_ += ax.plot(levels, observed, **{**options, **line_options})
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="level", ylabel="share of PITs up to it")
        ax.set_aspect("equal")
        ax.set_title(short_name(self.label), parse_math=False)
        if legend:
            name_lines(ax, fontsize="small", frameon=False, ncols=1 + len(self.names) // 8)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @property
    def shapes(self) -> list[DeviationShape]:
        """How each curve deviates; an empty list where there is no band to judge them by."""
        return [] if self.band is None else deviation_shapes(self.curve, self.band)

    @property
    def caption(self) -> str:
        """One sentence on what the shape of the curves means."""
        if self.band is None:
            return f"{self.label}: weighted samples, so there is no band to judge the curves by."
        return reliability_caption(self.label, self.names, self.shapes, level=self.band.level)


class ReliabilityGrid:
    """Reliability diagrams side by side: a row for each predictor, a column for each pre-rank.

    Args:
        rows: displays of each predictor, by its name; all with the same pre-ranks in order.

    Attributes:
        figure_: the figure, after `plot`.
        axes_: its axes, `(rows, columns)`.

    Example:
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
        longest = max(len(display.names) for row in self.rows.values() for display in row)
        return 2.5 * len(self.labels) + 0.5, 2.5 * len(self.rows) + 0.8 + 0.18 * longest

    def plot(self, figure: "Figure | SubFigure | None" = None) -> "ReliabilityGrid":
        """Draw in the figure, or in a new one.

        Args:
            figure: an empty figure, or a part of one.
        """
        if figure is None:
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
            name_lines(
                ax, loc="upper center", bbox_to_anchor=(0.5, -0.25), fontsize="small", frameon=False
            )
        self.figure_ = figure
        return self


def pits_and_names(
    dist: Distribution,
    y: object,
    prerank: PreRankLike,
    *,
    n_samples: int,
    generator: torch.Generator | int | None,
) -> tuple[ProjectedPIT, Sequence[str]]:
    """PITs of one pre-rank and the names of their components, for a display."""
    terms = parse(prerank)
    if len(terms) != 1:
        raise InputError(
            f"a display shows one pre-rank, got {len(terms)}: diagnose(...).plot() draws more"
        )
    found = project_pits(dist, y, terms, n_samples=n_samples, generator=generator)[0]
    names = found.prerank.component_names(column_names(y, dist.event_shape[0]), found.z.shape[-1])
    return found, names if len(names) > 1 else [found.prerank.label]
