"""Many small matrices at once: norms, distances, eigenvectors and triangular inverses."""

from typing import Any

import torch
from torch import Tensor

from prerank.numerics import QuickFunction
from prerank.numerics.kernels import available, compilable

__all__ = [
    "by_coordinate",
    "pair_distances",
    "powers_of_two",
    "row_norms",
    "symmetric_eigen",
    "triangular_inverse",
]


def powers_of_two(sizes: Tensor) -> Tensor:
    """The largest power of two in each size: a unit that changes no digit, and has no gradient.

    Args:
        sizes: positive, of any shape.

    Example:
        >>> powers_of_two(torch.tensor([1.0, 5.0, 0.3]))
        tensor([1.0000, 4.0000, 0.2500])
    """
    sizes = sizes.detach()
    return sizes / (2 * sizes.frexp().mantissa)  # exact, and faster than a power


_SQUARES = 2.0**600  # more would need units whose products with a gradient vanish


def row_norms(matrix: Tensor) -> Tensor:
    r"""Euclidean norms over the last axis, :math:`\|a\| = \big(\sum_d a_d^2\big)^{1/2}`.

    The squares are added up in float64: those of float32 numbers below 1e-19 would vanish, and
    those above 1e19 overflow. Those of float64 numbers are in units near the largest of a row.

    Args:
        matrix: `(..., D)`.

    Example:
        >>> row_norms(torch.tensor([[3e-24, 4e-24], [3e24, 4e24]]))
        tensor([5.0000e-24, 5.0000e+24])
    """
    if matrix.dtype != torch.float64:
        return torch.linalg.vector_norm(matrix, dim=-1, dtype=torch.float64).to(matrix.dtype)
    largest = matrix.detach().abs().amax(-1, keepdim=True)
    unit = powers_of_two(largest.clamp(1 / _SQUARES, _SQUARES))
    return unit.squeeze(-1) * torch.linalg.vector_norm(matrix / unit, dim=-1)


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
        from prerank.numerics.kernels.matrix_kernels import jacobi_eigen

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


def triangular_inverse(factor: Tensor) -> Tensor:
    r"""Inverse A of lower triangular factors L, with its gradient.

    .. math:: A = L^{-1}, \qquad \frac{\partial \ell}{\partial L} =
              -\mathrm{tril}\Big(A^\top \frac{\partial \ell}{\partial A} A^\top\Big).

    A point is then whitened by a product instead of a solve, and so is the gradient: products of
    small matrices are several times as fast, and one inverse serves all points of a row.

    Args:
        factor: `(..., D, D)`.

    Example:
        >>> triangular_inverse(torch.tensor([[2.0, 0.0], [1.0, 1.0]]))
        tensor([[ 0.5000,  0.0000],
                [-0.5000,  1.0000]])
    """
    inverse: Tensor = _Inverse.apply(factor)
    return inverse


class _Inverse(QuickFunction):
    generate_vmap_rule = True

    @staticmethod
    def forward(factor: Tensor) -> Tensor:
        if available(factor):
            from prerank.numerics.kernels.matrix_kernels import lower_inverse

            return lower_inverse(factor)
        # Rows near 1, lest products of very small and very large ones overflow on the way.
        unit = powers_of_two(factor.diagonal(dim1=-2, dim2=-1))
        right = torch.diag_embed(1 / unit)
        return torch.linalg.solve_triangular(factor / unit.unsqueeze(-1), right, upper=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        if available(inverse):
            from prerank.numerics.kernels.matrix_kernels import inverse_gradient

            return inverse_gradient(inverse, gradient)
        # G and A in units of their columns, which cancel: those of A' G may differ by more than a
        # number holds.
        unit = powers_of_two(inverse.diagonal(dim1=-2, dim2=-1)).unsqueeze(-2)
        return -(inverse.mT @ (gradient * unit) @ (inverse / unit).mT).tril()
