"""Log-density of Gaussian mixtures and draws inside chosen components, with their gradients.

See `prerank.distributions.densities` and `prerank.distributions.reparameterisation` for what is
computed; there is one row per program. Points and normals are `(rows, D, S)`, constants and ratios
`(rows, K)`, locations `(rows, K, D)`, inverse factors `(rows, K, D, D)`, maps
`(rows, K, D, D + 1)`, components, densities and weights `(rows, S)`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.numerics.kernels import launch

__all__ = ["mixture_density", "mixture_density_gradient", "placed", "placement_gradient"]


def mixture_density(points: Tensor, constants: Tensor, loc: Tensor, inverse: Tensor) -> Tensor:
    """Logarithm of `sum_k exp(c_k - |A_k (y - mu_k)|^2 / 2)`, `(rows, S)`."""
    rows, dim, size = points.shape
    density = points.new_empty(rows, size)
    block = min(128, max(16, triton.next_power_of_2(size)))
    launch(
        _density,
        (points, constants, loc, inverse, density),
        *(dim, size, loc.shape[1]),
        columns=triton.cdiv(size, block),
        block=block,
        tall=triton.next_power_of_2(dim),
    )
    return density


def mixture_density_gradient(
    inputs: list[Tensor], density: Tensor, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of points, constants, locations and inverse factors, given the density."""
    points, _, loc, _ = inputs
    dim, size = points.shape[1:]
    gradients = tuple(torch.empty_like(tensor) for tensor in inputs)
    launch(
        _density_gradient,
        (*inputs, density, gradient.contiguous(), *gradients),
        *(dim, size, loc.shape[1]),
        block=max(16, triton.next_power_of_2(size)),
        tall=triton.next_power_of_2(dim),
    )
    return gradients


@triton.jit
def _whitened(points, loc, inverse, row, k, components, dim, size, s, tall: tl.constexpr):
    """Points under one component, `(tall, block)`."""
    d = tl.arange(0, tall)
    first = row * components + k
    z = tl.zeros((tall, s.shape[0]), dtype=points.dtype.element_ty)
    for e in range(dim):
        y = tl.load(points + (row * dim + e) * size + s, mask=s < size, other=0.0)
        centred = y - tl.load(loc + first * dim + e)
        a = tl.load(inverse + (first * dim + d) * dim + e, mask=d < dim, other=0.0)
        z += a[:, None] * centred[None, :]
    return z


@triton.jit
def _density(
    points,
    constants,
    loc,
    inverse,
    density,
    dim,
    size,
    components,
    tall: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1) * block + tl.arange(0, block)
    z = _whitened(points, loc, inverse, row, 0, components, dim, size, s, tall)
    highest = tl.load(constants + row * components) - 0.5 * tl.sum(z * z, 0)
    total = tl.full((block,), 1.0, dtype=highest.dtype)
    for k in range(1, components):
        z = _whitened(points, loc, inverse, row, k, components, dim, size, s, tall)
        value = tl.load(constants + row * components + k) - 0.5 * tl.sum(z * z, 0)
        higher = tl.maximum(highest, value)
        base = tl.where(higher == float("-inf"), 0.0, higher)  # of components without weight
        total = total * tl.exp(highest - base) + tl.exp(value - base)
        highest = higher
    value = tl.where(highest == float("-inf"), highest, highest + tl.log(total))
    tl.store(density + row * size + s, value, mask=s < size)


@triton.jit
def _density_gradient(
    points,
    constants,
    loc,
    inverse,
    density,
    gradient,
    to_points,
    to_constants,
    to_loc,
    to_inverse,
    dim,
    size,
    components,
    tall: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, block)
    d = tl.arange(0, tall)
    inside = s < size
    upstream = tl.load(gradient + row * size + s, mask=inside, other=0.0)
    log_density = tl.load(density + row * size + s, mask=inside, other=0.0)
    total = tl.zeros((tall, block), dtype=upstream.dtype)
    for k in range(components):
        first = row * components + k
        z = _whitened(points, loc, inverse, row, k, components, dim, size, s, tall)
        value = tl.load(constants + first) - 0.5 * tl.sum(z * z, 0)
        share = tl.where(inside, upstream * tl.exp(value - log_density), 0.0)
        tl.store(to_constants + first, tl.sum(share, 0))
        slope = -share[None, :] * z
        for e in range(dim):
            y = tl.load(points + (row * dim + e) * size + s, mask=inside, other=0.0)
            centred = y - tl.load(loc + first * dim + e)
            column = (first * dim + d) * dim + e
            tl.store(to_inverse + column, tl.sum(slope * centred[None, :], 1), mask=d < dim)
            a = tl.load(inverse + column, mask=d < dim, other=0.0)
            along = tl.sum(a[:, None] * slope, 0)
            tl.store(to_loc + first * dim + e, -tl.sum(along, 0))
            total += tl.where(d[:, None] == e, along[None, :], 0.0)
    place = (row * dim + d[:, None]) * size + s[None, :]
    tl.store(to_points + place, total, mask=(d[:, None] < dim) & inside[None, :])


def placed(maps: Tensor, ratio: Tensor, component: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Points and weights."""
    rows, dim, size = normal.shape
    points, weights = torch.empty_like(normal), normal.new_empty(rows, size)
    tensors = (maps.contiguous(), ratio.contiguous(), component, normal, points, weights)
    launch(_place, tensors, ratio.shape[1], dim, size, block=triton.next_power_of_2(size))
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
    block, tall = triton.next_power_of_2(size), triton.next_power_of_2(dim + 1)
    launch(_placement_gradient, tensors, components, dim, size, block=block, tall=tall)
    return to_maps, to_ratio


@triton.jit
def _place(
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
def _placement_gradient(
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
