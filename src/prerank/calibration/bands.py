r"""Where the curve and the histogram of a calibrated forecast's PITs stay as a whole.

At one level, n PITs of a calibrated forecast give a binomial count. A band of binomial quantiles at
the same tail probability everywhere is equally strict at all levels, the tails included, where a
band of constant width sees nothing. What is left is to find the tail probability for which whole
curves stay inside as often as they should, and that probability can be computed exactly: counts
below increasing levels are those of a Poisson process with n points on [0, 1], given their total,
and the increments of a Poisson process are independent. So the distribution of a curve that has not
left the band moves from level to level by a convolution.

The counts of n uniforms in equal bins are likewise independent Poisson counts given their total, so
the probability that all of them keep to common bounds is one entry of a power: the Poisson
distribution between the bounds, convolved with itself once for every bin, at n.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.curves import level_grid
from prerank.defaults import BAND_LEVEL, LEVELS
from prerank.inputs import as_count, as_probability

__all__ = [
    "HistogramBand",
    "ReliabilityBand",
    "default_bins",
    "histogram_band",
    "reliability_band",
]

Counts = npt.NDArray[np.int64]
Bound = TypeVar("Bound", int, Counts)


class ReliabilityBand(NamedTuple):
    """Bounds that a calibrated forecast's reliability curve keeps to at all levels at once.

    Attributes:
        levels: `(L,)`.
        lower: `(L,)`, a curve on the bound is still inside; `(L, J)` where components have
            different numbers of PITs.
        upper: likewise.
        n: number of PITs; `(J,)` where components have different ones.
        level: the probability that was asked for.
    """

    levels: Tensor
    lower: Tensor
    upper: Tensor
    n: int | Tensor
    level: float


class HistogramBand(NamedTuple):
    """Bounds that all bars of a calibrated forecast's PIT histogram keep to at once.

    Attributes:
        lower: smallest density, the same for every bin; a bar on the bound is still inside.
            `(J,)` where components have different numbers of PITs.
        upper: largest density, likewise.
        n: number of PITs, likewise.
        bins: number of equal bins.
        level: the probability that was asked for.
        coverage: the probability of the band, at least `level`: counts are discrete. Of several
            components that of the least one.
    """

    lower: float | Tensor
    upper: float | Tensor
    n: int | Tensor
    bins: int
    level: float
    coverage: float


def reliability_band(n: int, *, level: float = BAND_LEVEL, levels: int = LEVELS) -> ReliabilityBand:
    r"""Simultaneous band for the empirical CDF of n independent uniforms.

    .. math:: P\{\ell_j \le \hat F_Z(\alpha_j) \le u_j \text{ for all } j\} \ge \text{level},

    with :math:`n\ell_j` and :math:`nu_j` the :math:`\gamma/2` and :math:`1 - \gamma/2` quantiles of
    the binomial distribution with n trials and probability :math:`\alpha_j`, for the largest
    :math:`\gamma` that allows it. The probability is computed, not simulated. Counts are discrete,
    so it exceeds `level` a little, and visibly so where n is below some 20.

    The band holds for one curve. Of several curves in one plot, each has its own chance to leave.

    Args:
        n: number of PITs.
        level: probability that a calibrated forecast's curve stays inside.
        levels: number of levels, as in `reliability_curve`.

    Example:
        >>> band = reliability_band(200)
        >>> round(float(band.lower[50]), 3), round(float(band.upper[50]), 3)
        (0.4, 0.61)
    """
    as_probability(level, "level")
    n = as_count(n, "n", minimum=1)
    lower, upper = _bounds(n, float(level), as_count(levels, "levels", minimum=2))
    low, high = (torch.from_numpy(counts).double() / n for counts in (lower, upper))
    return ReliabilityBand(level_grid(levels), low, high, n, float(level))


def histogram_band(n: int, bins: int = 20, level: float = BAND_LEVEL) -> HistogramBand:
    r"""Simultaneous band for the bars of a histogram of n independent uniforms.

    .. math:: P\{\ell \le C_b \le u \text{ for all } b\} \ge \text{level}, \qquad
              (C_1, \dots, C_B) \sim \mathrm{Multinomial}(n; 1/B, \dots, 1/B),

    with :math:`\ell` and :math:`u` the :math:`\gamma/2` and :math:`1 - \gamma/2` quantiles of the
    binomial distribution with n trials and probability 1/B, for the largest :math:`\gamma` that
    allows it. The probability is computed, not simulated. It exceeds `level` by up to the
    probability that some bar is at the very bound: by about 0.02 for 20 bins of 10 PITs each.

    The band holds for one histogram. Of several, each has its own chance to leave it.

    Args:
        n: number of PITs.
        bins: B, as in `pit_histogram`.
        level: probability that all bars of a calibrated forecast stay inside.

    Returns:
        Bounds in the units of `pit_histogram`, densities :math:`C_b B / n`.

    Example:
        >>> band = histogram_band(400)
        >>> round(band.lower, 3), round(band.upper, 3), round(band.coverage, 3)
        (0.4, 1.7, 0.966)
    """
    as_probability(level, "level")
    n, bins = as_count(n, "n", minimum=1), as_count(bins, "bins", minimum=1)
    lower, upper = _bin_bounds(n, bins, float(level))
    probability = count_coverage(n, bins, lower, upper)
    return HistogramBand(lower * bins / n, upper * bins / n, n, bins, float(level), probability)


def default_bins(n: int) -> int:
    """Number of bins for n PITs: 20, or 10 where 20 would hold fewer than 20 PITs each.

    Example:
        >>> default_bins(399), default_bins(400)
        (10, 20)
    """
    return 20 if as_count(n, "n", minimum=1) >= 400 else 10


@lru_cache(maxsize=64)
def _bounds(n: int, level: float, levels: int) -> tuple[Counts, Counts]:
    """Smallest and largest counts of the band, `(levels,)` each."""
    alpha = np.linspace(0, 1, levels)

    def quantiles(gamma: float) -> tuple[Counts, Counts]:
        from scipy import stats

        # At levels 0 and 1 a count is certain, whatever the tail probability.
        lower, upper = (stats.binom.ppf(q, n, alpha) for q in (gamma / 2, 1 - gamma / 2))
        for counts in (lower, upper):
            counts[[0, -1]] = 0, n
        return lower.astype(np.int64), upper.astype(np.int64)

    return _tightest(quantiles, coverage, level, parts=levels, halvings=25)


@lru_cache(maxsize=256)
def _bin_bounds(n: int, bins: int, level: float) -> tuple[int, int]:
    """Smallest and largest count of the band."""

    def quantiles(gamma: float) -> tuple[int, int]:
        from scipy import stats

        lower, upper = stats.binom.ppf([gamma / 2, 1 - gamma / 2], n, 1 / bins)
        return int(lower), int(upper)

    inside = partial(count_coverage, n, bins)
    return _tightest(quantiles, inside, level, parts=bins, halvings=40)


def _tightest(
    quantiles: Callable[[float], tuple[Bound, Bound]],
    probability: Callable[[Bound, Bound], float],
    level: float,
    *,
    parts: int,
    halvings: int,
) -> tuple[Bound, Bound]:
    """Bounds of the largest tail probability whose band has at least the level, by bisection."""
    enough, too_much = (1 - level) / parts, 1.0  # the first by Bonferroni's inequality
    for _ in range(halvings):
        gamma = (enough + too_much) / 2
        if probability(*quantiles(gamma)) >= level:
            enough = gamma
        else:
            too_much = gamma
    return quantiles(enough)


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
    inside = np.ones(1)  # of the count, for curves that are inside up to the present level
    for j in range(bins):
        start, stop = lower[j + 1] - upper[j] - smallest, upper[j + 1] - lower[j] - smallest + 1
        moved = signal.convolve(inside, increments[start:stop])
        width = upper[j] - lower[j]  # so many entries at either end are outside
        inside = moved[width : len(moved) - width].clip(0)
    return float(inside[0] / stats.poisson.pmf(n, n))


@lru_cache(maxsize=1024)
def count_coverage(n: int, bins: int, lower: int, upper: int) -> float:
    """Probability that the counts of n uniforms in equal bins all lie within bounds.

    Args:
        n: number of uniforms.
        bins: number of bins.
        lower: smallest count, at least 0.
        upper: largest count.
    """
    from scipy import signal, stats

    if not bins * lower <= n <= bins * upper:
        return 0.0
    single = stats.poisson.pmf(np.arange(lower, upper + 1), n / bins)
    total = np.ones(1)  # of the counts so far, those outside left out, from `lower` each
    for digit in f"{bins:b}":  # a power by squaring
        total = signal.convolve(total, total).clip(0)
        if digit == "1":
            total = signal.convolve(total, single).clip(0)
    return float(min(total[n - bins * lower] / stats.poisson.pmf(n, n), 1.0))
