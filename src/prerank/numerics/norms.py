"""Lengths of vectors, whose squares may have no number, and of differences between them."""

import torch
from torch import Tensor

__all__ = ["by_coordinate", "pair_distances", "row_norms"]


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


_FEW = 64  # coordinates, up to which the GPU's own kernel has too little to do for each pair


def pair_distances(a: Tensor, b: Tensor) -> Tensor:
    r"""Euclidean distances between all points of two sets, :math:`\|a_s - b_t\|`.

    From differences, not from products, which lose half of the digits of close points.

    Args:
        a: `(..., S, D)`.
        b: `(..., T, D)`.

    Returns:
        `(..., S, T)`; where points meet, the gradient is 0.

    Example:
        >>> pair_distances(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[5., 0.]])
    """
    traced = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if a.is_cuda and a.shape[-1] <= _FEW and not traced:
        return by_coordinate(a, b)
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def by_coordinate(a: Tensor, b: Tensor) -> Tensor:
    """Distances as of `pair_distances`, in place and one coordinate after another.

    `torch.cdist` has a block of 256 threads for each pair, most of which idle for few coordinates.
    """
    pairs = zip(a.unbind(-1), b.unbind(-1), strict=True)
    gaps = (first.unsqueeze(-1) - second.unsqueeze(-2) for first, second in pairs)
    square = next(gaps).square_()
    for gap in gaps:
        square.addcmul_(gap, gap)
    return square.sqrt_()
