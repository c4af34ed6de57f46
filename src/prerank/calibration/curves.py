"""Counts of PITs by level: reliability curves, PIT histograms, and smooth counts for training."""

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prerank.defaults import LEVELS
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count, as_tensor, check_finite
from prerank.numerics import QuickFunction, join, row_blocks
from prerank.numerics.buckets import Buckets
from prerank.numerics.kernels import numba_kernels

__all__ = ["PITHistogram", "ReliabilityCurve", "level_counts", "pit_histogram", "reliability_curve"]

_LONGEST = 2**13  # PITs at a time


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


def reliability_curve(z: object, *, levels: int = LEVELS) -> ReliabilityCurve:
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


def check_pits(z: object) -> Tensor:
    """Convert PITs to a tensor `(..., N, J)` and check that they lie in [0, 1]."""
    values = as_tensor(z, "z")
    if values.dim() < 2:
        raise ShapeError(
            f"z must have shape (..., N, J), got {tuple(values.shape)}: use z[:, None] for one "
            "component"
        )
    if values.numel() == 0:
        raise ShapeError(f"z is empty: its shape is {tuple(values.shape)}")
    check_finite(values, "z")
    if bool((values < 0).any() | (values > 1).any()):
        raise InputError("z holds values outside [0, 1]: pass PITs, not pre-ranks")
    return values


def level_grid(levels: int) -> Tensor:
    """Levels at which the CDF of the PITs is compared, in float64."""
    return torch.linspace(0, 1, as_count(levels, "levels", minimum=2), dtype=torch.float64)


def level_index(values: Tensor, levels: int) -> Tensor:
    """Index of the smallest level that is not below each PIT."""
    return _level_buckets(as_count(levels, "levels", minimum=2))(values)


@functools.lru_cache(maxsize=16)
def _level_buckets(levels: int) -> Buckets:
    return Buckets(level_grid(levels))


def level_cdf(values: Tensor, levels: int) -> Tensor:
    """Empirical CDF of the PITs at each level, `(..., levels, J)`, in float64."""
    index = level_index(values, levels)
    shape = (*values.shape[:-2], levels, values.shape[-1])
    counts = torch.zeros(shape, dtype=torch.float64, device=values.device)
    counts.scatter_add_(-2, index, torch.ones_like(index, dtype=torch.float64))
    return counts.cumsum(-2) / values.shape[-2]


def pce_of_curve(curve: Tensor) -> Tensor:
    """PCE of a CDF `(..., levels, J)` of PITs, shape `(..., J)`."""
    grid = level_grid(curve.shape[-2]).to(curve.device).unsqueeze(-1)
    return (curve - grid).abs().mean(-2)


def level_counts(z: Tensor, levels: int, tau: float) -> Tensor:
    r"""Smooth number of PITs below each level.

    .. math:: c_m = \sum_{i=1}^N \sigma\big(\tau (\alpha_m - z_i)\big), \qquad
              \frac{\partial c_m}{\partial z_i} = -\tau\, \sigma (1 - \sigma).

    Args:
        z: `(..., N, J)`.
        levels: number of equidistant levels, 0 and 1 included.
        tau: sharpness.

    Returns:
        `(..., J, levels)`.

    Example:
        >>> level_counts(torch.tensor([[0.2], [0.6]]), levels=3, tau=1000.0)
        tensor([[0., 1., 2.]])
    """
    grid = torch.linspace(0, 1, levels, dtype=z.dtype, device=z.device)
    # One row for each member of the stack and component. Sums along it must not jump in memory.
    rows = z.mT.reshape(-1, 1, z.shape[-2]).contiguous()
    counts: Tensor = _LevelCounts.apply(rows, grid.unsqueeze(-1), tau)
    return counts.reshape(*z.shape[:-2], z.shape[-1], levels)


class _LevelCounts(QuickFunction):
    """The sigmoids `(rows, levels, N)` are computed again for the gradient, not kept."""

    @staticmethod
    def forward(z: Tensor, grid: Tensor, tau: float) -> Tensor:
        kernels = numba_kernels(z, grid)
        if kernels is not None:
            found = z.new_empty(len(z), len(grid))
            kernels.level_counts(*_arrays(z, grid, tau), found.numpy())
            return found
        counts = []
        for block in _blocks(z, grid):
            parts = [_sigmoids(p, grid, tau).sum(-1) for p in z[block].split(_LONGEST, -1)]
            counts.append(functools.reduce(torch.add, parts))
        return join(counts)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        z, grid, ctx.tau = inputs
        ctx.save_for_backward(z, grid)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        z, grid = ctx.saved_tensors
        kernels = None if torch.is_grad_enabled() else numba_kernels(z, grid, gradient)
        if kernels is not None:
            to_z, upstream = torch.empty_like(z), gradient.contiguous().numpy()
            kernels.level_gradient(*_arrays(z, grid, ctx.tau), upstream, to_z.numpy()[:, 0])
            return to_z, None, None
        gradients = []
        for block in _blocks(z, grid):
            slopes = []
            for part in z[block].split(_LONGEST, -1):
                sigmoid = _sigmoids(part, grid, ctx.tau)
                slope = torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1)
                slopes.append(gradient[block].unsqueeze(-2) @ slope)
            gradients.append(torch.cat(slopes, -1))
        return -ctx.tau * join(gradients), None, None


def _arrays(
    z: Tensor, grid: Tensor, tau: float
) -> tuple[NDArray[np.float32], NDArray[np.float32], np.float32]:
    """What the kernels take: PITs `(rows, N)`, levels `(L,)` and the sharpness."""
    return z.detach().numpy()[:, 0], grid.numpy()[:, 0], np.float32(tau)


def _blocks(z: Tensor, grid: Tensor) -> list[slice]:
    """Whole rows at a time: how their terms are added must not depend on how many there are."""
    return row_blocks(len(z), min(z.shape[-1], _LONGEST) * len(grid), z)


def _sigmoids(z: Tensor, grid: Tensor, tau: float) -> Tensor:
    return (grid - z).mul_(tau).sigmoid_()
