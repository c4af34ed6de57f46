"""How many references lie below a point in every target, smoothly."""

import functools
from typing import Any

import torch
from torch import Tensor

from prerank.numerics.kernels import available
from prerank.numerics.operations import join, row_blocks

__all__ = ["soft_dominance"]

_KEPT_VALUES = 2**24


def soft_dominance(points: Tensor, reference: Tensor, weights: Tensor | None) -> Tensor:
    r"""Smooth number of references below each point.

    .. math:: c_s = R \sum_r w_r P_{sr}, \qquad P_{sr} = \prod_d \sigma_{srd}, \qquad
              \sigma_{srd} = \sigma(p_{sd} - q_{rd}),

    with the gradient written out, :math:`\partial P_{sr} / \partial p_{sd} = P_{sr}
    (1 - \sigma_{srd})`. On a GPU, and where there are many, the comparisons are computed again for
    it instead of being kept.

    Args:
        points: p, `(S, *batch, D)`, in units of the smoothing width.
        reference: q, `(R, *batch, D)`.
        weights: w, `(R, *batch)`, summing to one; None for 1 / R.

    Returns:
        `(S, *batch)`.
    """
    size, batch, dim = len(reference), points.shape[1:-1], points.shape[-1]
    shares = torch.ones_like(reference[..., 0]) if weights is None else weights * size
    counts: Tensor = _SoftDominance.apply(  # type: ignore[no-untyped-call]
        points.movedim(0, -1).reshape(-1, dim, len(points)).contiguous(),
        reference.movedim(0, -1).reshape(-1, dim, size).contiguous(),
        shares.movedim(0, -1).reshape(-1, 1, size).contiguous(),
    )
    return counts.movedim(-1, 0).reshape(-1, *batch)


class _SoftDominance(torch.autograd.Function):
    """Points are `(rows, D, S)`, references `(rows, D, R)`, weights `(rows, 1, R)`."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
        kept: list[Tensor] = []
        if available(points):
            from prerank.numerics.kernels.dominance_kernel import dominance

            counts = dominance(points, reference, weights)
        else:
            keep = points.numel() * reference.shape[-1] <= _KEPT_VALUES
            parts = []
            for block in _blocks(points, reference):
                sigmoids = _sigmoids(points[block], reference[block])
                parts.append((weights[block] @ _product(sigmoids)).squeeze(-2))
                kept += sigmoids if keep else []
            counts = join(parts)
        ctx.save_for_backward(points, reference, weights, *kept)
        return counts

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        points, reference, weights, *kept = ctx.saved_tensors
        if available(points):
            from prerank.numerics.kernels.dominance_kernel import dominance_gradient

            return dominance_gradient(points, reference, weights, gradient)
        dim, gradients = points.shape[1], []
        for number, block in enumerate(_blocks(points, reference)):
            sigmoids = kept[number * dim : (number + 1) * dim]
            if not sigmoids or torch.is_grad_enabled():  # a graph has to lead to the inputs
                sigmoids = _sigmoids(points[block], reference[block])
            below = _product(sigmoids)
            upstream = gradient[block]
            to_weights = (below @ upstream.unsqueeze(-1)).mT
            below = below * (weights[block].mT * upstream.unsqueeze(-2))
            to_points, to_reference = [], []
            for sigmoid in sigmoids:
                slope = torch.addcmul(below, below, sigmoid, value=-1)
                to_points.append(slope.sum(-2))
                to_reference.append(-slope.sum(-1))
            gradients.append((torch.stack(to_points, 1), torch.stack(to_reference, 1), to_weights))
        first, second, third = (join(list(parts)) for parts in zip(*gradients, strict=True))
        return first, second, third


def _blocks(points: Tensor, reference: Tensor) -> list[slice]:
    return row_blocks(len(points), points.shape[-1] * reference.shape[-1], points)


def _sigmoids(points: Tensor, reference: Tensor) -> list[Tensor]:
    """Smooth comparisons of points with references, target by target: `(rows, R, S)`."""
    return [
        (point.unsqueeze(-2) - other.unsqueeze(-1)).sigmoid_()
        for point, other in zip(points.unbind(1), reference.unbind(1), strict=True)
    ]


def _product(factors: list[Tensor]) -> Tensor:
    if torch.is_grad_enabled():
        return functools.reduce(torch.mul, factors)
    return functools.reduce(Tensor.mul_, factors[1:], factors[0].clone())
