"""Log-densities of Gaussian mixtures at many points of a row."""

from typing import Any

import torch
from torch import Tensor

from prerank.numerics.blocks import join, row_blocks
from prerank.numerics.functions import QuickFunction
from prerank.numerics.kernels import available, fits
from prerank.numerics.triangular import triangular_inverse

__all__ = ["mixture_log_density", "whitened_columns"]

_LOG_2PI = 1.8378770664093453


def mixture_log_density(logits: Tensor, loc: Tensor, scale_tril: Tensor, columns: Tensor) -> Tensor:
    r"""Log-density of a mixture at points side by side.

    .. math:: \log f(y) = \log \sum_k \exp\big(c_k - \tfrac12 |z_k|^2\big), \quad
              z_k = A_k (y - \mu_k), \quad A_k = L_k^{-1}, \quad
              c_k = \log \pi_k - \log |L_k| - \tfrac{D}{2} \log 2\pi.

    The gradient is written out: with the posterior :math:`r_k` of the component at y,

    .. math:: \frac{\partial}{\partial c_k} = r_k, \quad
              \frac{\partial}{\partial y} = -\sum_k r_k A_k^\top z_k, \quad
              \frac{\partial}{\partial \mu_k} = r_k A_k^\top z_k, \quad
              \frac{\partial}{\partial A_k} = -r_k z_k (y - \mu_k)^\top.

    Args:
        logits: normalised, `(*batch, K)`.
        loc: `(*batch, K, D)`.
        scale_tril: `(*batch, K, D, D)`.
        columns: `(*batch, D, S)`.

    Returns:
        `(*batch, S)`.
    """
    *batch, components, dim = loc.shape
    log_det = scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constants = logits - log_det - 0.5 * dim * _LOG_2PI
    if columns.shape[-1] <= dim and not fits(columns):  # an inverse would not pay
        z = whitened_columns(loc, scale_tril, columns)
        return torch.logsumexp(constants.unsqueeze(-1) - 0.5 * z.square().sum(-2), -2)
    density: Tensor = _Density.apply(
        columns.reshape(-1, dim, columns.shape[-1]),
        constants.reshape(-1, components),
        loc.reshape(-1, components, dim),
        triangular_inverse(scale_tril).reshape(-1, components, dim, dim),
    )
    return density.reshape(*batch, -1)


def whitened_columns(loc: Tensor, scale_tril: Tensor, columns: Tensor) -> Tensor:
    """Points `L_k^{-1} (y - mu_k)`, `(*batch, K, D, S)`, for points `(*batch, D, S)`."""
    centred = columns.unsqueeze(-3) - loc.unsqueeze(-1)
    return torch.linalg.solve_triangular(scale_tril, centred, upper=False)


class _Density(QuickFunction):
    generate_vmap_rule = True

    @staticmethod
    def forward(points: Tensor, constants: Tensor, loc: Tensor, inverse: Tensor) -> Tensor:
        if available(points):
            from prerank.numerics.kernels.density_kernel import mixture_density

            return mixture_density(*(t.contiguous() for t in (points, constants, loc, inverse)))
        found = []
        for b in _blocks(points, loc):
            *_, values = _exponents(points[b], constants[b], loc[b], inverse[b])
            found.append(_log_sum_exp(values))
        return join(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        points, constants, loc, inverse, density = ctx.saved_tensors
        if available(points):
            from prerank.numerics.kernels.density_kernel import mixture_density_gradient

            points, constants, loc, inverse = (
                tensor.contiguous() for tensor in (points, constants, loc, inverse)
            )
            return mixture_density_gradient(points, constants, loc, inverse, density, gradient)
        found = []
        for b in _blocks(points, loc):
            centred, z, values = _exponents(points[b], constants[b], loc[b], inverse[b])
            share = (values - density[b].unsqueeze(1)).exp() * gradient[b].unsqueeze(1)
            slope = share.unsqueeze(2) * z  # (rows, K, D, S)
            by_loc = inverse[b].mT @ slope.sum(-1, keepdim=True)
            # One product adds up the components.
            by_points = inverse[b].flatten(1, 2).mT @ slope.flatten(1, 2)
            by_inverse = slope @ centred.mT
            found.append((-by_points, share.sum(-1), by_loc.squeeze(-1), -by_inverse))
        return tuple(join(list(parts)) for parts in zip(*found, strict=True))


def _blocks(points: Tensor, loc: Tensor) -> list[slice]:
    return row_blocks(len(points), loc.shape[1] * points[0].numel(), points)


def _exponents(
    points: Tensor, constants: Tensor, loc: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Centred and whitened points `(rows, K, D, S)`, and `c_k - |z_k|^2 / 2`, `(rows, K, S)`."""
    # Centred for each component by itself: one shift for all would cost the digits of narrow ones.
    centred = points.unsqueeze(1) - loc.unsqueeze(-1)
    z = inverse @ centred
    return centred, z, torch.sub(constants.unsqueeze(-1), z.square().sum(2), alpha=0.5)


def _log_sum_exp(values: Tensor) -> Tensor:
    """Over the middle axis, faster than torch's own on a CPU."""
    largest = values.amax(1, keepdim=True)
    # inf - inf would be NaN where no component reaches the point, or one is infinitely dense.
    largest = torch.where(largest.abs() == torch.inf, 0, largest)
    return (values - largest).exp_().sum(1).log_() + largest.squeeze(1)
