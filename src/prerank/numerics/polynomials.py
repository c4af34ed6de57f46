"""Orthonormal polynomials."""

import torch
from torch import Tensor

__all__ = ["legendre"]


def legendre(x: Tensor, degree: int) -> Tensor:
    r"""Legendre polynomials of degree 1 to `degree`, with mean square 1 on [-1, 1].

    .. math:: (l + 1) L_{l+1}(x) = (2 l + 1) x L_l(x) - l L_{l-1}(x), \qquad
              P_l = \sqrt{2 l + 1} \, L_l.

    For a uniform PIT u, :math:`P_l(2 u - 1)` has mean 0 and variance 1, and different degrees are
    uncorrelated: degree 1 is a bias, 2 a wrong spread, 3 a skew, 4 wrong tails.

    Args:
        x: in [-1, 1], any shape.
        degree: 1 or more.

    Returns:
        `(..., degree)`.

    Example:
        >>> legendre(torch.tensor([0.0, 1.0]), 2)
        tensor([[ 0.0000, -1.1180],
                [ 1.7321,  2.2361]])
    """
    values = [torch.ones_like(x), x]
    for order in range(1, degree):
        step = (2 * order + 1) * x * values[-1] - order * values[-2]
        values.append(step / (order + 1))
    return torch.stack(
        [(2 * order + 1) ** 0.5 * values[order] for order in range(1, degree + 1)], -1
    )
