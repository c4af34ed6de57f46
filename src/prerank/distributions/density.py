"""Predictive densities, of any distribution that has one."""

from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.errors import InputError, NotApplicableError

__all__ = ["in_support", "log_density"]


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
