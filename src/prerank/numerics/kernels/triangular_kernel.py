"""Inverses of lower triangular matrices, and their gradient, one matrix per program."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["inverse_gradient", "lower_inverse"]


def lower_inverse(factors: Tensor) -> Tensor:
    """Inverses `(..., D, D)`."""
    work, dim = factors.contiguous(), factors.shape[-1]
    found = torch.empty_like(work)
    size = triton.next_power_of_2(dim)
    with torch.cuda.device(work.device):
        _forward[(work.numel() // dim**2,)](work, found, dim, size=size, num_warps=1)
    return found


def inverse_gradient(inverse: Tensor, gradient: Tensor) -> Tensor:
    """`-tril(A' G A')` of inverses A and their gradients G."""
    work, dim = inverse.contiguous(), inverse.shape[-1]
    found = torch.empty_like(work)
    size = triton.next_power_of_2(dim)
    with torch.cuda.device(work.device):
        _backward[(work.numel() // dim**2,)](
            work, gradient.contiguous(), found, dim, size=size, num_warps=1
        )
    return found


@triton.jit
def _forward(factors, found, dim, size: tl.constexpr):
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
    tl.store(found + first + row * dim + column, x, mask=inside)


@triton.jit
def _backward(inverse, gradient, found, dim, size: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * dim * dim
    line = tl.arange(0, size)
    row, column = line[:, None], line[None, :]
    inside = (row < dim) & (column < dim)
    a = tl.load(inverse + first + row * dim + column, mask=inside, other=0.0)
    g = tl.load(gradient + first + row * dim + column, mask=inside, other=0.0)
    half = tl.sum(a[:, :, None] * g[:, None, :], 0)  # A' G
    whole = tl.sum(half[:, None, :] * a[None, :, :], 2)  # A' G A'
    value = tl.where(row >= column, -whole, 0.0)
    tl.store(found + first + row * dim + column, value, mask=inside)
