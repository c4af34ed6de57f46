"""Reliability over time: bias and spread of PITs in one period after the other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

from prerank.calibration.dependent_rows import row_units
from prerank.calibration.periods import PeriodMeans, period_means, periods_of
from prerank.defaults import BAND_LEVEL
from prerank.errors import ShapeError
from prerank.report.drawing import (
    COLOURS,
    MOST_DRAWN,
    NAMED,
    STYLES,
    Display,
    name_lines,
    short_name,
    split_axes,
)
from prerank.report.wording import grouped_names, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["TimelineDisplay"]

_MOST_LABELS = 8
_FEW_PERIODS = 4  # that a caption names


class TimelineDisplay(Display):
    r"""Bias and spread of PITs in each period: means of :math:`Z` and of :math:`|2Z - 1|`.

    Both are 1/2 where calibrated.

    The band holds each line in all periods at once with the probability that it states; each of
    several lines has its own chance to leave it. Where lines have bands of different widths, the
    widest serves all. Points outside are large.

    Args:
        means: see `prerank.calibration.periods.period_means`.
        label: name of the pre-rank.
        names: names of the J components.
        band: whether to draw one; False for weighted samples.

    Attributes:
        ax_: the axes, after `plot`, which are hidden behind the two panels.
        figure_: their figure.
        axes_: the panels, of the location and of the spread.
        lines_: their lines.

    Example:
        >>> import torch
        >>> z = torch.rand(900, 1, generator=torch.Generator().manual_seed(0))
        >>> z[600:] = z[600:] ** 2
        >>> TimelineDisplay.from_pits(z, range(900), every=300, label="location").caption
        'location: mean PIT too small in 600; spread too large in 600.'
    """

    axes_: "list[Axes]"
    lines_: list[Any]

    def __init__(
        self,
        means: PeriodMeans,
        *,
        label: str = "",
        names: Sequence[str] | None = None,
        band: bool = True,
    ) -> None:
        size = means.location.shape[1]
        if names is None:
            names = [str(j) for j in range(size)] if size > 1 else [label or "PITs"]
        if len(names) != size:
            raise ShapeError(f"{len(names)} names for {size} components: {list(names)}")
        self.means, self.label, self.names, self.band = means, label, tuple(names), band

    @classmethod
    def from_pits(
        cls,
        z: object,
        time: object,
        *,
        every: str | float = "month",
        label: str = "",
        names: Sequence[str] | None = None,
        level: float = BAND_LEVEL,
        dependent: bool = False,
        ax: "Axes | None" = None,
    ) -> Self:
        """Draw PITs `(N, J)` that are already there.

        Args:
            z: PITs.
            time: of each row, `(N,)`: dates, also as text, or numbers.
            every: `"year"`, `"month"`, `"week"`, `"day"`, or a number in the unit of numeric times.
            label: name of the pre-rank.
            names: names of the J components.
            level: probability of the band.
            dependent: whether rows of the same and of neighbouring times may depend on each other.
            ax: where to draw; a new figure by default.
        """
        n = len(np.asarray(z))
        rows = row_units(time, None, n) if dependent else None
        means = period_means(z, periods_of(time, every, n), rows, level=level)
        return cls(means, label=label, names=names).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 6.6, 4.4

    @property
    def drawn(self) -> list[int]:
        """Numbers of the components that are drawn: all, or the 16 that deviate most."""
        if len(self.names) <= MOST_DRAWN:
            return list(range(len(self.names)))
        away = sum((part - 0.5).abs().nanmean(0).nan_to_num(0) for part in self._parts)
        assert isinstance(away, Tensor)
        return sorted(away.argsort(descending=True, stable=True)[:MOST_DRAWN].tolist())

    @property
    def caption(self) -> str:
        """Which lines leave the band, when and to which side."""
        start = f"{self.label}: " if self.label else ""
        if not self.band:
            return f"{start}no band, since samples are weighted."
        inside = f"within the {100 * self.means.level:g} % band"
        words = []
        for name, part, reach in zip(("mean PIT", "spread"), self._parts, self._reach, strict=True):
            meanings = [
                "no values" if line.isnan().all() else self._when(line, reach) or inside
                for line in part.T
            ]
            found = grouped_names(zip(self.names, meanings, strict=True), total=len(self.names))
            words.append(f"{name} {found}")
        return f"{start}{'; '.join(words)}."

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw on the axes, or in a new figure; two panels take their place.

        Args:
            ax: where to draw.
        """
        ax = self._place(ax)
        self.axes_ = split_axes(ax, 2, 1, sharey="none").flatten().tolist()
        at = np.arange(len(self.means.periods))
        self.lines_ = []
        for panel, part, reach in zip(self.axes_, self._parts, self._reach, strict=True):
            if self.band:
                self._shade(panel, at, reach.numpy())
            panel.axhline(0.5, color="0.5", linewidth=0.8)
            for k, j in enumerate(self.drawn):
                out = ((part[:, j] - 0.5).abs() > reach).numpy() & self.band
                look: dict[str, Any] = {
                    "color": COLOURS[k % len(COLOURS)],
                    "linestyle": STYLES[k % len(STYLES)],
                }
                name = short_name(self.names[j])
                line = panel.plot(
                    at, part[:, j], marker="o", markersize=3, label=name, gid=NAMED, **look
                )
                self.lines_ += line
                panel.plot(at[out], part[:, j].numpy()[out], "o", markersize=7, color=look["color"])
        self.axes_[0].set_ylabel("mean PIT\n(bias)")
        self.axes_[1].set_ylabel("mean |2 PIT - 1|\n(above: too narrow)")
        self._name_periods(self.axes_[1])
        self.axes_[0].set_title(short_name(self.label), loc="left", parse_math=False)
        name_lines(self.axes_[1], loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=5)
        return self

    @property
    def _reach(self) -> Tensor:
        """How far from 1/2 all lines stay, `(2, K)`."""
        return self.means.reach.amax(-1)

    @property
    def _parts(self) -> tuple[Tensor, Tensor]:
        return self.means.location, self.means.spread

    def _when(self, part: Tensor, reach: Tensor) -> str:
        """In which periods a line leaves the band, and to which side; empty where it does not."""
        sides = {"too small": part < 0.5 - reach, "too large": part > 0.5 + reach}
        found = []
        for words, out in sides.items():
            names = [self.means.periods[k] for k in out.nonzero().flatten().tolist()]
            if names:
                few = listed(names) if len(names) <= _FEW_PERIODS else f"{len(names)} periods"
                found.append(f"{words} in {few}")
        return " and ".join(found)

    def _shade(self, ax: "Axes", at: Any, reach: Any) -> None:
        """The band, a step for each period."""
        edges = np.repeat(at, 2) + np.tile([-0.5, 0.5], len(at))
        wide = np.repeat(reach, 2)
        ax.fill_between(
            edges,
            0.5 - wide,
            0.5 + wide,
            color="0.88",
            linewidth=0,
            label=f"{100 * self.means.level:g} % band",
            gid=NAMED,
        )
        ax.set_xlim(-0.5, len(at) - 0.5)

    def _name_periods(self, ax: "Axes") -> None:
        step = -(-len(self.means.periods) // _MOST_LABELS)
        at = list(range(0, len(self.means.periods), step))
        ax.set_xticks(at, [self.means.periods[k] for k in at])
        ax.tick_params(labelbottom=True)
