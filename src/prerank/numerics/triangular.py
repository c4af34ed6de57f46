"""Inverses of triangular factors, computed once and used for many points."""

from typing import Any

import torch
from torch import Tensor

from prerank.numerics.functions import QuickFunction
from prerank.numerics.kernels import available

__all__ = ["triangular_inverse"]


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
            from prerank.numerics.kernels.triangular_kernel import lower_inverse

            return lower_inverse(factor)
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        return torch.linalg.solve_triangular(factor, eye, upper=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        if available(inverse):
            from prerank.numerics.kernels.triangular_kernel import inverse_gradient

            return inverse_gradient(inverse, gradient)
        return -(inverse.mT @ gradient @ inverse.mT).tril()
