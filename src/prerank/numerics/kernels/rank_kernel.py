"""Smooth ranks and their gradient, one row per program.

See `prerank.numerics.comparisons` for what is computed. Values are `(rows, 1, S + 1)`, weights
`(rows, 1, S)`, widths and ranks `(rows, 1)`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["ranked", "ranked_gradient"]


def ranked(values: Tensor, weights: Tensor, width: Tensor) -> Tensor:
    """Smooth ranks."""
    ranks = torch.empty_like(width)
    _launch(_forward, values, weights, width, ranks)
    return ranks


def ranked_gradient(
    values: Tensor, weights: Tensor, width: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of values and weights."""
    gradients = torch.empty_like(values), torch.empty_like(weights)
    _launch(_backward, values, weights, width, gradient, *gradients)
    return gradients


def _launch(kernel: Any, values: Tensor, weights: Tensor, *others: Tensor) -> None:
    size = weights.shape[-1]
    block, warps = triton.next_power_of_2(size), 1 if size <= 128 else 4
    with torch.cuda.device(values.device):
        kernel[(len(values),)](values, weights, *others, size, block=block, num_warps=warps)


@triton.jit
def _counted(values, weights, width, row, s, size):
    inside = s < size
    first = tl.load(values + row * (size + 1))
    others = tl.load(values + row * (size + 1) + 1 + s, mask=inside, other=0.0)
    w = tl.load(weights + row * size + s, mask=inside, other=0.0)
    h = tl.load(width + row)
    sigmoid = 1 / (1 + tl.exp((others - first) / h))
    # As in the plain form: the root of the smallest number of the type.
    tiny = 1e-154 if w.dtype == tl.float64 else 1e-19
    n = 1 / tl.maximum(tl.sum(w * w, 0), tiny)
    return sigmoid, w, h, tl.sum(w * sigmoid, 0), n


@triton.jit
def _forward(values, weights, width, ranks, size, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, block)
    _, _, _, below, n = _counted(values, weights, width, row, s, size)
    tl.store(ranks + row, (n * below + 0.5) / (n + 1))


@triton.jit
def _backward(values, weights, width, gradient, to_values, to_weights, size, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, block)
    sigmoid, w, h, below, n = _counted(values, weights, width, row, s, size)
    upstream = tl.load(gradient + row)
    whole = upstream * n / (n + 1)
    slope = whole / h * w * sigmoid * (1 - sigmoid)
    tl.store(to_values + row * (size + 1), tl.sum(slope, 0))
    tl.store(to_values + row * (size + 1) + 1 + s, -slope, mask=s < size)
    by_size = upstream * 2 * n * n * (below - 0.5) / ((n + 1) * (n + 1))
    tl.store(to_weights + row * size + s, whole * sigmoid - by_size * w, mask=s < size)
