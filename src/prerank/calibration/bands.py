r"""Where the reliability curve of a right predictor stays as a whole.

At one level, n PITs of a right predictor give a binomial count. A band of binomial quantiles at the
same tail probability everywhere is equally strict at all levels, the tails included, where a band
of constant width sees nothing. What is left is to find the tail probability for which whole curves
stay inside as often as they should, and that probability can be computed exactly: counts below
increasing levels are those of a Poisson process with n points on [0, 1], given their total, and the
increments of a Poisson process are independent. So the law of a curve that has not left the band
moves from level to level by a convolution.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.error import level_grid
from prerank.errors import InputError
from prerank.inputs import as_count

__all__ = ["ReliabilityBand", "reliability_band"]

_HALVINGS = 25

Counts = npt.NDArray[np.int64]


class ReliabilityBand(NamedTuple):
    """Bounds that a right predictor's reliability curve keeps to at all levels at once.

    Attributes:
        levels: `(L,)`.
        lower: `(L,)`, a curve on the bound is still inside.
        upper: `(L,)`, likewise.
        n: number of PITs.
        level: the probability that was asked for.
    """

    levels: Tensor
    lower: Tensor
    upper: Tensor
    n: int
    level: float


def reliability_band(n: int, *, level: float = 0.95, levels: int = 100) -> ReliabilityBand:
    r"""Simultaneous band for the empirical CDF of n independent uniforms.

    .. math:: P\{\ell_j \le \hat F_Z(\alpha_j) \le u_j \text{ for all } j\} \ge \text{level},

    with :math:`n\ell_j` and :math:`nu_j` the :math:`\gamma/2` and :math:`1 - \gamma/2` quantiles of
    the binomial law with n trials and probability :math:`\alpha_j`, for the largest :math:`\gamma`
    that allows it. The probability is computed, not simulated. Counts are discrete, so it exceeds
    `level` a little, and visibly so where n is below some 20.

    The band holds for one curve. Of several curves in one plot, each has its own chance to leave.

    Args:
        n: number of PITs.
        level: probability that a right predictor's curve stays inside.
        levels: number of levels, as in `reliability_curve`.

    Example:
        >>> band = reliability_band(200)
        >>> round(float(band.lower[50]), 3), round(float(band.upper[50]), 3)
        (0.4, 0.61)
    """
    if not 0 < level < 1:
        raise InputError(f"level is the probability of the band, between 0 and 1, got {level!r}")
    n = as_count(n, "n", minimum=1)
    lower, upper = _bounds(n, float(level), as_count(levels, "levels", minimum=2))
    low, high = (torch.from_numpy(counts).double() / n for counts in (lower, upper))
    return ReliabilityBand(level_grid(levels), low, high, n, float(level))


@lru_cache(maxsize=64)
def _bounds(n: int, level: float, levels: int) -> tuple[Counts, Counts]:
    """Smallest and largest counts of the band, `(levels,)` each."""
    enough, too_much = (1 - level) / levels, 1.0  # the first by Bonferroni's inequality
    for _ in range(_HALVINGS):
        gamma = (enough + too_much) / 2
        if coverage(*_quantiles(n, gamma, levels)) >= level:
            enough = gamma
        else:
            too_much = gamma
    return _quantiles(n, enough, levels)


def _quantiles(n: int, gamma: float, levels: int) -> tuple[Counts, Counts]:
    from scipy import stats

    inner = np.linspace(0, 1, levels)[1:-1]
    lower, upper = (stats.binom.ppf(q, n, inner) for q in (gamma / 2, 1 - gamma / 2))
    ends = [0], [n]  # at levels 0 and 1 a count is certain
    return (
        np.concatenate([ends[0], lower, ends[1]]).astype(np.int64),
        np.concatenate([ends[0], upper, ends[1]]).astype(np.int64),
    )


def coverage(lower: Counts, upper: Counts) -> float:
    """Probability that counts of uniforms at evenly spaced levels stay within bounds.

    Args:
        lower: `(levels,)`, not decreasing; the last entry is the number of uniforms.
        upper: `(levels,)`, likewise.
    """
    from scipy import signal, stats

    n, bins = int(lower[-1]), len(lower) - 1
    smallest, largest = (lower[1:] - upper[:-1]).min(), (upper[1:] - lower[:-1]).max()
    increments = stats.poisson.pmf(np.arange(smallest, largest + 1), n / bins)
    inside = np.ones(1)  # law of the count, of curves that are inside up to the present level
    for j in range(bins):
        start, stop = lower[j + 1] - upper[j] - smallest, upper[j + 1] - lower[j] - smallest + 1
        moved = signal.convolve(inside, increments[start:stop])
        width = upper[j] - lower[j]  # so many entries at either end are outside
        inside = moved[width : len(moved) - width].clip(0)
    return float(inside[0] / stats.poisson.pmf(n, n))
