"""Strength-selection traces: what calibration costs in accuracy, and why a strength was chosen."""

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from prerank.errors import InputTypeError
from prerank.report.annotations import write_beside
from prerank.report.drawing import COLOURS, Display
from prerank.report.wording import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from prerank.training.selection import Judgement, Selection

__all__ = ["SelectionDisplay"]

_BEYOND = 3.0  # budgets; a point that costs more is drawn at the edge
_LEAST_EDGE = 30.0  # per cent
# Shapes tell the kinds of points apart without their colours.
_UNPENALISED, _KEPT = "unpenalised", "unpenalised, kept"
_CHOSEN, _QUALIFIES, _FAILS = "chosen", "qualifies", "does not qualify"
_LOOKS: dict[str, dict[str, Any]] = {
    _UNPENALISED: {"marker": "s", "color": COLOURS[3], "markersize": 7},
    _KEPT: {"marker": "s", "color": COLOURS[3], "markersize": 10, "markeredgecolor": "black"},
    _QUALIFIES: {"marker": "o", "color": COLOURS[0], "markersize": 7},
    _FAILS: {"marker": "o", "color": COLOURS[0], "markersize": 7, "markerfacecolor": "white"},
    _CHOSEN: {"marker": "*", "color": COLOURS[1], "markersize": 16, "markeredgecolor": "black"},
}


class SelectionDisplay(Display):
    r"""Excess against the change of the energy score, one point for each strength.

    .. math:: \Big(100 \Big(\frac{\bar e_\lambda}{\bar e_0} - 1\Big),\; \bar c_\lambda\Big)

    with :math:`\bar e_\lambda` the mean energy score and :math:`\bar c_\lambda` the mean excess of
    the paired runs on validation rows. Lower is better calibrated, further right is less accurate,
    and what lies right of the vertical line costs more than the budget. Bars are one standard error
    of the paired difference from strength 0, which therefore has none.

    A strength whose results are not finite has no point: the caption names it. One that costs more
    than three budgets (and 30 %) is drawn at the edge with its cost, so that the others stay apart.

    Args:
        selection: see `prerank.training.choose_strength`.

    Attributes:
        ax_: the axes, after `plot`.
        figure_: their figure.
        points_: the drawn point of each strength, in ascending order.
        budget_: the line of the budget.

    Example:
        >>> import numpy as np
        >>> from prerank.training import Trial, choose_strength
        >>> base = Trial(0.0, np.array([0.05, 0.06]), np.array([1.0, 1.1]))
        >>> good = Trial(1.0, np.array([0.01, 0.02]), np.array([1.02, 1.12]))
        >>> display = SelectionDisplay(choose_strength([base, good])).plot()
        >>> display.caption
        'strength 1 has the lowest excess, 0.0150 against 0.0550, at +1.9% energy score.'
        >>> display.figure_.savefig("selection.png")  # doctest: +SKIP
    """

    points_: dict[float, Any]
    budget_: Any

    def __init__(self, selection: "Selection") -> None:
        from prerank.training.selection import Selection

        if not isinstance(selection, Selection):
            raise InputTypeError(
                f"selection must be a prerank.training.Selection, got {type(selection).__name__}: "
                "choose_strength returns one"
            )
        self.selection = selection

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches at which the writing is legible."""
        return 4.6, 3.6

    def plot(self, ax: "Axes | None" = None, *, legend: bool = True) -> Self:
        """Draw on the axes, or in a new figure.

        Args:
            ax: where to draw.
            legend: whether to say what the shapes of the points mean.
        """
        ax = self._place(ax)
        budget = 100 * self.selection.budget
        edge = max(_BEYOND * budget, _LEAST_EDGE)
        drawn = [judgement for judgement in self.selection.trace if _finite(judgement)]
        places = [(min(_cost(judgement), edge), judgement.excess) for judgement in drawn]
        ax.axhline(0, color="0.5", linewidth=0.8)
        self.budget_ = ax.axvline(
            budget, color="0.3", linewidth=1.2, linestyle="--", label=f"budget ({budget:g} %)"
        )
        ax.plot(*np.transpose(places), color="0.7", linewidth=1, zorder=1.5)
        self.points_ = {}
        for judgement, place in zip(drawn, places, strict=True):
            self.points_[judgement.strength] = self._point(ax, judgement, place, edge)
        ax.set(
            xlabel="change of the energy score (%)", ylabel="excess of the PCE on validation rows"
        )
        ax.margins(0.12)
        self._write(ax, drawn, places, edge)
        if legend:
            unique: dict[str, Any] = {}
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                unique.setdefault(label, handle)
            ax.legend(
                unique.values(),
                unique.keys(),
                loc="lower center",
                bbox_to_anchor=(0.5, 1),
                ncols=3,
                fontsize="small",
                title="numbers: strength of the penalty",
                title_fontsize="small",
                frameon=False,
            )
        return self

    @property
    def caption(self) -> str:
        """One sentence: why this strength was chosen, or why none was."""
        parts = [self.selection.reason]
        missing = [f"{j.strength:g}" for j in self.selection.trace if not _finite(j)]
        if missing:
            parts.append(f"no point where results are not finite: {listed(missing)}")
        skipped = [f"{skipped.strength:g}" for skipped in self.selection.skipped]
        if skipped:
            parts.append(f"not tried on all splits: {listed(skipped)}")
        return f"{'; '.join(parts)}."

    def _point(
        self, ax: "Axes", judgement: "Judgement", place: tuple[float, float], edge: float
    ) -> Any:
        kind = _kind(judgement)
        looks = dict(_LOOKS[kind])
        if _cost(judgement) > edge:
            looks["marker"] = ">"
        else:
            ax.errorbar(
                *place,
                xerr=np.nan_to_num(100 * judgement.ratio_se, posinf=0),
                yerr=np.nan_to_num(judgement.gain_se, posinf=0),
                fmt="none",
                ecolor="0.45",
                elinewidth=1,
                capsize=2,
            )
        (point,) = ax.plot(*place, linestyle="none", label=kind, zorder=3, **looks)
        return point

    def _write(
        self,
        ax: "Axes",
        drawn: "list[Judgement]",
        places: list[tuple[float, float]],
        edge: float,
    ) -> None:
        """Put its strength beside each point, with its cost at the edge."""
        ax.autoscale_view()
        beyond = [_cost(judgement) > edge for judgement in drawn]
        texts = [
            f"{judgement.strength:g}" + (f" ({_cost(judgement):+.0f} %)" if far else "")
            for judgement, far in zip(drawn, beyond, strict=True)
        ]
        radii = [_LOOKS[_kind(judgement)]["markersize"] / 2 for judgement in drawn]
        write_beside(ax, texts, places, radii, edges=beyond)


def _kind(judgement: "Judgement") -> str:
    if judgement.strength == 0:
        return _KEPT if judgement.chosen else _UNPENALISED
    if judgement.chosen:
        return _CHOSEN
    return _QUALIFIES if judgement.within_budget and judgement.improves else _FAILS


def _cost(judgement: "Judgement") -> float:
    """Change of the energy score in per cent."""
    return 100 * (judgement.energy_ratio - 1)


def _finite(judgement: "Judgement") -> bool:
    return math.isfinite(judgement.excess) and math.isfinite(judgement.energy_ratio)
