"""How far PITs are from uniform: the probabilistic calibration error and its floor."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count, as_tensor, check_finite

__all__ = ["mean_spread", "pce", "pce_floor", "pce_spread"]


def pce(z: object, *, levels: int = 100) -> Tensor:
    r"""Probabilistic calibration error of PITs.

    .. math:: \mathrm{PCE} = \frac1M \sum_{j=1}^M |\alpha_j - \hat F_Z(\alpha_j)|,

    with :math:`\hat F_Z` the empirical CDF over all rows at once and :math:`\alpha` evenly spaced
    on [0, 1], end points included. The mean of the PCE over batches is another, larger number: its
    expectation for a perfect predictor grows as the batches shrink.

    Args:
        z: PITs `(..., N, J)` in [0, 1].
        levels: M, at least 2.

    Returns:
        `(..., J)`.

    Example:
        >>> pce(torch.full((10, 1), 0.5))
        tensor([0.2475])
    """
    values = check_pits(z)
    return pce_of_curve(level_cdf(values, levels)).to(values.dtype)


def pce_floor(n: int, *, levels: int = 100) -> float:
    r"""Exact expectation of the PCE for n independent uniforms, about :math:`0.310 / \sqrt n`.

    Each level contributes the mean absolute deviation of a binomial, which de Moivre found:

    .. math:: E|X - n\alpha| = 2 \nu \binom{n}{\nu} \alpha^{\nu} (1-\alpha)^{n-\nu+1}, \qquad
              \nu = \lfloor n\alpha \rfloor + 1.

    Args:
        n: number of PITs.
        levels: as in `pce`.

    Example:
        >>> round(pce_floor(n=256), 4)
        0.0193
    """
    return _floor(as_count(n, "n", minimum=1), as_count(levels, "levels", minimum=2))


def pce_spread(n: int) -> float:
    r"""Standard deviation of the PCE of n independent uniforms, for large n.

    .. math:: \sqrt{\frac1n \Big(\frac7{60} - \frac\pi{32}\Big)} \approx \frac{0.136}{\sqrt n}:

    :math:`\sqrt n` times the PCE has the law of the area between a Brownian bridge and 0, whose
    first two moments are known (Shepp 1982).

    Args:
        n: number of PITs.

    Example:
        >>> round(pce_spread(256), 4)
        0.0085
    """
    return math.sqrt((7 / 60 - math.pi / 32) / as_count(n, "n", minimum=1))


def mean_spread(pits: Sequence[Tensor]) -> Tensor:
    r"""Standard deviation of the mean PCE of several pre-ranks that are right.

    .. math:: \mathrm{spread}(n) \Big(\sum_{jk} w_j w_k r_{jk}^2\Big)^{1/2}

    with r the correlations of the PITs over the rows, and weights w that are equal for all
    pre-ranks and for the components of each. (The areas of two bridges are about as correlated as
    the square of what their PITs are: exact for r = 0 and 1, and up to 4 % too large between.)

    Args:
        pits: of each pre-rank, `(..., N, J)`, in [0, 1].

    Returns:
        `(...)`.

    Example:
        >>> z = torch.rand(1000, 4, generator=torch.Generator().manual_seed(0))
        >>> round(float(mean_spread([z])) / pce_spread(1000), 2)
        0.5
    """
    together = torch.cat(list(pits), -1)
    weights = torch.cat([z.new_full((z.shape[-1],), 1 / z.shape[-1] / len(pits)) for z in pits])
    centred = together - together.mean(-2, keepdim=True)
    unit = torch.nn.functional.normalize(centred, dim=-2)
    square = (unit.mT @ unit).square()
    square.diagonal(dim1=-2, dim2=-1).fill_(1)  # also where all PITs are equal
    return pce_spread(together.shape[-2]) * (weights @ square @ weights).sqrt()


@lru_cache(maxsize=256)
def _floor(n: int, levels: int) -> float:
    from scipy import stats  # takes longer to import than most uses of it take

    alpha = np.linspace(0, 1, levels)[1:-1]
    nu = np.floor(n * alpha) + 1
    deviation = 2 * nu * stats.binom.pmf(nu, n, alpha) * (1 - alpha)
    return float(deviation.sum() / n / levels)


def check_pits(z: object) -> Tensor:
    """Convert PITs to a tensor `(..., N, J)` and check that they lie in [0, 1]."""
    values = as_tensor(z, "z")
    if values.dim() < 2:
        raise ShapeError(
            f"z must have shape (..., N, J), got {tuple(values.shape)}: use z[:, None] for one "
            "component"
        )
    if values.numel() == 0:
        raise ShapeError(f"z is empty: its shape is {tuple(values.shape)}")
    check_finite(values, "z")
    if bool((values < 0).any() | (values > 1).any()):
        raise InputError("z holds values outside [0, 1]: pass PITs, not pre-ranks")
    return values


def level_grid(levels: int) -> Tensor:
    """Levels at which the CDF of the PITs is compared, in float64."""
    return torch.linspace(0, 1, as_count(levels, "levels", minimum=2), dtype=torch.float64)


def level_index(values: Tensor, levels: int) -> Tensor:
    """Index of the smallest level that is not below each PIT."""
    grid = level_grid(levels).to(device=values.device)
    return torch.bucketize(values.double().contiguous(), grid)


def level_cdf(values: Tensor, levels: int) -> Tensor:
    """Empirical CDF of the PITs at each level, `(..., levels, J)`, in float64."""
    index = level_index(values, levels)
    shape = (*values.shape[:-2], levels, values.shape[-1])
    counts = torch.zeros(shape, dtype=torch.float64, device=values.device)
    counts.scatter_add_(-2, index, torch.ones_like(index, dtype=torch.float64))
    return counts.cumsum(-2) / values.shape[-2]


def pce_of_curve(curve: Tensor) -> Tensor:
    """PCE of a CDF `(..., levels, J)` of PITs, shape `(..., J)`."""
    grid = level_grid(curve.shape[-2]).to(curve.device).unsqueeze(-1)
    return (curve - grid).abs().mean(-2)
