"""One row's prediction region in two of its targets, among draws of the forecast."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count, as_tensor, column_names
from prerank.recalibration import PredictiveRegion
from prerank.report.corners import draw_row
from prerank.report.drawing import COLOURS, Display, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PredictionDisplay"]

_GRID = 80  # points along each side
_MARGIN = 0.15  # around the draws, in widths


class PredictionDisplay(Display):
    r"""Draws of one row's forecast inside and outside of its prediction region.

    .. math:: \{(Y_{si}, Y_{sj})\}_{s=1}^S, \qquad Y_s \in R(x) \ \text{or not}

    The area of the region itself is shaded where there are two targets. Of more, a point is seen
    inside or outside by all of them, so both kinds lie side by side in the picture of two; of one
    target it is a histogram.

    Args:
        region: of all rows.
        row: which one, counted from 0.
        targets: one or two of them, numbers or names.
        names: of all targets; y0, y1, ... by default.
        observation: `(D,)`, marked where it is given.
        n_samples: how many draws.
        generator: a generator or seed of the draws.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> from prerank.recalibration import predictive_region
        >>> dist = MultivariateNormal(torch.zeros(5, 2), torch.eye(2))
        >>> region = predictive_region(dist, 0.9, generator=0)
        >>> PredictionDisplay(region, 3).plot().caption
        'row 3: prediction region of level 0.9, with 428 of 500 draws of the forecast.'
    """

    def __init__(
        self,
        region: PredictiveRegion,
        row: int,
        *,
        targets: Sequence[int | str] = (0, 1),
        names: Sequence[str] | None = None,
        observation: object = None,
        n_samples: int = 500,
        generator: torch.Generator | int | None = 0,
    ) -> None:
        rows, dim = region.dist.batch_shape[0], region.dist.event_shape[0]
        if as_count(row, "row", minimum=0) >= rows:
            raise InputError(f"row must be below {rows}, the number of rows, got {row}")
        self.names = tuple(column_names(None, dim) if names is None else names)
        if len(self.names) != dim:
            raise ShapeError(f"{len(self.names)} names for {dim} targets: {list(self.names)}")
        self.region, self.row = region, row
        self.targets = (0,) if dim == 1 else _numbers(targets, self.names)
        self.samples = draw_row(
            region.dist, row, as_count(n_samples, "n_samples", minimum=2), generator
        )
        self.inside: npt.NDArray[np.bool_] = region.contains_points(self.samples, row).cpu().numpy()
        self.observation = None if observation is None else as_tensor(observation, "observation")
        if self.observation is not None and self.observation.shape != (dim,):
            raise ShapeError(
                f"observation has shape {tuple(self.observation.shape)}: it must be ({dim},)"
            )

    @property
    def caption(self) -> str:
        """Row, level, and how much of the forecast is inside."""
        words = (
            f"row {self.row}: prediction region of level {self.region.level:g}, with "
            f"{self.inside.sum()} of {len(self.inside)} draws of the forecast"
        )
        hidden = len(self.names) - len(self.targets)
        return (
            f"{words} ({len(self.targets)} of {len(self.names)} targets)."
            if hidden
            else f"{words}."
        )

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw.
        """
        ax = self._place(ax)
        columns = self.samples[:, list(self.targets)].double().cpu().numpy().T
        if len(columns) == 1:
            parts = [columns[0][self.inside], columns[0][~self.inside]]
            ax.hist(parts, bins=30, stacked=True, color=[COLOURS[0], "0.75"], label=_LABELS)
            ax.set_ylabel("draws")
        else:
            if len(self.names) == 2:
                self._shade(ax, columns)
            for chosen, colour, label in zip(
                (self.inside, ~self.inside), (COLOURS[0], "0.6"), _LABELS, strict=True
            ):
                x, y = columns[:, chosen]
                ax.plot(x, y, "o", color=colour, markersize=2.5, markeredgewidth=0, label=label)
            ax.set_ylabel(short_name(self.names[self.targets[1]]), parse_math=False)
        ax.set_xlabel(short_name(self.names[self.targets[0]]), parse_math=False)
        if self.observation is not None:
            seen = [float(self.observation[d]) for d in self.targets]
            mark: dict[str, Any] = {"color": COLOURS[1], "label": "observation"}
            if len(seen) == 1:
                ax.axvline(seen[0], **mark)
            else:
                ax.plot(*seen, "D", mec="k", **mark)
        ax.legend(fontsize="small", frameon=False)
        return self

    def _shade(self, ax: "Axes", columns: npt.NDArray[np.float64]) -> None:
        """Fill the area of the region, which is asked for on a grid."""
        low, high = columns.min(1), columns.max(1)
        edge = _MARGIN * np.where(high > low, high - low, 1.0)
        x, y = np.linspace(low - edge, high + edge, _GRID).T
        grid = torch.from_numpy(np.stack(np.meshgrid(x, y), -1).reshape(-1, 2))
        points: Tensor = grid[:, np.argsort(self.targets).tolist()].to(self.samples)
        inside = self.region.contains_points(points, self.row).double().cpu().numpy()
        area = inside.reshape(_GRID, _GRID)
        ax.contourf(x, y, area, levels=[0.5, 1.5], colors=[COLOURS[6]], alpha=0.35)


_LABELS = ["inside", "outside"]


def _numbers(targets: Sequence[int | str], names: tuple[str, ...]) -> tuple[int, ...]:
    """Numbers of one or two targets."""
    numbers = []
    for target in [targets] if isinstance(targets, int | str) else targets:
        if isinstance(target, str):
            if target not in names:
                raise InputError(f"targets has {target!r}, which is none of {', '.join(names)}")
            numbers.append(names.index(target))
        else:
            numbers.append(as_count(target, "targets", minimum=0, maximum=len(names) - 1))
    if len(numbers) not in (1, 2) or len(set(numbers)) < len(numbers):
        raise InputError(f"targets must be one or two different targets, got {targets!r}")
    return tuple(numbers)
