"""Smooth ranks: where a value stands among weighted samples, with a gradient."""

from typing import Any

import torch
from torch import Tensor

from prerank.numerics.kernels import available
from prerank.numerics.operations import QuickFunction

__all__ = ["sample_spread", "smooth_rank"]


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
            from prerank.numerics.kernels.rank_kernel import ranked

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
            from prerank.numerics.kernels.rank_kernel import ranked_gradient

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
