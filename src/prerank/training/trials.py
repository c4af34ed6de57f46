"""Paired results of one strength, and what they say against those without a penalty."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

__all__ = ["Budgets", "Judgement", "Trial", "standard_error"]

_ROWS = 2.0  # standard errors of the rows that a cost may have by chance
_OUTLYING = 10.0  # times the typical energy score, from which on a row counts no more than that


@dataclass(frozen=True)
class Trial:
    """Paired results of one strength: entry r of every trial has the same split, seed and noise.

    Runs should be judged on different rows, or on one set by one run alone: where several share
    their rows, they share its chance deviations, and evidence seems more than it is.

    Attributes:
        strength: lambda.
        excess: exact PCE above its floor on validation rows, `(R,)`.
        energy: mean energy score on the same rows, `(R,)`, or that of each row, `(R, n)`: only rows
            tell how far the mean is a matter of chance.
        noise: standard deviation of the excess of a calibrated predictor on as many rows, `(R,)`;
            None where that is not known.
        nll: negative log-likelihood on the same rows, `(R,)` or `(R, n)`; only a budget of it needs
            it.
        unchanged: runs that end with the parameters of strength 0, `(R,)`; None for no run.
    """

    strength: float
    excess: npt.NDArray[np.float64]
    energy: npt.NDArray[np.float64]
    noise: npt.NDArray[np.float64] | None = None
    nll: npt.NDArray[np.float64] | None = None
    unchanged: npt.NDArray[np.bool_] | None = None

    def part(self, runs: Sequence[int]) -> "Trial":
        """Results of some of the runs."""
        at = list(runs)
        return Trial(
            self.strength,
            self.excess[at],
            self.energy[at],
            noise=None if self.noise is None else self.noise[at],
            nll=None if self.nll is None else self.nll[at],
            unchanged=None if self.unchanged is None else self.unchanged[at],
        )

    def joined(self, others: Sequence["Trial"]) -> "Trial":
        """Results of these runs, followed by those of other runs of the same strength."""

        def together(name: str) -> Any:
            values = [getattr(trial, name) for trial in (self, *others)]
            return None if any(value is None for value in values) else np.concatenate(values)

        names = ("excess", "energy", "noise", "nll", "unchanged")
        return Trial(self.strength, **{name: together(name) for name in names})


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

    @property
    def qualifies(self) -> bool:
        """Whether the strength improves calibration at a cost within the budgets."""
        return self.within_budget and self.improves


@dataclass(frozen=True)
class Budgets:
    r"""What calibration may cost, and how sure that has to be.

    A mean cost :math:`\bar c` of paired runs, of which run r has n rows, is within a budget b if

    .. math:: \bar c + \max\Big(m\, \mathrm{se}_{\text{runs}},\;
              \frac2R \Big(\sum_{r=1}^R \frac{s_r^2}{n}\Big)^{1/2}\Big) \le b

    with the standard deviation :math:`s_r` of the paired differences of rows: few validation rows,
    or a few of them that decide, could hide a cost that fresh rows will show.

    Attributes:
        energy: by how much the energy score may worsen, as a fraction.
        nll: by how many nats the negative log-likelihood may worsen; None for any.
        margin: m, in standard errors between runs.

    Example:
        >>> base = Trial(0.0, np.array([0.05, 0.06]), np.array([1.0, 1.1]))
        >>> dear = Trial(9.0, np.array([0.00, 0.01]), np.array([1.30, 1.40]))
        >>> judgement = Budgets(0.1).judge(dear, base)
        >>> judgement.within_budget, judgement.improves
        (False, True)
    """

    energy: float
    nll: float | None = None
    margin: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.nll is not None and not self.nll >= 0:
            raise InputError(f"nll_budget must not be negative, got {self.nll}")
        if not self.energy >= 0 or not self.margin >= 0:
            raise InputError(
                f"budget and margin must not be negative, got {self.energy} and {self.margin}"
            )

    @np.errstate(all="ignore")  # what is not finite shows in the trace, and does not qualify
    def judge(self, trial: Trial, base: Trial) -> Judgement:
        """Compare a strength with strength 0."""
        weights = _weights(base.energy)
        after, before = weights * trial.energy, weights * base.energy
        energy, start = after.mean(), before.mean()
        # The fair score of a predictor that is nearly sure and right can be below 0.
        unit = abs(start)
        rest = (after - energy / start * before) / unit
        gain = base.excess - trial.excess
        loss = None if trial.nll is None or base.nll is None else trial.nll - base.nll
        likely = self.nll is None or (
            loss is not None and bool(loss.mean() + self._doubt(loss) <= self.nll)
        )
        affordable = energy + unit * self._doubt(rest) <= start + self.energy * unit
        return Judgement(
            strength=trial.strength,
            excess=float(trial.excess.mean()),
            excess_gain=float(gain.mean()),
            gain_se=standard_error(gain),
            energy=float(trial.energy.mean()),
            energy_ratio=float(1 + (energy - start) / unit),
            ratio_se=max(standard_error(rest), _row_error(rest)),
            within_budget=likely and bool(np.isfinite(trial.energy).all()) and bool(affordable),
            improves=bool(np.isfinite(trial.excess).all())
            and bool(
                base.excess.mean() - max(trial.excess.mean(), 0.0)
                > self.margin * standard_error(gain)
            ),
            chosen=False,
            nll_change=None if loss is None else float(loss.mean()),
        )

    def _doubt(self, costs: npt.NDArray[np.float64]) -> float:
        return max(self.margin * standard_error(costs), _ROWS * _row_error(costs))


def _weights(energy: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of energy scores without a penalty: `(R, n)` of rows, or 1 for each run."""
    if energy.ndim == 1:
        return np.ones_like(energy)
    size = np.abs(energy)
    return 1 / np.maximum(np.median(size, 1, keepdims=True), size / _OUTLYING)


def standard_error(values: npt.NDArray[np.float64]) -> float:
    """Standard error of a mean over runs, `(R,)` or `(R, n)`; 0 for a single run."""
    runs = values.reshape(len(values), -1).mean(1)
    return float(runs.std(ddof=1) / len(runs) ** 0.5) if len(runs) > 1 else 0.0


def _row_error(values: npt.NDArray[np.float64]) -> float:
    """Standard error of a mean over rows `(R, n)`; 0 where only means `(R,)` are known."""
    if values.ndim == 1:
        return 0.0
    runs, rows = values.shape
    return float((values.var(1, ddof=1).sum() / rows) ** 0.5 / runs)
