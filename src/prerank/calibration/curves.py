"""The shape of miscalibration: reliability curves and PIT histograms."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.error import check_pits, level_cdf, level_grid
from prerank.inputs import as_count

__all__ = ["PITHistogram", "ReliabilityCurve", "pit_histogram", "reliability_curve"]


class ReliabilityCurve(NamedTuple):
    """Observed against nominal frequencies.

    Attributes:
        levels: `(L,)`.
        observed: `(..., L, J)`, the fraction of PITs at or below each level.
    """

    levels: Tensor
    observed: Tensor


class PITHistogram(NamedTuple):
    """Density of PITs over equal bins; 1 everywhere where calibrated.

    Attributes:
        edges: `(bins + 1,)`.
        density: `(..., bins, J)`.
    """

    edges: Tensor
    density: Tensor


def reliability_curve(z: object, *, levels: int = 100) -> ReliabilityCurve:
    r"""Empirical CDF of PITs, :math:`\hat F_Z(\alpha) = \frac1n \#\{Z_i \le \alpha\}`.

    A curve above the diagonal on the left and below on the right means PITs at both ends: the
    forecast is too narrow. The reverse means too wide. A curve on one side means a bias.

    Args:
        z: PITs `(..., N, J)`.
        levels: number of levels, end points included.

    Example:
        >>> curve = reliability_curve(torch.tensor([[0.1], [0.6]]), levels=3)
        >>> curve.observed.squeeze(-1)
        tensor([0.0000, 0.5000, 1.0000])
    """
    values = check_pits(z)
    grid = level_grid(levels).to(values)
    return ReliabilityCurve(grid, level_cdf(values, levels).to(values.dtype))


def pit_histogram(z: object, *, bins: int = 20) -> PITHistogram:
    """Histogram of PITs, normalised to a density.

    Args:
        z: PITs `(..., N, J)`.
        bins: number of equal bins. Bins are closed on the right, the first on both sides.

    Example:
        >>> pit_histogram(torch.tensor([[0.1], [0.2], [0.9], [0.3]]), bins=2).density.squeeze(-1)
        tensor([1.5000, 0.5000])
    """
    values = check_pits(z)
    cdf = level_cdf(values, as_count(bins, "bins", minimum=1) + 1)
    density = torch.diff(cdf, dim=-2) * bins
    density[..., 0, :] += cdf[..., 0, :] * bins
    return PITHistogram(level_grid(bins + 1).to(values), density.to(values.dtype))
