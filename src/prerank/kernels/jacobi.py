r"""Jacobi's eigenvalue iteration as one Triton kernel, a block of matrices per program.

Each rotation makes one entry below the diagonal zero,

.. math:: \theta = \tfrac12 \operatorname{atan2}(2 a_{pq}, a_{qq} - a_{pp}), \qquad
          A \leftarrow J^\top A J, \quad V \leftarrow V J,

and a sweep visits all pairs p < q. Convergence is quadratic: a fixed number of sweeps reaches
rounding error for the small matrices that targets give, so nothing has to be asked of the device.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["jacobi_eigen"]

_SWEEPS = {torch.float32: 7, torch.float64: 9}


def jacobi_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues `(..., D)` in no order, and eigenvectors as rows `(..., D, D)`."""
    dim = matrices.shape[-1]
    work = matrices.detach().reshape(-1, dim, dim).contiguous()
    values = work.new_empty(len(work), dim)
    vectors = torch.empty_like(work)
    size = max(2, triton.next_power_of_2(dim))
    block = max(1, 1024 // size**2)
    with torch.cuda.device(work.device):
        _kernel[(triton.cdiv(len(work), block),)](
            work, values, vectors, len(work), dim, _SWEEPS[work.dtype], block, size
        )
    return values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)


@triton.jit
def _kernel(
    matrices,
    values,
    vectors,
    count,
    dim,
    sweeps,
    block: tl.constexpr,
    size: tl.constexpr,
):
    which = tl.program_id(0) * block + tl.arange(0, block)[:, None, None]
    row = tl.arange(0, size)[None, :, None]
    column = tl.arange(0, size)[None, None, :]
    place = which * dim * dim + row * dim + column
    inside = (which < count) & (row < dim) & (column < dim)
    a = tl.load(matrices + place, mask=inside, other=0.0)
    # Rows of v are the eigenvectors, so it turns as the rows of a do.
    v = (row == column).to(a.dtype) + tl.zeros_like(a)
    for _ in range(sweeps):
        for p in range(dim - 1):
            for q in range(p + 1, dim):
                at_p, at_q = column == p, column == q
                column_p = tl.sum(tl.where(at_p, a, 0.0), 2, keep_dims=True)
                column_q = tl.sum(tl.where(at_q, a, 0.0), 2, keep_dims=True)
                a_pp = tl.sum(tl.where(row == p, column_p, 0.0), 1, keep_dims=True)
                a_pq = tl.sum(tl.where(row == q, column_p, 0.0), 1, keep_dims=True)
                a_qq = tl.sum(tl.where(row == q, column_q, 0.0), 1, keep_dims=True)
                # The smaller of the two angles: t = tan(theta), |t| <= 1.
                small = tl.abs(a_pq) < 1e-37
                ratio = (a_qq - a_pp) / tl.where(small, 1.0, 2 * a_pq)
                sign = tl.where(ratio >= 0, 1.0, -1.0)
                t = sign / (tl.abs(ratio) + tl.sqrt(1 + ratio * ratio))
                t = tl.where(small, 0.0, t).to(a.dtype)
                c = 1 / tl.sqrt(1 + t * t)
                s = t * c
                a = tl.where(at_p, c * column_p - s * column_q, a)
                a = tl.where(at_q, s * column_p + c * column_q, a)
                at_p, at_q = row == p, row == q
                row_p = tl.sum(tl.where(at_p, a, 0.0), 1, keep_dims=True)
                row_q = tl.sum(tl.where(at_q, a, 0.0), 1, keep_dims=True)
                a = tl.where(at_p, c * row_p - s * row_q, a)
                a = tl.where(at_q, s * row_p + c * row_q, a)
                row_p = tl.sum(tl.where(at_p, v, 0.0), 1, keep_dims=True)
                row_q = tl.sum(tl.where(at_q, v, 0.0), 1, keep_dims=True)
                v = tl.where(at_p, c * row_p - s * row_q, v)
                v = tl.where(at_q, s * row_p + c * row_q, v)
    diagonal = which * dim + row + 0 * column
    tl.store(values + diagonal, a, mask=inside & (row == column))
    tl.store(vectors + place, v, mask=inside)
