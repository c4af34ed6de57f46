"""What the shape of a curve or histogram says: a shift, a wrong spread, or neither."""

from typing import NamedTuple

import torch

from prerank.calibration.bands import HistogramBand, ReliabilityBand
from prerank.calibration.curves import PITHistogram, ReliabilityCurve, level_grid
from prerank.errors import ShapeError

__all__ = ["DeviationShape", "deviation_shapes", "histogram_shapes"]

_SHARE = 0.25


class DeviationShape(NamedTuple):
    """How the PITs of one component differ from uniform.

    Attributes:
        outside: whether the curve leaves the band; if not, the rest may be chance.
        shift: -1 where PITs are too small, 1 where they are too large, 0 where neither dominates.
        spread: -1 where PITs crowd in the middle, 1 where they crowd at both ends, else 0.
    """

    outside: bool
    shift: int
    spread: int


def deviation_shapes(curve: ReliabilityCurve, band: ReliabilityBand) -> list[DeviationShape]:
    r"""Read each component's curve by its first two sine waves.

    .. math:: \hat F_Z(\alpha) - \alpha = \sum_k c_k \sin(k \pi \alpha)

    A deviation is zero at both ends, so sines are its natural parts. The first is a curve on one
    side of the diagonal, hence a shift: :math:`c_1 > 0` means PITs too small. The second changes
    sides half way, hence a wrong spread: :math:`c_2 > 0` means PITs at both ends. Each counts if it
    makes up at least a quarter of the squared deviation.

    Args:
        curve: of one predictor, `observed` of shape `(L, J)`.
        band: at the same levels.

    Returns:
        One shape for each component.

    Example:
        >>> from prerank.calibration import reliability_band, reliability_curve
        >>> z = torch.linspace(0.005, 0.995, 100).unsqueeze(-1)
        >>> deviation_shapes(reliability_curve(z**2), reliability_band(100))
        [DeviationShape(outside=True, shift=-1, spread=0)]
    """
    observed = curve.observed.double().cpu()
    if observed.dim() != 2 or len(observed) != len(band.levels):
        raise ShapeError(
            f"observed must have shape ({len(band.levels)}, J), with the levels of the band, got "
            f"{tuple(observed.shape)}"
        )
    half_a_count = 0.5 / band.n  # a curve on the bound is inside, however it was rounded
    lower, upper = (bound.reshape(len(observed), -1) for bound in (band.lower, band.upper))
    below, above = observed < lower - half_a_count, observed > upper + half_a_count
    outside = (below | above).any(0)
    deviation = observed - band.levels.unsqueeze(-1)
    orders = torch.arange(1, 3, dtype=torch.float64).unsqueeze(-1)
    waves = torch.sin(orders * torch.pi * band.levels)  # (2, L)
    parts = waves @ deviation  # (2, J)
    share = 2 * parts.square() / (len(observed) - 1) / deviation.square().sum(0).clamp_min(1e-300)
    signs = torch.where(share >= _SHARE, parts.sign(), 0).int()
    return [
        DeviationShape(bool(outside[j]), -int(signs[0, j]), int(signs[1, j]))
        for j in range(observed.shape[1])
    ]


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
        >>> from prerank.calibration import histogram_band, pit_histogram
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
