"""Choosing the strength of a penalty under an accuracy budget."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank import defaults
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.training.trials import Budgets, Judgement, Trial, standard_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Judgement", "Selection", "Skipped", "choose_strength", "search_strength"]

AUTO_GRID = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_EVIDENCE = 2.0  # standard deviations of the mean of calibrated runs
_NOTHING = "without a penalty there is no evidence of an error that could be corrected"
_UNLIKE = (
    "the strengths that improve the runs on average leave the network that is returned as it was, "
    "or do not improve it within the budget"
)
LADDER = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


@dataclass(frozen=True)
class Skipped:
    """A strength that was not tried on all runs.

    Attributes:
        strength: lambda.
        reason: one sentence.
    """

    strength: float
    reason: str


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the whole trace.

    Attributes:
        strength: the chosen strength, or None where none qualifies.
        reason: one sentence.
        trace: one judgement for each strength tried on all runs, in ascending order.
        budget: the budget that applied.
        limit: mean excess without a penalty up to which nothing is corrected.
        nll_budget: the budget of likelihood that applied; None for none.
        skipped: strengths that a search in stages left out, in ascending order.
    """

    strength: float | None
    reason: str
    trace: tuple[Judgement, ...]
    budget: float
    limit: float = 0.0
    nll_budget: float | None = None
    skipped: tuple[Skipped, ...] = ()

    @property
    @needed_by("Selection.table")
    def table(self) -> "pd.DataFrame":
        """One row per strength.

        Columns: `strength`, `excess` (mean), `excess_gain` (mean paired decrease against strength
        0) and `gain_se`, `energy` (mean), `energy_ratio` (of the means against strength 0, to which
        a wild row contributes no more than ten typical ones) and `ratio_se`, `within_budget`,
        `improves`, `chosen` (strength 0 where none qualifies), `nll_change` (mean increase of the
        negative log-likelihood against strength 0).
        """
        import pandas as pd

        return pd.DataFrame([asdict(judgement) for judgement in self.trace])


