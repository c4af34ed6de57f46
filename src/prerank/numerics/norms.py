"""Lengths of vectors whose squares may have no number."""

import torch
from torch import Tensor

__all__ = ["row_norms"]


def row_norms(matrix: Tensor) -> Tensor:
    r"""Euclidean norms over the last axis, :math:`\|a\| = \big(\sum_d a_d^2\big)^{1/2}`.

    The squares are added up in float64: those of float32 numbers below 1e-19 would vanish, and
    those above 1e19 overflow.

    Args:
        matrix: `(..., D)`.

    Example:
        >>> row_norms(torch.tensor([[3e-24, 4e-24], [3e24, 4e24]]))
        tensor([5.0000e-24, 5.0000e+24])
    """
    return torch.linalg.vector_norm(matrix, dim=-1, dtype=torch.float64).to(matrix.dtype)
