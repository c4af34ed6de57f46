"""What distributions of several targets have in common."""

from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import NotApplicableError

__all__ = ["JointDistribution"]


class JointDistribution(Distribution):
    """Distribution of a vector, which has no inverse CDF.

    Example:
        >>> import torch
        >>> from prerank.distributions import Ensemble
        >>> Ensemble(torch.randn(9, 4, 2)).icdf(torch.tensor(0.5))
        Traceback (most recent call last):
        prerank.errors.NotApplicableError: a distribution of several targets has no inverse CDF: ...
    """

    def icdf(self, value: Tensor) -> Tensor:
        """Raise: the CDF of several targets takes each value at many points."""
        raise NotApplicableError(
            "a distribution of several targets has no inverse CDF: for quantiles of each target "
            "call predict_quantiles(X, [0.05, 0.95]) of the regressor, or take those of samples, "
            "as in dist.sample((1000,)).quantile(0.95, dim=0)"
        )
