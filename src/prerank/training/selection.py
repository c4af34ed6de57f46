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

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Selection", "Trial", "choose_strength", "search_strength"]

AUTO_GRID = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_EVIDENCE = 2.0  # standard deviations of the mean of calibrated runs
_NOTHING = "without a penalty there is no evidence of an error that could be corrected"
_UNLIKE = (
    "the strengths that improve the runs on average leave the network that is returned as it was, "
    "or do not improve it within the budget"
)
_LADDER = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


@dataclass(frozen=True)
class Trial:
    """Paired results of one strength: entry r of every trial has the same split, seed and noise.

    Runs should be judged on different rows, or on one set by one run alone: where several share
    their rows, they share its chance deviations, and evidence seems more than it is.

    Attributes:
        strength: lambda.
        excess: exact PCE above its floor on validation rows, `(R,)`.
        energy: mean energy score on the same rows, `(R,)`.
        noise: standard deviation of the excess of a calibrated predictor on as many rows, `(R,)`;
            None where that is not known.
        nll: mean negative log-likelihood on the same rows, `(R,)`; only a budget of it needs it.
        unchanged: runs that end with the parameters of strength 0, `(R,)`; None for no run.
    """

    strength: float
    excess: npt.NDArray[np.float64]
    energy: npt.NDArray[np.float64]
    noise: npt.NDArray[np.float64] | None = None
    nll: npt.NDArray[np.float64] | None = None
    unchanged: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Judgement:
    """One row of the trace; `Selection.table` says what the fields mean."""

    strength: float
    excess: float
    excess_gain: float
    gain_se: float
    energy: float
    energy_ratio: float
    ratio_se: float
    within_budget: bool
    improves: bool
    chosen: bool
    nll_change: float | None = None


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the whole trace.

    Attributes:
        strength: the chosen strength, or None where none qualifies.
        reason: one sentence.
        trace: one judgement for each strength tried, in ascending order.
        budget: the budget that applied.
        limit: mean excess without a penalty up to which nothing is corrected.
        nll_budget: the budget of likelihood that applied; None for none.
    """

    strength: float | None
    reason: str
    trace: tuple[Judgement, ...]
    budget: float
    limit: float = 0.0
    nll_budget: float | None = None

    @property
    @needed_by("Selection.table")
    def table(self) -> "pd.DataFrame":
        """One row per strength.

        Columns: `strength`, `excess` (mean), `excess_gain` (mean paired decrease against strength
        0) and `gain_se`, `energy` (mean), `energy_ratio` (of the means, against strength 0) and
        `ratio_se`, `within_budget`, `improves`, `chosen` (strength 0 where none qualifies),
        `nll_change` (mean increase of the negative log-likelihood against strength 0).
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

    .. math:: \frac{\bar e_\lambda}{\bar e_0} + m\, \mathrm{se} \le 1 + \mathrm{budget}
              \quad\text{and}\quad \bar c_0 - \max(\bar c_\lambda, 0) > m\, \mathrm{se}:

    an excess below 0, less than a perfect predictor has on average, is luck or was fitted to the
    rows, and does not count as a gain. With a budget of likelihood, its mean may worsen by that
    much at most, in the same sense. The standard errors are those of the paired differences (0
    for a single pair, where they cannot be known). A strength with a result that is not finite does
    not qualify.

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
        margin: m, in standard errors.
        returned: the runs whose parameters are used afterwards; None for all. Where these are only
            some of the runs, a strength also has to change them, lower their own excess and keep
            them within the budgets.

    Example:
        >>> base = Trial(0.0, np.array([0.05, 0.06]), np.array([1.0, 1.1]))
        >>> good = Trial(1.0, np.array([0.01, 0.02]), np.array([1.02, 1.12]))
        >>> dear = Trial(9.0, np.array([0.00, 0.01]), np.array([1.30, 1.40]))
        >>> choose_strength([base, good, dear]).strength
        1.0
    """
    ordered = sorted(trials, key=lambda trial: trial.strength)
    _check(ordered, budget, nll_budget, margin)
    base = ordered[0]
    judged = [_judge(trial, base, budget, nll_budget, margin) for trial in ordered]
    limit = _limit(base)
    wrong = bool(base.excess.mean() > limit)
    pairs = list(zip(ordered, judged, strict=True))
    on_average = [(t, j) for t, j in pairs if j.strength > 0 and _qualifies(j) and wrong]
    qualified = [(t, j) for t, j in on_average if _holds(t, base, returned, budget, nll_budget)]
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
        return next((step for step in _LADDER if step > largest.strength), None)
    if not any(judgement.within_budget for judgement in positive):
        return next((step for step in reversed(_LADDER) if step < smallest.strength), None)
    return None


def _qualifies(judgement: Judgement) -> bool:
    return judgement.within_budget and judgement.improves


def _holds(
    trial: Trial,
    base: Trial,
    returned: Sequence[int] | None,
    budget: float,
    nll_budget: float | None,
) -> bool:
    """Whether the runs that are returned qualify by themselves."""
    if returned is None:
        return True
    at = list(returned)
    if trial.unchanged is not None and bool(trial.unchanged[at].all()):
        return False

    def part(one: Trial) -> Trial:
        nll = None if one.nll is None else one.nll[at]
        return Trial(one.strength, one.excess[at], one.energy[at], nll=nll)

    return _qualifies(_judge(part(trial), part(base), budget, nll_budget, margin=0.0))


def _weakest(qualified: Sequence[tuple[Trial, Judgement]]) -> Judgement:
    """The weakest strength within one standard error of the lowest excess; ascending order."""

    def clamped(trial: Trial) -> float:
        return max(float(trial.excess.mean()), 0.0)

    lowest, _ = min(qualified, key=lambda pair: clamped(pair[0]))
    return next(
        judgement
        for trial, judgement in qualified
        if clamped(trial) <= clamped(lowest) + _standard_error(trial.excess - lowest.excess)
    )


def _refusal(trials: Sequence[Trial], judged: Sequence[Judgement], nll_budget: float | None) -> str:
    """Why none of these strengths qualifies."""
    if any(judgement.within_budget for judgement in judged):
        return "no strength improves calibration beyond noise within the budget"
    if trials and not any(_finite(trial.energy) for trial in trials):
        return "no strength gives a finite energy score"
    if nll_budget is not None:
        return "every strength costs more energy score or likelihood than the budgets allow"
    return "every strength costs more energy score than the budget allows"


@np.errstate(all="ignore")  # what is not finite shows in the trace, and does not qualify
def _judge(
    trial: Trial, base: Trial, budget: float, nll_budget: float | None, margin: float
) -> Judgement:
    energy, start = trial.energy.mean(), base.energy.mean()
    # The fair score of a predictor that is nearly sure and right can be below 0.
    ratio = 1 + (energy - start) / abs(start)
    energy_se = _standard_error(trial.energy - energy / start * base.energy)
    most = start + budget * abs(start)
    gain = base.excess - trial.excess
    gain_se = _standard_error(gain)
    loss = None if trial.nll is None or base.nll is None else trial.nll - base.nll
    likely = nll_budget is None or (
        loss is not None and bool(loss.mean() + margin * _standard_error(loss) <= nll_budget)
    )
    return Judgement(
        strength=trial.strength,
        excess=float(trial.excess.mean()),
        excess_gain=float(gain.mean()),
        gain_se=gain_se,
        energy=float(energy),
        energy_ratio=float(ratio),
        ratio_se=float(energy_se / abs(start)),
        within_budget=likely
        and _finite(trial.energy)
        and bool(energy + margin * energy_se <= most),
        improves=_finite(trial.excess)
        and bool(base.excess.mean() - max(trial.excess.mean(), 0.0) > margin * gain_se),
        chosen=False,
        nll_change=None if loss is None else float(loss.mean()),
    )


def _limit(base: Trial) -> float:
    """Mean excess that calibrated runs seldom exceed."""
    if base.noise is None:
        return 0.0
    return float(_EVIDENCE * np.sqrt(np.square(base.noise).sum()) / len(base.noise))


def _finite(values: npt.NDArray[np.float64]) -> bool:
    return bool(np.isfinite(values).all())


def _standard_error(values: npt.NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _check(trials: Sequence[Trial], budget: float, nll_budget: float | None, margin: float) -> None:
    if not trials or trials[0].strength != 0:
        raise InputError("trials must contain strength 0: the others are compared with it")
    if len({trial.strength for trial in trials}) < len(trials):
        raise InputError("trials hold the same strength twice")
    sizes = {array.shape for trial in trials for array in (trial.excess, trial.energy)}
    if len(sizes) != 1 or len(next(iter(sizes))) != 1 or (0,) in sizes:
        raise InputError(f"trials must be paired: all results of one length, got {sizes}")
    noise = trials[0].noise
    if noise is not None and not (noise.shape in sizes and _finite(noise) and (noise >= 0).all()):
        raise InputError("noise of strength 0 must be a standard deviation for each run")
    if not (_finite(trials[0].excess) and _finite(trials[0].energy)):
        raise InputError(
            "strength 0 has an excess or an energy score that is not finite, so that no strength "
            "can be compared with it: look for extreme targets, or lower the learning rate"
        )
    if nll_budget is not None:
        if not nll_budget >= 0:
            raise InputError(f"nll_budget must not be negative, got {nll_budget}")
        if any(trial.nll is None or trial.nll.shape not in sizes for trial in trials):
            raise InputError("nll_budget: every trial needs the likelihood of each run")
    if not budget >= 0 or not margin >= 0:
        raise InputError(f"budget and margin must not be negative, got {budget} and {margin}")
