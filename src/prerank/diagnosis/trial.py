"""A calibration head tried on held-out rows: the forecasts before and after."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.defaults import CALIBRATION_ROWS
from prerank.diagnosis.diagnoses import Diagnosis
from prerank.diagnosis.measurement import diagnose
from prerank.distributions import Ensemble
from prerank.distributions.affine import sample_spread
from prerank.errors import InputError
from prerank.inputs import as_ranks
from prerank.preranks import PreRankLike
from prerank.recalibration import CalibrationHead
from prerank.scores import energy_score

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HeadTrial", "fit_head", "held_out_rows", "try_head"]

UNITS = "each target divided by the standard deviation of its observations"
_FEWEST_JUDGED = 5


@dataclass(frozen=True)
class HeadTrial:
    """Held-out rows before and after calibration, in standard deviations of the observations.

    Attributes:
        head: fitted to the other rows.
        n_fitted: their number.
        before: diagnosis of the forecasts as they are.
        after: diagnosis of the calibrated ones.
        energy: mean energy score before and after.
        energy_error: standard error of the difference.
        changed: whether any sample is another one.
    """

    head: CalibrationHead
    n_fitted: int
    before: Diagnosis
    after: Diagnosis
    energy: tuple[float, float]
    energy_error: float
    changed: bool


def held_out_rows(
    n: int, share: float, *, seed: int, times: Sequence[str] | None = None
) -> npt.NDArray[np.bool_]:
    """Which of n rows are held out: some at random, or the last ones.

    Args:
        n: number of rows.
        share: of the rows that are held out, about.
        seed: of the choice at random.
        times: numbers or ISO dates, as text; rows of one time stay together.

    Example:
        >>> held_out_rows(30, 0.2, seed=0, times=[str(n // 3) for n in range(30)]).nonzero()[0]
        array([24, 25, 26, 27, 28, 29])
    """
    count = max(round(share * n), 1)
    if times is None:
        held = np.zeros(n, dtype=bool)
        held[np.random.default_rng(seed).permutation(n)[:count]] = True
    else:
        order = as_ranks(times, "times")
        held = order >= np.sort(order)[n - count]
    judged = int(held.sum())
    if n - judged < CALIBRATION_ROWS or judged < _FEWEST_JUDGED:
        raise InputError(
            f"{n} rows are too few to calibrate by {n - judged} and judge on {judged}: there must "
            f"be at least {CALIBRATION_ROWS} of the first and {_FEWEST_JUDGED} of the others, and "
            "some hundreds to be of use"
        )
    return held


def fit_head(
    samples: npt.NDArray[np.float64],
    y: "pd.DataFrame",
    *,
    preranks: PreRankLike,
    seed: int,
    times: Sequence[str] | None = None,
) -> CalibrationHead:
    """Fit a head in standard deviations of the observations; the change of samples has no units.

    Args:
        samples: `(S, N, D)`.
        y: observations `(N, D)`, whose columns name the targets.
        preranks: of the penalty.
        seed: of the fit.
        times: of the rows, as for `CalibrationHead.fit`.
    """
    scale = _spread(y)
    head = CalibrationHead(preranks, seed=seed)
    return head.fit(Ensemble(samples / scale), y / scale, time=times)


def try_head(
    samples: npt.NDArray[np.float64],
    y: "pd.DataFrame",
    held: npt.NDArray[np.bool_],
    *,
    preranks: PreRankLike,
    seed: int,
    times: Sequence[str] | None = None,
) -> HeadTrial:
    """Fit a head to some rows, and diagnose the others before and after.

    Args:
        samples: `(S, N, D)`.
        y: observations `(N, D)`, whose columns name the targets.
        held: `(N,)`, which rows are held out.
        preranks: of the penalty, and those that are diagnosed.
        seed: of the fit, of ties and of replicates.
        times: of the rows, as for `CalibrationHead.fit`.
    """
    known = (
        None if times is None else [time for time, out in zip(times, held, strict=True) if not out]
    )
    head = fit_head(samples[:, ~held], y[~held], preranks=preranks, seed=seed, times=known)
    scale = _spread(y)
    dists = [Ensemble(samples[:, held] / scale)]
    dists.append(head(dists[0]))  # type: ignore[arg-type]
    rows = y[held].reset_index(drop=True) / scale
    before, after = (
        diagnose(dist, rows, preranks=preranks, generator=seed, units=UNITS) for dist in dists
    )
    # Calibrated members are no independent draws, so the fair estimator would not be fair.
    scores = [energy_score(dist, rows, estimator="nrg").numpy() for dist in dists]
    difference = scores[1] - scores[0]
    return HeadTrial(
        head=head,
        n_fitted=int((~held).sum()),
        before=before,
        after=after,
        energy=(float(scores[0].mean()), float(scores[1].mean())),
        energy_error=float(difference.std(ddof=1) / np.sqrt(len(difference))),
        changed=bool((dists[0].samples != dists[1].samples).any()),
    )


def _spread(y: "pd.DataFrame") -> npt.NDArray[np.float64]:
    return sample_spread(Ensemble(y.to_numpy()[:, None])).numpy()
