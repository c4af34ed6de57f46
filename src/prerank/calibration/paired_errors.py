r"""Differences between the errors of two forecasts of the same rows, with intervals.

A score has one value for each row, and the difference of two means is a mean. A PCE is not a mean:
with :math:`d = F_Z - \alpha`, :math:`\hat d = d + D` and :math:`e = |\hat d| - |d|`, at each level

.. math:: \mathrm{sign}(d) D \le e \le |D|,

where the lower bound is attained far from the diagonal and the upper one on it. So the error of the
estimated difference, the mean of :math:`e_a - e_b` over levels, is bounded by draws of D that are
paired by row: levels with :math:`|\hat d|` above two standard errors have :math:`e = \pm D`, the
others each bound where it is unfavourable. The interval is about exact where both curves are away
from the diagonal, and conservative near it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.calibration.curves import level_grid, reliability_curve
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.intervals import LARGEST_PCE
from prerank.calibration.rotations import deviation_draws
from prerank.defaults import BAND_LEVEL, LEVELS

__all__ = ["PairedDifference", "pce_difference", "score_difference"]

_CERTAIN = 2.0  # standard errors from the diagonal: from there on the sign is known


@dataclass(frozen=True)
class PairedDifference:
    """A difference, a minus b, with its interval.

    Attributes:
        value_a: of the first forecast.
        value_b: of the second.
        difference: between them.
        lower: end of the interval.
        upper: the other end.
        p_value: of no difference.
    """

    value_a: float
    value_b: float
    difference: float
    lower: float
    upper: float
    p_value: float


def score_difference(
    a: Tensor, b: Tensor, rows: DependentRows, *, level: float = BAND_LEVEL
) -> PairedDifference:
    r"""Mean difference of two scores of each row, with its t interval.

    .. math:: \bar x \pm t_B \Big(\frac1B \sum_{b=1}^{B} \Lambda_b(x - \bar x)^2\Big)^{1/2},

    wider for clusters of unequal size, see `DependentRows.width`.

    Args:
        a: scores of the first forecast, `(N,)`.
        b: scores of the second.
        rows: which of them depend on each other.
        level: confidence of the interval.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> a = torch.randn(300, generator=torch.Generator().manual_seed(0))
        >>> found = score_difference(a, a - 1, row_units(range(300), None, 300))
        >>> found.difference, found.lower > 0.999
        (1.0, True)
    """
    from scipy import stats

    x = a.double() - b.double()
    mean = float(x.mean())
    degrees, factor = rows.width
    error = factor * float(rows.projections(x - x.mean())[1:].square().mean().sqrt())
    width = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    p = 1.0
    if mean != 0:
        p = float(2 * stats.t.sf(abs(mean) / error, degrees)) if error > 0 else 0.0
    values = float(a.double().mean()), float(b.double().mean())
    return PairedDifference(*values, mean, mean - width, mean + width, p)


def pce_difference(
    a: list[Tensor],
    b: list[Tensor],
    rows: DependentRows,
    *,
    level: float = BAND_LEVEL,
    levels: int = LEVELS,
    seed: int = 0,
) -> PairedDifference:
    """Difference of the PCE of two forecasts, a mean over the components of one or more pre-ranks.

    Args:
        a: PITs of each pre-rank of the first forecast, `(N, J)`.
        b: those of the second.
        rows: which of them depend on each other.
        level: confidence of the interval.
        levels: number of levels.
        seed: of the draws.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> z = torch.rand(500, 1, generator=torch.Generator().manual_seed(0))
        >>> found = pce_difference([z**2], [z], row_units(range(500), None, 500))
        >>> round(found.difference, 2), found.lower > 0.05, found.p_value < 0.01
        (0.16, True, True)
    """
    ours, theirs = (_error_bounds(pits, rows, levels, seed) for pits in (a, b))
    difference = ours.value - theirs.value
    # The largest error that a draw allows, and the smallest. Signs near the diagonal are not known:
    # those that are seen, of a bias and of a wrong spread are tried, and the reverse.
    over = ours.upper - (theirs.certain + torch.cat([theirs.doubtful, -theirs.doubtful]))
    under = ours.certain + torch.cat([ours.doubtful, -ours.doubtful]) - theirs.upper
    tail = (1 - level) / 2
    lower = max(-LARGEST_PCE, difference - float(over.quantile(1 - tail, dim=-1).max()))
    upper = min(LARGEST_PCE, difference - float(under.quantile(tail, dim=-1).min()))
    count = over.shape[-1]
    more = float((over >= difference).sum(-1).max())
    less = float((under <= difference).sum(-1).max())
    p_value = min(1.0, 2 * (1 + min(more, less)) / (count + 1))
    return PairedDifference(ours.value, theirs.value, difference, lower, upper, p_value)


@dataclass(frozen=True)
class _ErrorBounds:
    """The mean PCE of some PITs, and draws that bound its error.

    Attributes:
        value: the mean PCE.
        upper: draws of the upper bound, `(draws,)`.
        certain: draws of the lower bound, where the sign of the deviation is known.
        doubtful: where it is not, for three patterns of signs, `(3, draws)`; the sum with
            `certain` is the lower bound.
    """

    value: float
    upper: Tensor
    certain: Tensor
    doubtful: Tensor


def _error_bounds(pits: list[Tensor], rows: DependentRows, levels: int, seed: int) -> _ErrorBounds:
    value, total = 0.0, torch.zeros(5, 1, dtype=torch.float64, device=pits[0].device)
    grid = level_grid(levels).to(pits[0].device)
    for z, drawn in zip(pits, deviation_draws(pits, rows, levels=levels, seed=seed), strict=True):
        observed = reliability_curve(z.double(), levels=levels).observed
        deviations = observed - grid.unsqueeze(-1)
        for deviation, draws in zip(deviations.unbind(-1), drawn, strict=True):
            weight = 1 / (len(drawn) * len(pits))
            known = deviation.abs() > _CERTAIN * draws.std(0)
            signed = deviation.sign() * draws
            bounds = (
                torch.where(known, signed, draws.abs()),
                torch.where(known, signed, 0),
                torch.where(known, 0, signed),
                torch.where(known, 0, draws),
                torch.where(known, 0, (grid - 0.5).sign() * draws),
            )
            total = total + weight * torch.stack([bound.mean(-1) for bound in bounds])
            value += weight * float(deviation.abs().mean())
    return _ErrorBounds(value, total[0], total[1], total[2:])
