"""Smooth comparisons: ranks among samples, and points that dominate others, with gradients."""

import functools
from typing import Any

import torch
from torch import Tensor

from prerank.numerics import QuickFunction, join, row_blocks
from prerank.numerics.kernels import available

__all__ = ["sample_spread", "smooth_rank", "soft_dominance"]


def smooth_rank(values: Tensor, weights: Tensor | None, width: Tensor) -> Tensor:
    r"""Smooth mid-rank of the first value among the others.

    .. math:: \hat F = \sum_s w_s \sigma_s, \quad \sigma_s = \sigma\Big(\frac{T - T_s}{h}\Big),
              \qquad Z = \frac{n \hat F + 1/2}{n + 1}, \quad n = \frac{1}{\sum_s w_s^2}.

    The gradient is written out: with
    :math:`a_s = \frac{n}{n + 1} w_s \sigma_s (1 - \sigma_s) / h`,

    .. math:: \frac{\partial Z}{\partial T} = \sum_s a_s, \quad
              \frac{\partial Z}{\partial T_s} = -a_s, \quad
              \frac{\partial Z}{\partial w_s} = \frac{n \sigma_s}{n + 1}
              - 2 n^2 w_s \frac{\hat F - 1/2}{(n + 1)^2}.

    Args:
        values: T and the :math:`T_s`, `(S + 1, *batch, J)`.
        weights: w, `(S, *batch)`, summing to one; None for 1 / S.
        width: h, `(*batch, J)`.

    Returns:
        Z, `(*batch, J)`.
    """
    size, components = len(values) - 1, values.shape[-1]
    if weights is None:
        weights = values.new_full((size, *[1] * (values.dim() - 2)), 1 / size)
    weights = weights.unsqueeze(-1).expand_as(values[1:])
    rows = [tensor.movedim(0, -1).reshape(-1, 1, len(tensor)) for tensor in (values, weights)]
    ranks: Tensor = _SmoothRank.apply(*rows, width.reshape(-1, 1))
    return ranks.reshape(*values.shape[1:-1], components)


class _SmoothRank(QuickFunction):
    """Values are `(rows, 1, S + 1)`, weights `(rows, 1, S)`, widths `(rows, 1)`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, weights: Tensor, width: Tensor) -> Tensor:
        if available(values):
            from prerank.numerics.kernels.comparison_kernels import ranked

            return ranked(values.contiguous(), weights.contiguous(), width.contiguous())
        _, below, size = _counted(values, weights, width)
        return (size * below + 0.5) / (size + 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        values, weights, width = ctx.saved_tensors
        if available(values):
            from prerank.numerics.kernels.comparison_kernels import ranked_gradient

            tensors = (t.contiguous() for t in (values, weights, width, gradient))
            return *ranked_gradient(*tensors), None
        sigmoid, below, size = _counted(values, weights, width)
        whole = (gradient * size / (size + 1)).unsqueeze(-1)  # of F
        slope = torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1) * weights
        slope = slope * (whole / width.unsqueeze(-1))
        to_values = torch.cat([slope.sum(-1, keepdim=True), -slope], -1)
        by_size = (gradient * 2 * size.square() * (below - 0.5) / (size + 1).square()).unsqueeze(-1)
        return to_values, whole * sigmoid - by_size * weights, None


def _counted(values: Tensor, weights: Tensor, width: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sigmoids `(rows, 1, S)`, their weighted sum and the effective number, `(rows, 1)`."""
    sigmoid = ((values[..., :1] - values[..., 1:]) / width.unsqueeze(-1)).sigmoid_()
    tiny = torch.finfo(values.dtype).tiny ** 0.5
    size = 1 / weights.square().sum(-1).clamp_min(tiny)
    return sigmoid, (weights * sigmoid).sum(-1), size


def sample_spread(values: Tensor, weights: Tensor | None) -> Tensor:
    """Standard deviation over the sample axis, as a constant, never zero.

    Args:
        values: `(S, *batch, J)`.
        weights: `(S, *batch)` or None.
    """
    values = values.detach()
    if weights is None:
        centred = (values - values.mean(0)) / len(values) ** 0.5
    else:
        share = weights.detach().unsqueeze(-1)
        share = share / share.sum(0).clamp_min(torch.finfo(share.dtype).tiny)
        centred = share.sqrt() * (values - (share * values).sum(0))
    # Added up in float64: the squares of large float32 values would be infinite.
    spread = torch.linalg.vector_norm(centred, dim=0, dtype=torch.float64).to(values.dtype)
    return spread.clamp_min(torch.finfo(values.dtype).tiny ** 0.5)


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
            from prerank.numerics.kernels.comparison_kernels import dominance

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
            from prerank.numerics.kernels.comparison_kernels import dominance_gradient

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
