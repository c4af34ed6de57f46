"""Draws inside chosen components of a mixture, as one product per row."""

from typing import Any

import torch
from torch import Tensor

from prerank.numerics.blocks import join, row_blocks
from prerank.numerics.functions import QuickFunction
from prerank.numerics.kernels import available

__all__ = ["place_columns"]


def place_columns(
    loc: Tensor, scale_tril: Tensor, ratio: Tensor, component: Tensor, normal: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Points :math:`y_s = \mu_{k_s} + L_{k_s} \epsilon_s`, side by side, and weights.

    All draws of a row are mapped by all components at once, :math:`[L_k\, \mu_k]\, E` where column
    s of E is :math:`(\epsilon_s, 1)`, and the component of each is picked; the gradient is
    :math:`G_k E^\top`, where :math:`G_k` has the columns of component k alone. One product per row
    costs less than finding a matrix for each draw.

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
    maps = torch.cat([scale_tril, loc.unsqueeze(-1)], -1)
    maps = maps.reshape(-1, components, dim, dim + 1)
    points, weights = _Placement.apply(
        maps,
        ratio.reshape(-1, components),
        component.reshape(len(maps), -1).contiguous(),
        normal.reshape(len(maps), dim, -1).contiguous(),
    )
    return points.reshape(*batch, dim, -1), weights.reshape(*batch, -1)


class _Placement(QuickFunction):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        maps: Tensor, ratio: Tensor, component: Tensor, normal: Tensor
    ) -> tuple[Tensor, Tensor]:
        if available(normal):
            from prerank.numerics.kernels.placement_kernel import placed

            return placed(maps, ratio, component, normal)
        points, weights = [], []
        for b in _blocks(ratio, normal):
            everywhere = (maps[b].flatten(1, 2) @ _columns(normal[b])).unflatten(1, maps.shape[1:3])
            place = component[b][:, None, None].expand(-1, 1, maps.shape[2], -1)
            points.append(everywhere.gather(1, place).squeeze(1))
            weights.append(ratio[b].gather(1, component[b]))
        return join(points), join(weights)

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
            from prerank.numerics.kernels.placement_kernel import placement_gradient

            found = placement_gradient(component, normal, ratio.shape[1], to_points, to_weights)
            return *found, None, None
        to_maps, to_ratio = [], []
        for b in _blocks(ratio, normal):
            chosen = _chosen(component[b], ratio.shape[1], normal)
            alone = (chosen.unsqueeze(2) * to_points[b].unsqueeze(1)).flatten(1, 2)
            product = alone @ _columns(normal[b]).mT
            to_maps.append(product.unflatten(1, (ratio.shape[1], -1)))
            to_ratio.append((chosen * to_weights[b].unsqueeze(1)).sum(-1))
        return join(to_maps), join(to_ratio), None, None


def _blocks(ratio: Tensor, normal: Tensor) -> list[slice]:
    return row_blocks(len(normal), ratio.shape[-1] * normal[0].numel(), normal)


def _columns(normal: Tensor) -> Tensor:
    """`(rows, D + 1, S)`."""
    return torch.cat([normal, torch.ones_like(normal[:, :1])], 1)


def _chosen(component: Tensor, components: int, like: Tensor) -> Tensor:
    """1 where a draw has a component, else 0: `(rows, K, S)`."""
    # Arithmetic is faster than a comparison, whose booleans have to be converted. (one_hot does not
    # work under vmap.)
    order = torch.arange(components, dtype=like.dtype, device=like.device).unsqueeze(-1)
    return (component.to(like.dtype).unsqueeze(1) - order).abs_().neg_().add_(1).clamp_min_(0)
