r"""Confidence limits of the true PCE, which hold for calibrated and miscalibrated forecasts alike.

The true PCE is that of the distribution F of the PITs, :math:`e(F) = \frac1M \sum_j |F(\alpha_j) -
\alpha_j|`; the PCE of n rows is :math:`e(\hat F)`. A bootstrap of it fails near calibration, where
e has a kink. Two inequalities hold everywhere.

*Above.* e is convex, so with :math:`s_j` the sign of :math:`F(\alpha_j) - \alpha_j`

.. math:: e(F) - e(\hat F) \le -\frac1M \sum_j s_j (\hat F - F)(\alpha_j)
          = -\frac1n \sum_i \big(g(Z_i) - E g(Z)\big), \qquad g(z) = \frac1M \sum_j s_j 1\{z \le
          \alpha_j\}:

the deviation of one mean of independent numbers. g is not known, but it changes by at most 1/M
between neighbouring levels, so its variance is at most that of Q, the PIT rounded to levels. Hence
:math:`e(\hat F) + t\,\mathrm{sd}(Q) / \sqrt n`, about :math:`0.475 / \sqrt n` above the PCE for
PITs that are nearly uniform.

*Below.* By the triangle inequality :math:`e(\hat F) - e(F) \le \frac1M \sum_j |\hat F - F|
(\alpha_j)`, which for many rows is distributed as the mean of :math:`|B(F(\alpha_j))| / \sqrt n`
with a Brownian bridge B. Its quantile is continuous in F, so :math:`\hat F` can take its place.
For few rows, or rare PITs that are not among them, :math:`\hat F` varies too little: with
:math:`k = -\log(1 - p)`, as many rows as may be missing where none is seen, it is that of n + 2k
rows, k of them at each end.

*Means over components* depend on how these move together. Their standard deviation is at most the
mean of the standard deviations, and a norm of a Gaussian process exceeds its mean by z times the
largest standard deviation of its projections with probability :math:`1 - \Phi(z)` at most (Borell
and Tsirelson, Ibragimov and Sudakov): limits that hold under any dependence.

Each limit holds with the stated probability on its own, for rows that are independent of each
other, and as closely as means of n bounded numbers are normal.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.curves import check_pits, level_cdf, level_index, pce_of_curve
from prerank.defaults import BAND_LEVEL, LEVELS
from prerank.errors import InputError, ShapeError

__all__ = [
    "ErrorLimits",
    "curve_limit_parts",
    "curve_limits",
    "limited",
    "mean_pce_limits",
    "pce_limits",
]

LARGEST_PCE = 0.5
"""The largest PCE that there is: all PITs at one end."""

_PATHS, _STEPS = 4000, 200


class ErrorLimits(NamedTuple):
    """Limits of the true PCE; each holds with the given probability."""

    lower: Tensor
    upper: Tensor


def pce_limits(z: object, *, levels: int = LEVELS, level: float = BAND_LEVEL) -> ErrorLimits:
    """Confidence limits of the true PCE of each component.

    Args:
        z: PITs of independent rows, `(N, J)`.
        levels: as in `pce`.
        level: probability with which each limit holds.

    Returns:
        `(J,)` each, in float64.

    Example:
        >>> z = torch.rand(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> lower, upper = pce_limits(z)
        >>> float(lower), bool(upper < 0.03)
        (0.0, True)
    """
    pits = _checked(z, level)
    return curve_limits(level_cdf(pits, levels), len(pits), _spread(pits, levels), level=level)


def curve_limits(curve: Tensor, n: int, spread: Tensor, *, level: float) -> ErrorLimits:
    """`pce_limits` of PITs of which these are known.

    Args:
        curve: their empirical CDF `(levels, J)`.
        n: their number.
        spread: standard deviation of the rounded PITs, with one more at each end, `(J,)`.
        level: probability with which each limit holds.
    """
    guarded, larger = _guarded(curve, n, level)
    areas = torch.stack([_areas(column).quantile(level) for column in guarded.mT]) / larger
    return limited(pce_of_curve(curve), areas, _quantile(n, level) * spread / math.sqrt(n))


def mean_pce_limits(z: object, *, levels: int = LEVELS, level: float = BAND_LEVEL) -> ErrorLimits:
    """Confidence limits of the mean of the true PCEs of several components, however dependent.

    Args:
        z: PITs of independent rows, `(N, J)`.
        levels: as in `pce`.
        level: probability with which each limit holds.

    Returns:
        Two scalars, in float64; those of `pce_limits` where J is 1.

    Example:
        >>> z = torch.rand(1000, 3, generator=torch.Generator().manual_seed(0)).square()
        >>> bool(mean_pce_limits(z).lower > 0.1)
        True
    """
    pits = _checked(z, level)
    if pits.shape[1] == 1:
        return ErrorLimits(*(limit[0] for limit in pce_limits(pits, levels=levels, level=level)))
    parts = mean_limit_parts(pits, levels=levels, level=level)
    error, area, above = parts.mean(-1).unbind()
    return limited(error, area + above, above)


def mean_limit_parts(pits: Tensor, *, levels: int = LEVELS, level: float = BAND_LEVEL) -> Tensor:
    """PCE, expected area and distance of the upper limit, whose means over components count.

    Args:
        pits: `(N, J)`.
        levels: as in `pce`.
        level: probability with which each limit holds.

    Returns:
        `(3, J)`, in float64.
    """
    return curve_limit_parts(level_cdf(pits, levels), len(pits), _spread(pits, levels), level=level)


def curve_limit_parts(
    curve: Tensor, n: int, spread: Tensor, *, level: float = BAND_LEVEL
) -> Tensor:
    """`mean_limit_parts` of PITs of which these are known, as for `curve_limits`."""
    above = _quantile(n, level) * spread / math.sqrt(n)
    # The mean of |B(u)| is that of a normal variable with variance u (1 - u).
    guarded, larger = _guarded(curve, n, level)
    area = (2 / math.pi * guarded * (1 - guarded)).sqrt().mean(0) / larger
    return torch.stack([pce_of_curve(curve), area, above])


def _checked(z: object, level: float) -> Tensor:
    pits = check_pits(z)
    if pits.dim() != 2:
        raise ShapeError(f"z must have shape (N, J), got {tuple(pits.shape)}")
    if not 0.5 < level < 1:
        raise InputError(f"level must be between 0.5 and 1, got {level!r}")
    return pits


def limited(error: Tensor, below: Tensor, above: Tensor) -> ErrorLimits:
    """Limits at these distances from the error, cut at the least and the largest PCE."""
    return ErrorLimits((error - below).clamp(min=0), (error + above).clamp(max=LARGEST_PCE))


def _spread(pits: Tensor, levels: int) -> Tensor:
    """Standard deviation of PITs rounded to levels, with one more at each end.

    These two keep a few rows that happen to be alike from looking like certainty.
    """
    ends = torch.tensor([0, levels - 1], device=pits.device)
    index = level_index(pits, levels)
    return (
        torch.cat([index, ends.unsqueeze(-1).expand(2, index.shape[-1])]).double().std(0) / levels
    )


def _quantile(n: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(n, level))


def _guarded(cdf: Tensor, n: int, level: float) -> tuple[Tensor, float]:
    """The CDF of n PITs with others at both ends, and the root of the number of all."""
    k = -math.log(1 - level)
    return (n * cdf + k) / (n + 2 * k), math.sqrt(n + 2 * k)


def _areas(cdf: Tensor) -> Tensor:
    """Means over the levels of |B(F)|, one for each path of a Brownian bridge."""
    at = (cdf * _STEPS).round().long().cpu()
    return _bridges().index_select(1, at).abs().mean(1).to(cdf)


@lru_cache(maxsize=1)
def _bridges() -> Tensor:
    noise = torch.Generator().manual_seed(0)
    steps = torch.randn(_PATHS, _STEPS, generator=noise, dtype=torch.float64) / math.sqrt(_STEPS)
    path = torch.cat([steps.new_zeros(_PATHS, 1), steps.cumsum(1)], 1)
    return path - path[:, -1:] * torch.linspace(0, 1, _STEPS + 1, dtype=torch.float64)
