"""Corner plots: one prediction in pairs of targets, and where the observation fell."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Ensemble, draw
from prerank.errors import InputError, ShapeError
from prerank.inputs import (
    as_count,
    as_generator,
    as_tensor,
    check_distribution,
    check_finite,
    check_observations,
    column_names,
)
from prerank.report.drawing import COLOURS, Display, short_name, split_axes
from prerank.report.positions import position_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CornerDisplay", "draw_row"]

_DRAWN = 2000  # more points than this hide each other
_CHUNK_VALUES = 2**22  # points times targets at a time

Array = npt.NDArray[np.float64]


class CornerDisplay(Display):
    r"""Samples of one row's prediction in all pairs of targets, with the observation.

    .. math:: \{(Y_{sj}, Y_{si})\}_{s=1}^S \text{ below the diagonal}, \qquad
              \{Y_{sj}\}_{s=1}^S \text{ on it}

    The caption says in which targets the observation lies in the outer 5 % of the samples (of many
    targets some do, if the prediction is right), and how many samples are less far out than it is,
    all targets together: see `prerank.report.positions`.

    Args:
        samples: `(S, D)`, S >= 2.
        observation: `(D,)`.
        names: of the D targets; y0, y1, ... by default.
        label: what the prediction is of, such as "row 3".
        max_targets: how many targets are drawn; the caption is about all of them.

    Attributes:
        ax_: the axes, after `plot`. Where there are several targets, the panels lie in their place,
            and they themselves are hidden but for the legend.
        figure_: their figure.
        axes_: panels `(D, D)`, at most `max_targets` each way; None above the diagonal.

    Example:
        >>> samples = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> display = CornerDisplay(samples, [0.2, 5.0], ["rain", "wind"]).plot()
        >>> display.caption
        'observation in the outer 5 % of the margin of wind (higher than predicted), and farther out
        than every sample, all targets together.'
        >>> display.figure_.savefig("corner.png")  # doctest: +SKIP
    """

    axes_: npt.NDArray[np.object_]

    def __init__(
        self,
        samples: object,
        observation: object,
        names: Sequence[str] | None = None,
        *,
        label: str = "",
        max_targets: int = 8,
    ) -> None:
        points = as_tensor(samples, "samples")
        if points.dim() != 2 or len(points) < 2 or points.shape[1] < 1:
            raise ShapeError(
                f"samples must have shape (S, D), at least two samples of one row, got "
                f"{tuple(points.shape)}"
            )
        check_finite(points, "samples", "they cannot be drawn")
        observed = as_tensor(observation, "observation")
        check_finite(observed, "observation", "it cannot be drawn")
        if observed.shape != points.shape[1:]:
            raise ShapeError(
                f"observation has shape {tuple(observed.shape)}, but samples has "
                f"{tuple(points.shape)}: observation must be {tuple(points.shape[1:])}"
            )
        names = column_names(None, points.shape[1]) if names is None else names
        if len(names) != points.shape[1]:
            raise ShapeError(f"{len(names)} names for {points.shape[1]} targets: {list(names)}")
        self.samples: Array = points.detach().double().cpu().numpy()
        self.observation: Array = observed.detach().double().cpu().numpy()
        self.names = tuple(names)
        self.label = label
        self.max_targets = as_count(max_targets, "max_targets", minimum=1)

    @classmethod
    def from_predictions(
        cls,
        dist: Distribution,
        y: object,
        row: int,
        *,
        n_samples: int = 500,
        max_targets: int = 8,
        generator: torch.Generator | int | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw samples of one row's prediction, and show them.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
            row: which one, counted from 0.
            n_samples: how many draws. An `Ensemble` shows its members, a weighted one n_samples of
                them, drawn by their weights.
            max_targets: how many targets are drawn.
            generator: a generator or seed.
            ax: where to draw; a new figure by default.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> dist = MultivariateNormal(torch.zeros(40, 3), torch.eye(3))
            >>> CornerDisplay.from_predictions(dist, dist.mean, 7, generator=0).axes_.shape
            (3, 3)
        """
        check_distribution(dist)
        if len(dist.batch_shape) != 1:
            raise ShapeError(
                f"a display shows one predictor: dist must have batch_shape (N,), got "
                f"{tuple(dist.batch_shape)}"
            )
        observed = check_observations(dist, y)
        if as_count(row, "row", minimum=0) >= len(observed):
            raise InputError(f"row must be below {len(observed)}, the number of rows, got {row}")
        samples = draw_row(dist, row, as_count(n_samples, "n_samples", minimum=2), generator)
        names = column_names(y, observed.shape[-1])
        display = cls(samples, observed[row], names, label=f"row {row}", max_targets=max_targets)
        return display.plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        shown = min(len(self.names), self.max_targets)
        return (4.0, 3.2) if shown == 1 else (1.15 * shown + 1.6, 1.15 * shown + 1.2)

    def plot(self, ax: "Axes | None" = None, *, legend: bool = True) -> Self:
        """Draw in the place of the axes, or in a new figure.

        Args:
            ax: where to draw.
            legend: whether to say which is the observation.
        """
        ax = self._place(ax)
        shown = min(len(self.names), self.max_targets)
        self.axes_ = np.full((shown, shown), ax, dtype=object)
        if shown > 1:
            self.axes_ = split_axes(ax, shown, shown, sharex="col", sharey="none")
        for i, j in np.ndindex(shown, shown):
            panel: Axes = self.axes_.item(i, j)
            if j > i:
                panel.remove()
                self.axes_[i, j] = None
                continue
            self._panel(panel, i, j)
            outer = i == shown - 1, j == 0 < i
            panel.tick_params(labelsize="x-small", labelbottom=outer[0], labelleft=outer[1])
            if outer[0]:
                panel.set_xlabel(short_name(self.names[j]), fontsize="small", parse_math=False)
            if outer[1]:
                panel.set_ylabel(short_name(self.names[i]), fontsize="small", parse_math=False)
            if shown > 3:
                panel.tick_params(axis="x", labelrotation=45)
        if shown > 1:
            ax.figure.align_xlabels(self.axes_[-1])
            ax.figure.align_ylabels(self.axes_[1:, 0])
        if legend:
            self._legend(ax, alone=shown == 1)
        return self

    @property
    def caption(self) -> str:
        """One sentence: in which targets, and how far together, the observation is far out."""
        sentence = position_words(self.samples, self.observation, self.names)
        if len(self.names) > self.max_targets:
            sentence += f" (the first {self.max_targets} of {len(self.names)} are shown)"
        return f"{self.label}: {sentence}." if self.label else f"{sentence}."

    def _panel(self, ax: "Axes", i: int, j: int) -> None:
        """Target j across; target i up, or the histogram of j where they are the same."""
        from matplotlib.ticker import MaxNLocator

        mark: dict[str, Any] = {"color": COLOURS[1], "linewidth": 1.3}
        ax.axvline(self.observation[j], **mark)
        ax.set_xlim(*self._limits(j))
        if i == j:
            column = self.samples[:, j]
            bins = min(30, max(8, round(len(column) ** 0.5)))
            ax.hist(column, bins=bins, histtype="stepfilled", color="0.75", zorder=0.5)
            ax.set_yticks([])
        else:
            samples = self.samples[:: -(-len(self.samples) // _DRAWN)]
            ax.axhline(self.observation[i], **mark)
            ax.plot(
                samples[:, j],
                samples[:, i],
                linestyle="none",
                marker="o",
                markersize=2,
                markeredgewidth=0,
                color=COLOURS[0],
                alpha=min(1.0, max(0.25, 150 / len(samples))),
                rasterized=True,
                zorder=0.5,
            )
            ax.plot(self.observation[j], self.observation[i], "D", color=COLOURS[1], ms=5, mec="k")
            ax.set_ylim(*self._limits(i))
            ax.yaxis.set_major_locator(MaxNLocator(3, prune="both"))
        ax.xaxis.set_major_locator(MaxNLocator(3, prune="both"))

    def _limits(self, target: int) -> tuple[float, float]:
        column = np.append(self.samples[:, target], self.observation[target])
        low, high = float(column.min()), float(column.max())
        margin = 0.06 * (high - low) or 0.5
        return low - margin, high + margin

    def _legend(self, ax: "Axes", *, alone: bool) -> None:
        from matplotlib.lines import Line2D

        seen = Line2D([], [], color=COLOURS[1], marker="D", mec="k", ms=5, label="observation")
        text = f"{len(self.samples)} samples"
        dots = Line2D([], [], linestyle="none", marker="o", color=COLOURS[0], ms=3, label=text)
        ax.legend(
            handles=[seen] if alone else [dots, seen],
            title=self.label or None,
            fontsize="small",
            frameon=False,
            loc="lower right" if alone else "upper right",
            bbox_to_anchor=(1, 1) if alone else None,
        )


def draw_row(
    dist: Distribution, row: int, size: int, generator: torch.Generator | int | None
) -> Tensor:
    """Samples `(S, D)` of one row, without holding those of all rows at once."""
    if isinstance(dist, Ensemble):
        members = dist.samples[:, row]
        if dist.weights is None:
            return members
        own = Ensemble(members.unsqueeze(1), dist.weights[:, row : row + 1])
        return own.sample((size,), generator=generator).squeeze(1)
    source = as_generator(generator, "draw")
    block = max(2, _CHUNK_VALUES // (dist.batch_shape + dist.event_shape).numel())
    parts = []
    for start in range(0, size, block):
        count = min(block, size - start)
        parts.append(draw(dist, max(count, 2), generator=source).points[:count, row])
    return torch.cat(parts)
