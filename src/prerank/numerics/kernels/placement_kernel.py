"""Draws inside chosen components, and the gradient of their maps, one row per program.

See `prerank.distributions.reparameterisation` for what is computed. Maps are
`(rows, K, D, D + 1)`, ratios `(rows, K)`, components `(rows, S)`, normals and points
`(rows, D, S)`, weights `(rows, S)`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["placed", "placement_gradient"]


def placed(maps: Tensor, ratio: Tensor, component: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Points and weights."""
    rows, dim, size = normal.shape
    points, weights = torch.empty_like(normal), normal.new_empty(rows, size)
    tensors = (maps.contiguous(), ratio.contiguous(), component, normal, points, weights)
    _launch(_forward, tensors, ratio.shape[1], dim, size)
    return points, weights


def placement_gradient(
    component: Tensor, normal: Tensor, components: int, to_points: Tensor, to_weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of maps and ratios, given those of points and weights."""
    rows, dim, size = normal.shape
    to_maps = normal.new_empty(rows, components, dim, dim + 1)
    to_ratio = normal.new_empty(rows, components)
    upstream = (to_points.contiguous(), to_weights.contiguous())
    tensors = (*upstream, component, normal, to_maps, to_ratio)
    _launch(_backward, tensors, components, dim, size, tall=triton.next_power_of_2(dim + 1))
    return to_maps, to_ratio


def _launch(
    kernel: Any, tensors: tuple[Tensor, ...], components: int, dim: int, size: int, **options: int
) -> None:
    options |= {"block": triton.next_power_of_2(size), "num_warps": 1 if size <= 128 else 4}
    with torch.cuda.device(tensors[0].device):
        kernel[(len(tensors[0]),)](*tensors, components, dim, size, **options)


@triton.jit
def _forward(
    maps, ratio, component, normal, points, weights, components, dim, size, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, block)
    inside = s < size
    k = tl.load(component + row * size + s, mask=inside, other=0)
    weight = tl.load(ratio + row * components + k, mask=inside, other=0.0)
    tl.store(weights + row * size + s, weight, mask=inside)
    for h in range(dim):
        first = maps + ((row * components + k) * dim + h) * (dim + 1)
        value = tl.load(first + dim, mask=inside, other=0.0)
        for d in range(dim):
            eps = tl.load(normal + (row * dim + d) * size + s, mask=inside, other=0.0)
            value += tl.load(first + d, mask=inside, other=0.0) * eps
        tl.store(points + (row * dim + h) * size + s, value, mask=inside)


@triton.jit
def _backward(
    to_points,
    to_weights,
    component,
    normal,
    to_maps,
    to_ratio,
    components,
    dim,
    size,
    tall: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, block)
    d = tl.arange(0, tall)
    k = tl.load(component + row * size + s, mask=s < size, other=-1)
    place = (row * dim + d[:, None]) * size + s[None, :]
    known = (d[:, None] < dim) & (s[None, :] < size)
    columns = tl.load(normal + place, mask=known, other=1.0)  # (normal, 1)
    weight = tl.load(to_weights + row * size + s, mask=s < size, other=0.0)
    for c in range(components):
        chosen = k == c
        total = tl.sum(tl.where(chosen, weight, 0.0), 0)
        tl.store(to_ratio + row * components + c, total)
        for h in range(dim):
            g = tl.load(to_points + (row * dim + h) * size + s, mask=chosen, other=0.0)
            sums = tl.sum(columns * g[None, :], 1)
            first = ((row * components + c) * dim + h) * (dim + 1)
            tl.store(to_maps + first + d, sums, mask=d <= dim)
