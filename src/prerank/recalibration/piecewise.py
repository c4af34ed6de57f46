"""Piecewise linear functions, one for each row, and how to make them increase."""

import torch
from torch import Tensor

__all__ = ["extend", "increasing", "interpolate"]


def interpolate(
    x: Tensor, nodes: Tensor, values: Tensor, *, right: bool = True
) -> tuple[Tensor, Tensor]:
    r"""Evaluate piecewise linear functions and their slopes.

    .. math:: v(x) = v_l + \frac{v_{l+1} - v_l}{x_{l+1} - x_l} (x - x_l),
              \qquad x_l \le x < x_{l+1},

    continued beyond the outer nodes with the outer slopes.

    Args:
        x: `(..., *rows)`.
        nodes: ascending, `(*rows, L)` or `(L,)`.
        values: `(*rows, L)` or `(L,)`.
        right: where several nodes coincide with x, take the last of them, else the first.

    Returns:
        Values and slopes, `(..., *rows)`.

    Example:
        >>> nodes = torch.tensor([[0.0, 1.0, 2.0]])
        >>> interpolate(torch.tensor([1.5]), nodes, nodes.square())
        (tensor([2.5000]), tensor([3.]))
    """
    size = max(nodes.dim(), values.dim()) - 1
    lead, rows = x.shape[: x.dim() - size], x.shape[x.dim() - size :]
    at = x.reshape(-1, *rows).movedim(0, -1).contiguous()  # (*rows, S)
    nodes = nodes.expand(*rows, -1).contiguous()
    values = values.expand(*rows, -1)
    index = torch.searchsorted(nodes, at, right=right).clamp(1, nodes.shape[-1] - 1)
    left, start = nodes.gather(-1, index - 1), values.gather(-1, index - 1)
    gap = (nodes.gather(-1, index) - left).clamp_min(torch.finfo(nodes.dtype).tiny)
    slope = (values.gather(-1, index) - start) / gap
    found = start + slope * (at - left)
    shape = (*lead, *rows)
    return found.movedim(-1, 0).reshape(shape), slope.movedim(-1, 0).reshape(shape)


def extend(
    nodes: Tensor, values: Tensor, low: Tensor | float, high: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Add a node on either side, so that the function goes on with given slopes.

    Args:
        nodes: `(..., L)`.
        values: `(..., L)`.
        low: slope below the first node, `(..., 1)`.
        high: slope above the last, `(..., 1)`.
    """
    first, last = nodes[..., :1], nodes[..., -1:]
    below, above = values[..., :1] - low, values[..., -1:] + high
    return (
        torch.cat([first - 1, nodes, last + 1], -1),
        torch.cat([below, values, above], -1),
    )


def increasing(log_density: Tensor, masses: Tensor) -> Tensor:
    r"""Pool neighbouring shells whose densities are in the wrong order.

    Shell l holds the mass :math:`p_l` and, by its density :math:`f_l`, the volume
    :math:`v_l = p_l / f_l`. Shells that are pooled keep their mass and volume, so their density is
    the ratio of the sums: the isotonic regression of f with weights v, by the formula

    .. math:: \max_{j \le l} \min_{k \ge l} \frac{p_j + \dots + p_k}{v_j + \dots + v_k}.

    Args:
        log_density: `(rows, L)`, in the order of the shells.
        masses: p, `(L,)`.

    Example:
        >>> falling = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64).log1p()
        >>> increasing(falling, torch.full((3,), 1 / 3, dtype=torch.float64)).exp()
        tensor([[1.0000, 1.3333, 1.3333]], dtype=torch.float64)
    """
    unit = log_density.amax(-1, keepdim=True)
    volumes = masses * (unit - log_density).exp()
    found = torch.zeros_like(log_density)
    for j in range(log_density.shape[-1]):
        means = masses[j:].cumsum(-1) / volumes[:, j:].cumsum(-1)
        least = means.flip(-1).cummin(-1).values.flip(-1)
        found[:, j:] = torch.maximum(found[:, j:], least)
    return found.log() + unit
