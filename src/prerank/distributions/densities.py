"""Log-densities of distributions, and quantiles of univariate mixtures."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal, constraints

from prerank.errors import InputError, NotApplicableError
from prerank.numerics import QuickFunction, join, row_blocks
from prerank.numerics.kernels import available, fits
from prerank.numerics.matrices import triangular_inverse

__all__ = [
    "in_support",
    "log_density",
    "mixture_log_density",
    "mixture_quantiles",
    "whitened_columns",
]


def log_density(dist: Distribution, points: Tensor) -> Tensor:
    """`dist.log_prob`, with errors that say what to do.

    Raises:
        NotApplicableError: where the distribution has no density.
        InputError: where a point lies outside the support of a distribution that validates.
    """
    try:
        return dist.log_prob(points)
    except NotImplementedError as error:
        raise NotApplicableError(
            f"{type(dist).__name__} has no log_prob: use a pre-rank or score that needs no "
            "density, such as 'copula' or energy_score"
        ) from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"y lies outside the support of the distribution: {error}") from error


def in_support(dist: Distribution, points: Tensor) -> Tensor | None:
    """Where the density is not 0 by definition, `(...)` for points `(..., D)`.

    None where it is 0 nowhere, or the distribution does not say: then nothing has to be asked of
    the device.
    """
    try:
        support = dist.support
    except NotImplementedError:
        support = None
    if support is None or support is constraints.real_vector:
        return None
    inside: Tensor = support.check(points)
    return inside if inside.dim() < points.dim() else inside.all(-1)


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
            from prerank.numerics.kernels.mixture_kernels import mixture_density

            return mixture_density(*(t.contiguous() for t in (points, constants, loc, inverse)))
        densities = []
        for b in _blocks(points, loc):
            *_, values = _exponents(points[b], constants[b], loc[b], inverse[b])
            densities.append(_log_sum_exp(values))
        return join(densities)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        points, constants, loc, inverse, density = ctx.saved_tensors
        if available(points):
            from prerank.numerics.kernels.mixture_kernels import mixture_density_gradient

            inputs = [tensor.contiguous() for tensor in (points, constants, loc, inverse)]
            return mixture_density_gradient(inputs, density, gradient)
        gradients = []
        for b in _blocks(points, loc):
            centred, z, values = _exponents(points[b], constants[b], loc[b], inverse[b])
            share = (values - density[b].unsqueeze(1)).exp() * gradient[b].unsqueeze(1)
            slope = share.unsqueeze(2) * z  # (rows, K, D, S)
            by_loc = inverse[b].mT @ slope.sum(-1, keepdim=True)
            # One product adds up the components.
            by_points = inverse[b].flatten(1, 2).mT @ slope.flatten(1, 2)
            by_inverse = slope @ centred.mT
            gradients.append((-by_points, share.sum(-1), by_loc.squeeze(-1), -by_inverse))
        return tuple(join(list(parts)) for parts in zip(*gradients, strict=True))


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


_HALVINGS = 100


def mixture_quantiles(mixture: MixtureSameFamily, levels: Tensor) -> Tensor:
    r"""Solve :math:`F(q) = \alpha` by bisection between the quantiles of the components.

    A mixture's quantile lies between the smallest and the largest of its components' quantiles, so
    the bracket is certain; halving it until nothing changes gives every digit.

    Args:
        mixture: univariate mixture of normals, such as `GaussianMixture.project` returns.
        levels: `(Q,)`, in (0, 1).

    Returns:
        `(Q, *batch_shape)`.

    Example:
        >>> from torch.distributions import Categorical, Normal
        >>> two = MixtureSameFamily(
        ...     Categorical(torch.ones(2)), Normal(torch.tensor([-1.0, 1.0]), 1.0)
        ... )
        >>> mixture_quantiles(two, torch.tensor([0.5])).abs().round(decimals=6)
        tensor([0.])
    """
    if levels.dim() != 1 or not bool(((levels > 0) & (levels < 1)).all()):
        raise InputError(f"quantile levels must be a vector of numbers in (0, 1), got {levels}")
    alpha = levels.reshape(-1, *[1] * len(mixture.batch_shape))
    normal = mixture.component_distribution
    if not isinstance(normal, Normal):
        raise InputError(f"mixture must be one of normals, not of {type(normal).__name__}")
    bounds = normal.loc + normal.scale * torch.special.ndtri(alpha.unsqueeze(-1))
    low, high = bounds.amin(-1), bounds.amax(-1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = mixture.cdf(middle) < alpha
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)
