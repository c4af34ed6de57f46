"""Predictive densities, of any distribution that has one."""

from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError, NotApplicableError

__all__ = ["log_density"]


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
