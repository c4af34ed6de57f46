"""Prediction regions of a regressor: with the names of its targets, and pictures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from prerank.extras import needed_by
from prerank.files.encoding import in_order
from prerank.recalibration import PredictiveRegion
from prerank.report import PredictionDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PredictedRegion"]


class PredictedRegion(PredictiveRegion):
    """Joint prediction regions of all rows, in original units; `predict_region` makes them.

    A `PredictiveRegion` that knows its targets: `contains` takes a DataFrame with its columns in
    any order, and `plot` draws a row.

    Args:
        region: the same regions.
        names: of the targets.
    """

    def __init__(self, region: PredictiveRegion, names: Sequence[str]) -> None:
        vars(self).update(vars(region))
        self.names = tuple(names)

    def contains(self, y: Any) -> Tensor:
        """Whether each observation lies in the region of its row: `(N,)`, of truth values.

        Args:
            y: observations `(N, D)`, or `(N,)` of one target, in original units.
        """
        return super().contains(in_order(y, self.names))

    @needed_by("PredictedRegion.plot")
    def plot(
        self,
        row: int = 0,
        *,
        targets: Sequence[int | str] = (0, 1),
        y: Any = None,
        ax: "Axes | None" = None,
    ) -> PredictionDisplay:
        """Draw the region of a row in one or two targets, among draws of the forecast.

        Args:
            row: which one, counted from 0.
            targets: numbers or names.
            y: observations `(N, D)`, of which that of the row is marked.
            ax: where to draw; a new figure by default.
        """
        observation = None
        if y is not None:
            ordered: Any = in_order(y, self.names)
            own = ordered.iloc[row] if hasattr(ordered, "iloc") else ordered[row]
            observation = [float(value) for value in _listed(own)]
        display = PredictionDisplay(
            self, row, targets=targets, names=self.names, observation=observation
        )
        return display.plot(ax)


def _listed(values: Any) -> list[Any]:
    """Values of one row; a single one after a fit to a vector."""
    return [values] if np.ndim(values) == 0 else list(values)
