"""The path of evidence over rows, and the line at which it is an alarm."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from prerank.errors import ShapeError
from prerank.report.drawing import COLOURS, STYLES, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EvidenceDisplay"]

_LEAST = 1e-3  # where paths that lose are cut, since one that loses says nothing


class EvidenceDisplay(Display):
    r"""Evidence :math:`E_t` against the row t on a logarithmic axis, with the line of the alarm.

    Args:
        evidence: after each row, `(T,)`.
        threshold: at which it is an alarm.
        parts: evidence of each pre-rank, `(T,)`, by label.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
        lines_: the drawn paths, that of all pre-ranks together first.

    Example:
        >>> import numpy as np
        >>> display = EvidenceDisplay(np.exp(np.arange(10.0)), 100.0).plot()
        >>> display.caption
        'The evidence reaches 100 in row 6: alarm.'
    """

    lines_: list[Any]

    def __init__(
        self,
        evidence: npt.ArrayLike,
        threshold: float,
        *,
        parts: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        self.evidence = np.asarray(evidence, dtype=np.float64)
        self.threshold = threshold
        self.parts = {k: np.asarray(v, dtype=np.float64) for k, v in (parts or {}).items()}
        shapes = {path.shape for path in (self.evidence, *self.parts.values())}
        if shapes != {(self.evidence.size,)} or not self.evidence.size:
            raise ShapeError(f"evidence and its parts must be vectors of one length, got {shapes}")

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 6.4, 3.6

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw on the axes, or in a new figure."""
        ax = self._place(ax)
        rows = np.arange(1, len(self.evidence) + 1)
        looks: dict[str, Any] = {"color": "black", "linewidth": 2, "label": "all"}
        self.lines_ = ax.plot(rows, np.maximum(self.evidence, _LEAST), zorder=3, **looks)
        for k, (label, path) in enumerate(self.parts.items()):
            looks = {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k % len(STYLES)]}
            cut = np.maximum(path, _LEAST)
            self.lines_ += ax.plot(rows, cut, linewidth=1, label=label, **looks)
        ax.axhline(self.threshold, color="0.3", linestyle="--", label=f"alarm ({self.threshold:g})")
        ax.set(yscale="log", xlabel="row", ylabel="evidence against calibration")
        ax.legend(fontsize="small", ncols=2, frameon=False, loc="upper left")
        return self

    @property
    def caption(self) -> str:
        """One sentence: whether and where the evidence reaches the line."""
        reached = np.flatnonzero(self.evidence >= self.threshold)
        if len(reached):
            return f"The evidence reaches {self.threshold:g} in row {reached[0] + 1:,}: alarm."
        most = f"{self.evidence.max():.3g}"
        return f"The evidence stays below {self.threshold:g} (at most {most}): no alarm."
