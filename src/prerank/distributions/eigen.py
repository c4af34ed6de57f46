"""Eigenvectors of many small symmetric matrices."""

import torch
from torch import Tensor

from prerank.kernels import compiled

__all__ = ["symmetric_eigen"]

_LARGEST = 32  # targets; beyond, one program per matrix would run out of registers


def symmetric_eigen(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues in descending order `(..., D)`, and eigenvectors as rows `(..., D, D)`.

    torch's solver waits for the device, so it cannot be part of a CUDA graph. On a GPU a kernel of
    our own takes its place where Triton is there to compile it.

    Args:
        matrices: symmetric, `(..., D, D)`.

    Example:
        >>> values, vectors = symmetric_eigen(torch.diag(torch.tensor([1.0, 3.0, 2.0])))
        >>> values, vectors.abs().argmax(-1)
        (tensor([3., 2., 1.]), tensor([1, 2, 0]))
    """
    if compiled(matrices) and matrices.shape[-1] <= _LARGEST:
        from prerank.kernels.jacobi import jacobi_eigen

        values, vectors = jacobi_eigen(matrices)
        values, order = values.sort(-1, descending=True)
        return values, vectors.gather(-2, order.unsqueeze(-1).expand_as(vectors))
    values, vectors = torch.linalg.eigh(matrices)
    return values.flip(-1), vectors.mT.flip(-2)
