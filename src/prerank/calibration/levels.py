"""Smooth empirical distribution functions of PITs, for training."""

import functools
from typing import Any

import torch
from torch import Tensor

from prerank.numerics.operations import QuickFunction, join, row_blocks

__all__ = ["level_counts"]

_LONGEST = 2**13  # PITs at a time


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
        gradients = []
        for block in _blocks(z, grid):
            slopes = []
            for part in z[block].split(_LONGEST, -1):
                sigmoid = _sigmoids(part, grid, ctx.tau)
                slope = torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1)
                slopes.append(gradient[block].unsqueeze(-2) @ slope)
            gradients.append(torch.cat(slopes, -1))
        return -ctx.tau * join(gradients), None, None


def _blocks(z: Tensor, grid: Tensor) -> list[slice]:
    """Whole rows at a time: how their terms are added must not depend on how many there are."""
    return row_blocks(len(z), min(z.shape[-1], _LONGEST) * len(grid), z)


def _sigmoids(z: Tensor, grid: Tensor, tau: float) -> Tensor:
    return (grid - z).mul_(tau).sigmoid_()
