"""Quantiles of univariate mixtures."""

import torch
from torch import Tensor
from torch.distributions import MixtureSameFamily, Normal

from prerank.errors import InputError

__all__ = ["mixture_quantiles"]

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
