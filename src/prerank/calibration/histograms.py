r"""Where the bars of a right predictor's PIT histogram stay, all at once, and what they say if not.

The counts of n uniforms in equal bins are multinomial. They are also independent Poisson counts
given their total, so the probability that all of them keep to common bounds is one entry of a
power: the Poisson law between the bounds, convolved with itself once for every bin, at n.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from prerank.calibration.bands import ReliabilityBand
from prerank.calibration.curves import PITHistogram, ReliabilityCurve
from prerank.calibration.error import level_grid
from prerank.calibration.shapes import DeviationShape, deviation_shapes
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count

__all__ = ["HistogramBand", "default_bins", "histogram_band", "histogram_shapes"]

_HALVINGS = 40


class HistogramBand(NamedTuple):
    """Bounds that all bars of a right predictor's PIT histogram keep to at once.

    Attributes:
        lower: smallest density, the same for every bin; a bar on the bound is still inside.
        upper: largest density, likewise.
        n: number of PITs.
        bins: number of equal bins.
        level: the probability that was asked for.
        coverage: the probability of the band, at least `level`: counts are discrete.
    """

    lower: float
    upper: float
    n: int
    bins: int
    level: float
    coverage: float


def histogram_band(n: int, bins: int = 20, level: float = 0.95) -> HistogramBand:
    r"""Simultaneous band for the bars of a histogram of n independent uniforms.

    .. math:: P\{\ell \le C_b \le u \text{ for all } b\} \ge \text{level}, \qquad
              (C_1, \dots, C_B) \sim \mathrm{Multinomial}(n; 1/B, \dots, 1/B),

    with :math:`\ell` and :math:`u` the :math:`\gamma/2` and :math:`1 - \gamma/2` quantiles of the
    binomial law with n trials and probability 1/B, for the largest :math:`\gamma` that allows it.
    The probability is computed, not simulated. It exceeds `level` by up to the probability that
    some bar is at the very bound: by about 0.02 for 20 bins of 10 PITs each.

    The band holds for one histogram. Of several, each has its own chance to leave it.

    Args:
        n: number of PITs.
        bins: B, as in `pit_histogram`.
        level: probability that all bars of a right predictor stay inside.

    Returns:
        Bounds in the units of `pit_histogram`, densities :math:`C_b B / n`.

    Example:
        >>> band = histogram_band(400)
        >>> round(band.lower, 3), round(band.upper, 3), round(band.coverage, 3)
        (0.4, 1.7, 0.966)
    """
    if not 0 < level < 1:
        raise InputError(f"level is the probability of the band, between 0 and 1, got {level!r}")
    n, bins = as_count(n, "n", minimum=1), as_count(bins, "bins", minimum=1)
    lower, upper = _bounds(n, bins, float(level))
    probability = count_coverage(n, bins, lower, upper)
    return HistogramBand(lower * bins / n, upper * bins / n, n, bins, float(level), probability)


def default_bins(n: int) -> int:
    """Number of bins for n PITs: 20, or 10 where 20 would hold fewer than 20 PITs each.

    Example:
        >>> default_bins(399), default_bins(400)
        (10, 20)
    """
    return 20 if as_count(n, "n", minimum=1) >= 400 else 10


def histogram_shapes(histogram: PITHistogram, band: HistogramBand) -> list[DeviationShape]:
    r"""Read each component's histogram as `deviation_shapes` reads its reliability curve.

    .. math:: \hat F_Z(b / B) = \tfrac1B \sum_{a \le b} h_a

    Bars of height :math:`h_a` add up to the curve at the edges of the bins, whose sine waves tell
    a shift from a wrong spread. Whether the deviation is more than chance is for the bars to say:
    `outside` is true where one of them leaves the band of the histogram.

    Args:
        histogram: of one predictor, `density` of shape `(bins, J)`.
        band: for the same number of bins.

    Returns:
        One shape for each component.

    Example:
        >>> from prerank.calibration import pit_histogram
        >>> z = torch.linspace(0.005, 0.995, 100).unsqueeze(-1)
        >>> histogram_shapes(pit_histogram(z**3, bins=10), histogram_band(100, 10))
        [DeviationShape(outside=True, shift=-1, spread=0)]
    """
    density = histogram.density.double().cpu()
    if density.dim() != 2 or len(density) != band.bins:
        raise ShapeError(
            f"density must have shape ({band.bins}, J), with the bins of the band, got "
            f"{tuple(density.shape)}"
        )
    half_a_count = 0.5 * band.bins / band.n  # a bar on the bound is inside, however rounded
    outside = ((density < band.lower - half_a_count) | (density > band.upper + half_a_count)).any(0)
    levels = level_grid(band.bins + 1)
    observed = torch.cat([torch.zeros_like(density[:1]), density.cumsum(0) / band.bins])
    anything = ReliabilityBand(
        levels, torch.zeros_like(levels), torch.ones_like(levels), band.n, band.level
    )
    shapes = deviation_shapes(ReliabilityCurve(levels, observed), anything)
    return [shape._replace(outside=bool(out)) for shape, out in zip(shapes, outside, strict=True)]


@lru_cache(maxsize=256)
def _bounds(n: int, bins: int, level: float) -> tuple[int, int]:
    """Smallest and largest count of the band."""
    enough, too_much = (1 - level) / bins, 1.0  # the first by Bonferroni's inequality
    for _ in range(_HALVINGS):
        gamma = (enough + too_much) / 2
        if count_coverage(n, bins, *_quantiles(n, bins, gamma)) >= level:
            enough = gamma
        else:
            too_much = gamma
    return _quantiles(n, bins, enough)


def _quantiles(n: int, bins: int, gamma: float) -> tuple[int, int]:
    from scipy import stats

    lower, upper = stats.binom.ppf([gamma / 2, 1 - gamma / 2], n, 1 / bins)
    return int(lower), int(upper)


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
    total = np.ones(1)  # law of the counts so far, those outside left out, from `lower` each
    for digit in f"{bins:b}":  # a power by squaring
        total = signal.convolve(total, total).clip(0)
        if digit == "1":
            total = signal.convolve(total, single).clip(0)
    return float(min(total[n - bins * lower] / stats.poisson.pmf(n, n), 1.0))
