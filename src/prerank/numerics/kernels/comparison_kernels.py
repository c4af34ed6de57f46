"""Smooth ranks, smooth counts of dominated references, and their gradients, one row per program.

See `prerank.numerics.comparisons` for what is computed. For ranks, values are `(rows, 1, S + 1)`,
weights `(rows, 1, S)`, widths and ranks `(rows, 1)`. For counts, points are `(rows, D, S)`,
references `(rows, D, R)`, weights `(rows, 1, R)`, counts `(rows, S)`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.numerics.kernels import launch

__all__ = ["dominance", "dominance_gradient", "ranked", "ranked_gradient"]


def ranked(values: Tensor, weights: Tensor, width: Tensor) -> Tensor:
    """Smooth ranks."""
    ranks = torch.empty_like(width)
    size = weights.shape[-1]
    launch(_rank, (values, weights, width, ranks), size, block=triton.next_power_of_2(size))
    return ranks


def ranked_gradient(
    values: Tensor, weights: Tensor, width: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of values and weights."""
    gradients = torch.empty_like(values), torch.empty_like(weights)
    size = weights.shape[-1]
    tensors = (values, weights, width, gradient, *gradients)
    launch(_rank_gradient, tensors, size, block=triton.next_power_of_2(size))
    return gradients


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
def _rank(values, weights, width, ranks, size, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, block)
    _, _, _, below, n = _counted(values, weights, width, row, s, size)
    tl.store(ranks + row, (n * below + 0.5) / (n + 1))


@triton.jit
def _rank_gradient(
    values, weights, width, gradient, to_values, to_weights, size, block: tl.constexpr
):
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


def dominance(points: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """Weighted smooth number of references below each point, `(rows, S)`."""
    rows, _, size = points.shape
    counts = points.new_empty(rows, size)
    _compare(_dominance, points, reference, weights, counts)
    return counts


def dominance_gradient(
    points: Tensor, reference: Tensor, weights: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of points, references and weights, given that of the counts."""
    gradients = torch.empty_like(points), torch.empty_like(reference), torch.empty_like(weights)
    upstream = gradient.contiguous()
    _compare(_dominance_gradient, points, reference, weights, upstream, *gradients)
    return gradients


def _compare(kernel: Any, points: Tensor, reference: Tensor, *others: Tensor) -> None:
    dim, size = points.shape[1:]
    block, tall = triton.next_power_of_2(size), triton.next_power_of_2(dim)
    tensors = (points, reference, *others)
    launch(kernel, tensors, dim, size, reference.shape[-1], block=block, tall=tall)


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def _below(point, reference, row, r, d, dim, count, inside):
    """Sigmoids of one reference `(tall, block)`, 1 outside, and their product `(block,)`."""
    q = tl.load(reference + (row * dim + d) * count + r, mask=d < dim, other=0.0)
    sigmoid = tl.where(inside, 1 / (1 + tl.exp(q - point)), 1.0)
    return sigmoid, tl.reduce(sigmoid, 0, _times)


@triton.jit
def _points_of_row(points, dim, size, tall: tl.constexpr, block: tl.constexpr):
    """The row, its targets and draws, which of them there are, and the points `(tall, block)`."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, tall)[:, None]
    s = tl.arange(0, block)[None, :]
    inside = (d < dim) & (s < size)
    point = tl.load(points + (row * dim + d) * size + s, mask=inside, other=0.0)
    return row, d, s, inside, point


@triton.jit
def _dominance(
    points, reference, weights, counts, dim, size, count, tall: tl.constexpr, block: tl.constexpr
):
    # Every name has one type in a kernel: the draws have another one than the sigmoids.
    row, d, _draws, inside, point = _points_of_row(points, dim, size, tall, block)
    total = tl.zeros((block,), dtype=point.dtype)
    for r in range(count):
        _sigmoid, product = _below(point, reference, row, r, d, dim, count, inside)
        total += tl.load(weights + row * count + r) * product
    column = tl.arange(0, block)
    tl.store(counts + row * size + column, total, mask=column < size)


@triton.jit
def _dominance_gradient(
    points,
    reference,
    weights,
    gradient,
    to_points,
    to_reference,
    to_weights,
    dim,
    size,
    count,
    tall: tl.constexpr,
    block: tl.constexpr,
):
    row, d, s, inside, point = _points_of_row(points, dim, size, tall, block)
    column = tl.arange(0, block)
    upstream = tl.load(gradient + row * size + column, mask=column < size, other=0.0)
    total = tl.zeros((tall, block), dtype=point.dtype)
    target = tl.arange(0, tall)
    for r in range(count):
        sigmoid, product = _below(point, reference, row, r, d, dim, count, inside)
        product = product * upstream
        tl.store(to_weights + row * count + r, tl.sum(product, 0))
        product = product * tl.load(weights + row * count + r)
        slope = product[None, :] * (1 - sigmoid)
        total += slope
        tl.store(
            to_reference + (row * dim + target) * count + r, -tl.sum(slope, 1), mask=target < dim
        )
    tl.store(to_points + (row * dim + d) * size + s, total, mask=inside)