def choose_strength(
    trials: Sequence[Trial],
    *,
    budget: float = defaults.BUDGET,
    nll_budget: float | None = None,
    margin: float = 1.0,
    returned: Sequence[int] | None = None,
) -> Selection:
    r"""Pick the weakest strength whose excess is the lowest up to noise, among those that qualify.

    With :math:`\bar e_\lambda` the mean energy score and :math:`c_\lambda` the excess of the paired
    runs, a strength qualifies if

    .. math:: \frac{\bar e_\lambda}{\bar e_0} + \delta \le 1 + \mathrm{budget}
              \quad\text{and}\quad \bar c_0 - \max(\bar c_\lambda, 0) > m\, \mathrm{se}:

    an excess below 0, less than a perfect predictor has on average, is luck or was fitted to the
    rows, and does not count as a gain. :math:`\delta` is m standard errors between runs, or two
    standard errors of the paired rows of all runs where trials have rows, whichever is larger (see
    `prerank.training.trials.Budgets`). With a budget of likelihood, its mean may worsen by that
    much at most, in the same sense. Between runs, the standard errors are those of the paired
    differences (0 for a single pair, where they cannot be known). A strength with a result that is
    not finite does not qualify.

    With :math:`c^+_\lambda = \max(\bar c_\lambda, 0)` and :math:`\lambda^*` the strength of the
    lowest, the weakest one with :math:`c^+_\lambda \le c^+_{\lambda^*} + \mathrm{se}` is chosen,
    where se is the standard error of the paired difference of the two: differences below the floor
    or within noise do not pay for a stronger penalty.

    Rows that a penalty aimed at (`Settings.holdout_offset`) show less excess than fresh ones will,
    so that a gain on them is no evidence that there was something to gain. That must come from the
    runs without a penalty: none qualifies unless

    .. math:: \bar c_0 > 2 \Big(\sum_{r=1}^R \mathrm{noise}_r^2\Big)^{1/2} / R,

    two standard deviations of the mean, which 4 to 5 % of calibrated predictors exceed.

    Args:
        trials: with strength 0 among them, all with equally many paired runs.
        budget: by how much the energy score may worsen, as a fraction.
        nll_budget: by how many nats the negative log-likelihood may worsen; None for any.
        margin: m, in standard errors between runs.
        returned: the runs whose parameters are used afterwards; None for all. Where these are only
            some of the runs, a strength also has to change them, lower their own excess and keep
            them within the budgets, beyond the noise of their own rows.

    Example:
        >>> base = Trial(0.0, np.array([0.05, 0.06]), np.array([1.0, 1.1]))
        >>> good = Trial(1.0, np.array([0.01, 0.02]), np.array([1.02, 1.12]))
        >>> dear = Trial(9.0, np.array([0.00, 0.01]), np.array([1.30, 1.40]))
        >>> choose_strength([base, good, dear]).strength
        1.0
    """
    ordered = sorted(trials, key=lambda trial: trial.strength)
    budgets = Budgets(budget, nll_budget, margin)
    _check(ordered, likelihood=nll_budget is not None)
    base = ordered[0]
    judged = [budgets.judge(trial, base) for trial in ordered]
    limit = _limit(base)
    wrong = bool(base.excess.mean() > limit)
    pairs = list(zip(ordered, judged, strict=True))
    on_average = [(t, j) for t, j in pairs if j.strength > 0 and j.qualifies and wrong]
    qualified = [(t, j) for t, j in on_average if _holds(t, base, returned, budgets)]
    best = _weakest(qualified) if qualified else judged[0]
    trace = tuple(replace(judgement, chosen=judgement is best) for judgement in judged)
    if not qualified:
        if on_average:
            reason = _UNLIKE
        else:
            reason = _refusal(ordered[1:], judged[1:], nll_budget) if wrong else _NOTHING
        return Selection(None, reason, trace, budget, limit, nll_budget)
    lowest = all(max(best.excess, 0) <= max(judgement.excess, 0) for _, judgement in qualified)
    reason = (
        f"strength {best.strength:g} "
        f"{'has' if lowest else 'is the weakest within one standard error of'} the lowest excess, "
        f"{best.excess:.4f} against {judged[0].excess:.4f}, at {best.energy_ratio - 1:+.1%} energy "
        "score"
    )
    return Selection(best.strength, reason, trace, budget, limit, nll_budget)


def search_strength(
    run: Callable[[Sequence[float]], Sequence[Trial]],
    grid: Sequence[float] | str = "auto",
    *,
    budget: float = defaults.BUDGET,
    nll_budget: float | None = None,
    margin: float = 1.0,
    returned: Sequence[int] | None = None,
) -> Selection:
    """Try a grid of strengths, and beyond its edges where the best one lies there.

    Strength 0 comes first, and alone: without evidence that something is wrong, no other is tried.

    Args:
        run: trains and evaluates the given strengths on the paired runs.
        grid: strengths (0 is added), or `"auto"`: 0, 3, 10, 30, 100 and 300, extended upwards
            while the largest is the best and downwards while none is affordable.
        budget: see `choose_strength`.
        nll_budget: see `choose_strength`.
        margin: see `choose_strength`.
        returned: see `choose_strength`.
    """
    if isinstance(grid, str):
        if grid != "auto":
            raise InputError(f"strength must be a number, a grid or 'auto', got {grid!r}")
        start: tuple[float, ...] = AUTO_GRID
    else:
        start = tuple(sorted({0.0, *map(float, grid)}))
        if len(start) == 1 or not all(0 <= strength < float("inf") for strength in start):
            raise InputError(f"strengths must be positive numbers, got {list(grid)}")
    choose = partial(
        choose_strength, budget=budget, nll_budget=nll_budget, margin=margin, returned=returned
    )
    trials = list(run(start[:1]))
    selection = choose(trials)
    if selection.trace[0].excess <= selection.limit:
        return selection
    trials += run(start[1:])
    selection = choose(trials)
    while isinstance(grid, str):
        further = _beyond(selection)
        if further is None:
            break
        trials += run([further])
        selection = choose(trials)
    return selection


