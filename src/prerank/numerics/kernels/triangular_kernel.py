"""Inverses of lower triangular matrices, and their gradient, one matrix per program."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["inverse_gradient", "lower_inverse"]


def lower_inverse(factors: Tensor) -> Tensor:
    """Inverses `(..., D, D)`."""
    return _launch(_forward, factors)


def inverse_gradient(inverse: Tensor, gradient: Tensor) -> Tensor:
    """`-tril(A' G A')` of inverses A and their gradients G."""
    return _launch(_backward, inverse, gradient)


def _launch(kernel: Any, *matrices: Tensor) -> Tensor:
    work, dim = [tensor.contiguous() for tensor in matrices], matrices[0].shape[-1]
    result = torch.empty_like(work[0])
    size = triton.next_power_of_2(dim)
    with torch.cuda.device(result.device):
        kernel[(result.numel() // dim**2,)](*work, result, dim, size=size, num_warps=1)
    return result


@triton.jit
def _forward(factors, result, dim, size: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * dim * dim
    line = tl.arange(0, size)
    row, column = line[:, None], line[None, :]
    x = tl.zeros((size, size), dtype=factors.dtype.element_ty)
    for i in range(dim):
        left = tl.load(factors + first + i * dim + line, mask=line < i, other=0.0)
        known = tl.sum(left[:, None] * x, 0)
        pivot = tl.load(factors + first + i * dim + i)
        new = (tl.where(line == i, 1.0, 0.0) - known) / pivot
        x = tl.where(row == i, new[None, :], x)
    inside = (row < dim) & (column < dim)
    tl.store(result + first + row * dim + column, x, mask=inside)


@triton.jit
def _backward(inverse, gradient, result, dim, size: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * dim * dim
    line = tl.arange(0, size)
    row, column = line[:, None], line[None, :]
    inside = (row < dim) & (column < dim)
    a = tl.load(inverse + first + row * dim + column, mask=inside, other=0.0)
    g = tl.load(gradient + first + row * dim + column, mask=inside, other=0.0)
    half = tl.sum(a[:, :, None] * g[:, None, :], 0)  # A' G
    whole = tl.sum(half[:, None, :] * a[None, :, :], 2)  # A' G A'
    value = tl.where(row >= column, -whole, 0.0)
    tl.store(result + first + row * dim + column, value, mask=inside)
