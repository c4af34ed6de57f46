"""How many references lie below a point in every target, smoothly."""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from prerank.distributions.blocks import row_blocks
from prerank.kernels import available

__all__ = ["soft_dominance"]


def soft_dominance(points: Tensor, reference: Tensor, weights: Tensor | None) -> Tensor:
    r"""Smooth number of references below each point.

    .. math:: c_s = R \sum_r w_r P_{sr}, \qquad P_{sr} = \prod_d \sigma_{srd}, \qquad
              \sigma_{srd} = \sigma(p_{sd} - q_{rd}),

    with the gradient written out, :math:`\partial P_{sr} / \partial p_{sd} = P_{sr}
    (1 - \sigma_{srd})`. The comparisons are computed again for it instead of being kept.

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
    def forward(points: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
        if available(points):
            from prerank.kernels.dominance import dominance

            return dominance(points, reference, weights)
        found = []
        for block in _blocks(points, reference):
            steps = _differences(points[block], reference[block])
            below = functools.reduce(Tensor.mul_, (step.sigmoid_() for step in steps))
            found.append((weights[block] @ below).squeeze(-2))
        return torch.cat(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        points, reference, weights = ctx.saved_tensors
        if available(points):
            from prerank.kernels.dominance import dominance_gradient

            return dominance_gradient(points, reference, weights, gradient)
        found = []
        for block in _blocks(points, reference):
            share, upstream = weights[block], gradient[block]
            sigmoids = [step.sigmoid_() for step in _differences(points[block], reference[block])]
            below = functools.reduce(torch.mul, sigmoids[1:], sigmoids[0].clone())
            to_weights = (below @ upstream.unsqueeze(-1)).mT
            below *= share.mT * upstream.unsqueeze(-2)
            for sigmoid in sigmoids:
                torch.addcmul(below, below, sigmoid, value=-1, out=sigmoid)
            to_points = torch.stack([slope.sum(-2) for slope in sigmoids], -2)
            to_reference = torch.stack([-slope.sum(-1) for slope in sigmoids], -2)
            found.append((to_points, to_reference, to_weights))
        first, second, third = (torch.cat(parts) for parts in zip(*found, strict=True))
        return first, second, third


def _blocks(points: Tensor, reference: Tensor) -> list[slice]:
    return row_blocks(len(points), points.shape[-1] * reference.shape[-1], points)


def _differences(points: Tensor, reference: Tensor) -> Iterator[Tensor]:
    """Points minus references, target by target: `(rows, R, S)`."""
    for point, other in zip(points.unbind(1), reference.unbind(1), strict=True):
        yield point.unsqueeze(-2) - other.unsqueeze(-1)
