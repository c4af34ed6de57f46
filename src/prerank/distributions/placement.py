"""Draws inside chosen components of a mixture, as one product per row."""

from typing import Any

import torch
from torch import Tensor

from prerank.distributions.blocks import row_blocks
from prerank.kernels import available

__all__ = ["place_columns"]


def place_columns(
    loc: Tensor, scale_tril: Tensor, ratio: Tensor, component: Tensor, normal: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Points :math:`y_s = \mu_{k_s} + L_{k_s} \epsilon_s`, side by side, and weights.

    For all draws of a row together this is :math:`Y = [L_1\, \mu_1 \cdots L_K\, \mu_K]\, E`, where
    column s of E holds :math:`(\epsilon_s, 1)` in the places of component :math:`k_s`. E is built
    again for the gradient :math:`G E^\top` instead of being kept.

    Args:
        loc: `(*batch, K, D)`.
        scale_tril: `(*batch, K, D, D)`.
        ratio: a number for each component, `(*batch, K)`; the weight of a draw is that of its
            component.
        component: whole numbers `(*batch, S)`.
        normal: `(*batch, D, S)`.

    Returns:
        Points `(*batch, D, S)` and weights `(*batch, S)`, with gradients to the first three.
    """
    *batch, components, dim = loc.shape
    maps = torch.cat([scale_tril, loc.unsqueeze(-1)], -1)  # (*batch, K, D, D + 1)
    maps = maps.transpose(-3, -2).reshape(-1, dim, components * (dim + 1))
    points, weights = _Placement.apply(  # type: ignore[no-untyped-call]
        maps,
        ratio.reshape(-1, components),
        component.reshape(len(maps), 1, -1).contiguous(),
        normal.reshape(len(maps), dim, -1).contiguous(),
    )
    return points.reshape(*batch, dim, -1), weights.reshape(*batch, -1)


class _Placement(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        maps: Tensor, ratio: Tensor, component: Tensor, normal: Tensor
    ) -> tuple[Tensor, Tensor]:
        if available(normal):
            from prerank.kernels.placement import placed

            return placed(maps, ratio, component, normal)
        points, weights = [], []
        for b in _blocks(ratio, normal):
            points.append(maps[b] @ _spread(ratio, component[b], normal[b])[1])
            weights.append(ratio[b].gather(1, component[b].squeeze(1)))
        return torch.cat(points), torch.cat(weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        _, ratio, component, normal = inputs
        ctx.save_for_backward(ratio, component, normal)

    @staticmethod
    def backward(
        ctx: Any, to_points: Tensor, to_weights: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        ratio, component, normal = ctx.saved_tensors
        if available(normal):
            from prerank.kernels.placement import placement_gradient

            found = placement_gradient(component, normal, ratio.shape[1], to_points, to_weights)
            return *found, None, None
        to_maps, to_ratio = [], []
        for b in _blocks(ratio, normal):
            chosen, spread = _spread(ratio, component[b], normal[b])
            to_maps.append(to_points[b] @ spread.mT)
            to_ratio.append((chosen @ to_weights[b].unsqueeze(-1)).squeeze(-1))
        return torch.cat(to_maps), torch.cat(to_ratio), None, None


def _blocks(ratio: Tensor, normal: Tensor) -> list[slice]:
    return row_blocks(len(normal), ratio.shape[-1] * normal[0].numel(), normal)


def _spread(ratio: Tensor, component: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Which component each draw has, `(rows, K, S)`, and the columns E, `(rows, K (D + 1), S)`."""
    # As numbers of the type at hand, which compare fastest. (one_hot does not work under vmap.)
    order = torch.arange(ratio.shape[-1], dtype=normal.dtype, device=normal.device).unsqueeze(-1)
    chosen = (component.to(normal.dtype) == order).to(normal.dtype)
    columns = torch.cat([normal, torch.ones_like(normal[:, :1])], 1)
    return chosen, (chosen.unsqueeze(-2) * columns.unsqueeze(-3)).flatten(-3, -2)
