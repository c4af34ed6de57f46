"""One test of a whole joint forecast, beside the pre-ranks that have names."""

import torch
from torch.distributions import Distribution

from prerank.calibration.omnibus import OmnibusTest, omnibus_test
from prerank.defaults import N_SAMPLES, SEED
from prerank.errors import NotApplicableError, ShapeError
from prerank.inputs import as_generator, check_distribution
from prerank.pits import project_pits
from prerank.preranks import parse

__all__ = ["check_omnibus"]


def check_omnibus(
    dist: Distribution,
    y: object,
    *,
    n_samples: int = N_SAMPLES,
    n_null: int = 999,
    generator: torch.Generator | int | None = SEED,
) -> OmnibusTest:
    """Test whether observations are exchangeable with draws of their forecasts.

    The test looks at random directions and waves of the marginal PITs
    (`prerank.calibration.omnibus` has the formulas). It sees any fault of the joint distribution if
    there are enough rows, and says nothing about its kind: `diagnose` does that. It is valid for
    independent rows.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)` with two targets or more.
        y: observations `(N, D)`.
        n_samples: draws per row; an `Ensemble` uses all of its members.
        n_null: replicates; the smallest p-value is one over n_null + 1.
        generator: a generator or seed.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> g = torch.Generator().manual_seed(0)
        >>> size, sign = torch.randn(500, 1, generator=g), torch.rand(500, 2, generator=g) - 0.5
        >>> y = size.abs() * sign.sign()  # normal, uncorrelated, and equal up to the sign
        >>> forecast = MultivariateNormal(torch.zeros(500, 2), torch.eye(2))
        >>> check_omnibus(forecast, y).p_value < 0.01
        True
    """
    check_distribution(dist)
    if len(dist.batch_shape) != 1:
        raise ShapeError(
            f"dist has batch_shape {tuple(dist.batch_shape)}: the omnibus test takes one "
            "predictor, of batch_shape (N,)"
        )
    if dist.event_shape[0] < 2:
        raise NotApplicableError(
            "the omnibus test needs two targets or more: for one, diagnose looks at the whole "
            "distribution"
        )
    source = as_generator(generator, "draw")
    [margins] = project_pits(
        dist, y, parse("marginal"), n_samples=n_samples, generator=source, with_null_pits=True
    )
    if margins.null_pits is None:
        raise NotApplicableError(
            "weighted members are not exchangeable with the observation: the omnibus test needs "
            "members of equal weight"
        )
    return omnibus_test(margins.z, margins.null_pits, n_null=n_null, generator=source)