def _beyond(selection: Selection) -> float | None:
    """The next strength past an edge of the trace, or None where the best one is bracketed."""
    positive = [judgement for judgement in selection.trace if judgement.strength > 0]
    largest, smallest = positive[-1], positive[0]
    if largest.chosen:
        return next((step for step in LADDER if step > largest.strength), None)
    if not any(judgement.within_budget for judgement in positive):
        return next((step for step in reversed(LADDER) if step < smallest.strength), None)
    return None


def _holds(trial: Trial, base: Trial, returned: Sequence[int] | None, budgets: Budgets) -> bool:
    """Whether the runs that are returned qualify by themselves."""
    if returned is None:
        return True
    own = trial.part(returned)
    if own.unchanged is not None and bool(own.unchanged.all()):
        return False
    return replace(budgets, margin=0.0).judge(own, base.part(returned)).qualifies


def _weakest(qualified: Sequence[tuple[Trial, Judgement]]) -> Judgement:
    """The weakest strength within one standard error of the lowest excess; ascending order."""

    def clamped(trial: Trial) -> float:
        return max(float(trial.excess.mean()), 0.0)

    lowest, _ = min(qualified, key=lambda pair: clamped(pair[0]))
    return next(
        judgement
        for trial, judgement in qualified
        if clamped(trial) <= clamped(lowest) + standard_error(trial.excess - lowest.excess)
    )


def _refusal(trials: Sequence[Trial], judged: Sequence[Judgement], nll_budget: float | None) -> str:
    """Why none of these strengths qualifies."""
    if any(judgement.within_budget for judgement in judged):
        return "no strength improves calibration beyond noise within the budget"
    if trials and not any(_finite(trial.energy) for trial in trials):
        return "no strength gives a finite energy score"
    if nll_budget is not None:
        return "no strength is within the budgets of energy score and likelihood beyond noise"
    return "no strength is within the budget of energy score beyond noise"


def _limit(base: Trial) -> float:
    """Mean excess that calibrated runs seldom exceed."""
    if base.noise is None:
        return 0.0
    return float(_EVIDENCE * np.sqrt(np.square(base.noise).sum()) / len(base.noise))


def _finite(values: npt.NDArray[np.float64]) -> bool:
    return bool(np.isfinite(values).all())


def _check(trials: Sequence[Trial], *, likelihood: bool) -> None:
    if not trials or trials[0].strength != 0:
        raise InputError("trials must contain strength 0: the others are compared with it")
    if len({trial.strength for trial in trials}) < len(trials):
        raise InputError("trials hold the same strength twice")
    sizes = {trial.excess.shape for trial in trials}
    scored = {trial.energy.shape for trial in trials}
    size = next(iter(sizes))
    paired = len(sizes) == len(scored) == 1 and len(size) == 1 and 0 not in size
    if not paired or next(iter(scored))[:1] != size:
        raise InputError(
            f"trials must be paired: all results of one length, got {sizes} and {scored}"
        )
    noise = trials[0].noise
    if noise is not None and not (noise.shape == size and _finite(noise) and (noise >= 0).all()):
        raise InputError("noise of strength 0 must be a standard deviation for each run")
    if not (_finite(trials[0].excess) and _finite(trials[0].energy)):
        raise InputError(
            "strength 0 has an excess or an energy score that is not finite, so that no strength "
            "can be compared with it: look for extreme targets, or lower the learning rate"
        )
    if likelihood and any(trial.nll is None or trial.nll.shape[:1] != size for trial in trials):
        raise InputError("nll_budget: every trial needs the likelihood of each run")
