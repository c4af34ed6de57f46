"""Log-density of Gaussian mixtures, and its gradient, one row per program.

See `prerank.distributions.densities` for what is computed. Points are `(rows, D, S)`, constants
`(rows, K)`, locations `(rows, K, D)`, inverse factors `(rows, K, D, D)`, densities `(rows, S)`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["mixture_density", "mixture_density_gradient"]


def mixture_density(points: Tensor, constants: Tensor, loc: Tensor, inverse: Tensor) -> Tensor:
    """Logarithm of `sum_k exp(c_k - |A_k (y - mu_k)|^2 / 2)`, `(rows, S)`."""
    rows, dim, size = points.shape
    density = points.new_empty(rows, size)
    block = min(128, max(16, triton.next_power_of_2(size)))
    with torch.cuda.device(points.device):
        _forward[(rows, triton.cdiv(size, block))](
            *(points, constants, loc, inverse, density),
            *(dim, size, loc.shape[1]),
            tall=triton.next_power_of_2(dim),
            block=block,
            num_warps=1,
        )
    return density


def mixture_density_gradient(
    inputs: list[Tensor], density: Tensor, gradient: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of points, constants, locations and inverse factors, given the density."""
    points, _, loc, _ = inputs
    rows, dim, size = points.shape
    gradients = tuple(torch.empty_like(tensor) for tensor in inputs)
    with torch.cuda.device(points.device):
        _backward[(rows,)](
            *inputs,
            *(density, gradient.contiguous()),
            *gradients,
            *(dim, size, loc.shape[1]),
            tall=triton.next_power_of_2(dim),
            block=max(16, triton.next_power_of_2(size)),
            num_warps=1 if size <= 128 else 4,
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
def _forward(
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
def _backward(
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
