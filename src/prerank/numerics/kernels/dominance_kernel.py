"""Smooth counts of dominated references, and their gradient, one row per program.

See `prerank.numerics.comparisons` for what is computed. Points are `(rows, D, S)`, references
`(rows, D, R)`, weights `(rows, 1, R)`, counts `(rows, S)`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["dominance", "dominance_gradient"]


def dominance(points: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """Weighted smooth number of references below each point, `(rows, S)`."""
    rows, _, size = points.shape
    counts = points.new_empty(rows, size)
    _launch(_forward, points, reference, weights, counts)
    return counts


def dominance_gradient(
    points: Tensor, reference: Tensor, weights: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of points, references and weights, given that of the counts."""
    gradients = torch.empty_like(points), torch.empty_like(reference), torch.empty_like(weights)
    _launch(_backward, points, reference, weights, gradient.contiguous(), *gradients)
    return gradients


def _launch(kernel: Any, points: Tensor, reference: Tensor, *others: Tensor) -> None:
    rows, dim, size = points.shape
    with torch.cuda.device(points.device):
        kernel[(rows,)](
            points,
            reference,
            *others,
            dim,
            size,
            reference.shape[-1],
            tall=triton.next_power_of_2(dim),
            block=triton.next_power_of_2(size),
            num_warps=1 if size <= 128 else 4,
        )


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
def _forward(
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
def _backward(
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
