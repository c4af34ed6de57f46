"""Eigenvectors of many small symmetric matrices."""

import torch
from torch import Tensor

from prerank.numerics.kernels import compilable

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
    if compilable(matrices) and matrices.shape[-1] <= _LARGEST:
        from prerank.numerics.kernels.eigen_kernel import jacobi_eigen

        values, vectors = jacobi_eigen(matrices)
        values, order = values.sort(-1, descending=True)
        return values, vectors.gather(-2, order.unsqueeze(-1).expand_as(vectors))
    if _may_look(matrices) and bool(torch.isfinite(matrices.sum())):
        values, vectors = torch.linalg.eigh(matrices)
        return values.flip(-1), vectors.mT.flip(-2)
    # A matrix with NaN would stop LAPACK: it gets NaN, and the others their vectors.
    usable = torch.isfinite(matrices).all(-1).all(-1)[..., None, None]
    unit = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    values, vectors = torch.linalg.eigh(torch.where(usable, matrices, unit))
    values = torch.where(usable.squeeze(-1), values, torch.nan)
    return values.flip(-1), torch.where(usable, vectors, torch.nan).mT.flip(-2)


def _may_look(tensor: Tensor) -> bool:
    """Whether a decision may depend on values: a GPU would have to wait, and vmap has none."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.device.type == "cpu" and not wrapped
