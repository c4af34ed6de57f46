"""Draws inside chosen components of a mixture, as one product per row."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from prerank.distributions.blocks import row_blocks

__all__ = ["place_columns"]


def place_columns(
    loc: Tensor,
    scale_tril: Tensor,
    component: Tensor,
    normal: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Points :math:`y_s = \mu_{k_s} + L_{k_s} \epsilon_s`, side by side.

    For all draws of a row together this is :math:`Y = [L_1\, \mu_1 \cdots L_K\, \mu_K]\, E`, where
    column s of E holds :math:`(\epsilon_s, 1)` in the places of component :math:`k_s`. E is built
    again for the gradient :math:`G E^\top` instead of being kept.

    Args:
        loc: `(*batch, K, D)`.
        scale_tril: `(*batch, K, D, D)`.
        component: whole numbers `(*batch, S)`.
        normal: `(*batch, D, S)`.
        weights: `(*batch, K)`; the weight of its component is then written below each point.

    Returns:
        `(*batch, D, S)`, or `(*batch, D + 1, S)` with weights; with gradients to all but
        `component` and `normal`.
    """
    *batch, components, dim = loc.shape
    maps = torch.cat([scale_tril, loc.unsqueeze(-1)], -1)  # (*batch, K, D, D + 1)
    if weights is not None:
        maps = torch.cat([maps, pad(weights[..., None, None], (dim, 0))], -2)
    height = maps.shape[-2]
    maps = maps.transpose(-3, -2).reshape(-1, height, components * (dim + 1))
    points: Tensor = _Placement.apply(  # type: ignore[no-untyped-call]
        maps,
        component.reshape(len(maps), 1, -1).contiguous(),
        normal.reshape(len(maps), dim, -1).contiguous(),
    )
    return points.reshape(*batch, height, -1)


class _Placement(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(maps: Tensor, component: Tensor, normal: Tensor) -> Tensor:
        blocks = _blocks(maps, normal)
        found = [maps[b] @ _spread(maps, component[b], normal[b]) for b in blocks]
        return found[0] if len(found) == 1 else torch.cat(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        maps, component, normal = ctx.saved_tensors
        blocks = _blocks(maps, normal)
        found = [gradient[b] @ _spread(maps, component[b], normal[b]).mT for b in blocks]
        return found[0] if len(found) == 1 else torch.cat(found), None, None


def _blocks(maps: Tensor, normal: Tensor) -> list[slice]:
    return row_blocks(len(maps), maps.shape[-1] * normal.shape[-1], maps)


def _spread(maps: Tensor, component: Tensor, normal: Tensor) -> Tensor:
    """The columns E, `(rows, K (D + 1), S)`."""
    components = maps.shape[-1] // (normal.shape[-2] + 1)
    order = torch.arange(components, device=component.device).unsqueeze(-1)
    chosen = (component == order).to(normal.dtype)  # one_hot does not work under vmap of grad
    columns = torch.cat([normal, torch.ones_like(normal[:, :1])], 1)
    return (chosen.unsqueeze(-2) * columns.unsqueeze(-3)).flatten(-3, -2)
