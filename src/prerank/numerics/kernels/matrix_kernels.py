"""Inverses of lower triangular matrices with their gradient, and eigenvectors of symmetric ones.

See `prerank.numerics.matrices` for what is computed. There is one matrix per program.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.numerics.kernels import launch

__all__ = ["inverse_gradient", "jacobi_eigen", "lower_inverse"]

_SWEEPS = {torch.float32: 7, torch.float64: 9}


def lower_inverse(factors: Tensor) -> Tensor:
    """Inverses `(..., D, D)`."""
    return _mapped(_invert, factors)


def inverse_gradient(inverse: Tensor, gradient: Tensor) -> Tensor:
    """`-tril(A' G A')` of inverses A and their gradients G."""
    return _mapped(_inverse_gradient, inverse, gradient)


def _mapped(kernel: Any, *matrices: Tensor) -> Tensor:
    dim = matrices[0].shape[-1]
    work = [matrix.reshape(-1, dim, dim).contiguous() for matrix in matrices]
    result = torch.empty_like(work[0])
    launch(kernel, (*work, result), dim, block=triton.next_power_of_2(dim))
    return result.reshape(matrices[0].shape)


@triton.jit
def _invert(factors, result, dim, block: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * dim * dim
    line = tl.arange(0, block)
    row, column = line[:, None], line[None, :]
    x = tl.zeros((block, block), dtype=factors.dtype.element_ty)
    for i in range(dim):
        left = tl.load(factors + first + i * dim + line, mask=line < i, other=0.0)
        pivot = tl.load(factors + first + i * dim + i)
        # Divided first: products of very small and very large rows may overflow.
        known = tl.sum((left / pivot)[:, None] * x, 0)
        new = tl.where(line == i, 1.0, 0.0) / pivot - known
        x = tl.where(row == i, new[None, :], x)
    inside = (row < dim) & (column < dim)
    tl.store(result + first + row * dim + column, x, mask=inside)


@triton.jit
def _inverse_gradient(inverse, gradient, result, dim, block: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * dim * dim
    line = tl.arange(0, block)
    row, column = line[:, None], line[None, :]
    inside = (row < dim) & (column < dim)
    a = tl.load(inverse + first + row * dim + column, mask=inside, other=0.0)
    g = tl.load(gradient + first + row * dim + column, mask=inside, other=0.0)
    half = tl.sum(g[:, None, :] * a[None, :, :], 2)  # G A', whose units cancel
    whole = tl.sum(a[:, :, None] * half[:, None, :], 0)  # A' G A'
    value = tl.where(row >= column, -whole, 0.0)
    tl.store(result + first + row * dim + column, value, mask=inside)


def jacobi_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    r"""Eigenvalues `(..., D)` in no order, and eigenvectors as rows `(..., D, D)`.

    In Jacobi's iteration, a rotation by the angle with tangent t makes one entry outside the
    diagonal zero,

    .. math:: \rho = \frac{a_{qq} - a_{pp}}{2 a_{pq}}, \qquad
              t = \frac{\operatorname{sign}(\rho)}{|\rho| + \sqrt{1 + \rho^2}}, \qquad
              A \leftarrow J^\top A J, \quad V \leftarrow V J.

    In each round of a tournament every index has one opponent, so n / 2 rotations are made at
    once: a column becomes a combination of itself and its opponent's. A sweep has n - 1 rounds and
    meets every pair once. Convergence is quadratic: a fixed number of sweeps reaches rounding error
    for the small matrices that targets give, and nothing has to be asked of the device, as a solver
    that decides when to stop has to.
    """
    dim = matrices.shape[-1]
    work = matrices.detach().reshape(-1, dim, dim).contiguous()
    values = work.new_empty(len(work), dim)
    vectors = torch.empty_like(work)
    block = max(2, triton.next_power_of_2(dim))
    launch(_jacobi, (work, values, vectors), dim, _SWEEPS[work.dtype], block=block)
    return values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)


@triton.jit
def _jacobi(matrices, values, vectors, dim, sweeps, block: tl.constexpr):
    row = tl.arange(0, block)[:, None]
    column = tl.arange(0, block)[None, :]
    place = tl.program_id(0).to(tl.int64) * dim * dim + row * dim + column
    inside = (row < dim) & (column < dim)
    a = tl.load(matrices + place, mask=inside, other=0.0)
    v = tl.where(row == column, 1.0, 0.0).to(a.dtype)
    line = tl.arange(0, block)
    last = block - 1
    for number in range(sweeps * last):
        # Opponents: i and t - i on a circle of n - 1; the one who meets himself meets the last.
        turn = number % last
        other = (turn - line + last) % last
        other = tl.where(other == line, last, other)
        other = tl.where(line == last, turn * (block // 2) % last, other)
        across = tl.broadcast_to(other[None, :], (block, block))
        down = tl.broadcast_to(other[:, None], (block, block))
        own = tl.sum(tl.where(row == column, a, 0.0), 0)
        theirs = tl.gather(own, other, 0)
        between = tl.sum(tl.where(row == across, a, 0.0), 0)
        # Rounding must not give the two of a pair different angles.
        between = 0.5 * (between + tl.gather(between, other, 0))
        small = tl.abs(between) < 1e-37
        ratio = (theirs - own) / tl.where(small, 1.0, 2 * between)
        up = (ratio > 0) | ((ratio == 0) & (line < other))
        t = 1 / (tl.abs(ratio) + tl.sqrt(1 + ratio * ratio))
        t = tl.where(small, 0.0, tl.where(up, t, -t)).to(a.dtype)
        c = 1 / tl.sqrt(1 + t * t)
        s = t * c
        a = c[None, :] * a - s[None, :] * tl.gather(a, across, 1)
        a = c[:, None] * a - s[:, None] * tl.gather(a, down, 0)
        v = c[None, :] * v - s[None, :] * tl.gather(v, across, 1)
    tl.store(
        values + tl.program_id(0).to(tl.int64) * dim + row + 0 * column,
        a,
        mask=inside & (row == column),
    )
    # Columns of V are the eigenvectors: they are written as rows.
    turned = tl.program_id(0).to(tl.int64) * dim * dim + column * dim + row
    tl.store(vectors + turned, v, mask=inside)
