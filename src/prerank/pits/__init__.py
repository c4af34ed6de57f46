"""Projected PITs: exact ones to judge by, smooth ones to train with."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.inputs import check_distribution
from prerank.pits.closed_forms import ProjectedCDF, StepCDF, closed_form, register_closed_form
from prerank.pits.ranks import ProjectedPIT, project_pits, rank_pit
from prerank.pits.smooth import SmoothPIT, Widths, smooth_pit, smooth_pits, smoothing_widths
from prerank.preranks import PreRankLike, applicable

__all__ = [
    "ProjectedCDF",
    "ProjectedPIT",
    "SmoothPIT",
    "StepCDF",
    "Widths",
    "closed_form",
    "pit",
    "project_pits",
    "rank_pit",
    "register_closed_form",
    "smooth_pit",
    "smooth_pits",
    "smoothing_widths",
]


def pit(
    dist: Distribution,
    y: object,
    prerank: PreRankLike,
    *,
    n_samples: int = 100,
    generator: torch.Generator | int | None = None,
    closed_forms: bool = True,
) -> Tensor:
    r"""Projected PIT :math:`Z = \hat F_T(T)`, uniform where the predictor is calibrated.

    Closed form where one is registered (linear pre-ranks of Gaussian mixtures and normals),
    exchangeable ranks with randomised ties otherwise: exactly uniform under the true law for every
    number of samples.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`: numpy, pandas or torch.
        prerank: text such as `"hdr"` or `"pca(0.8)"`, a pre-rank, or a function `rho(y)`. The
            components of a sum such as `"marginal+hdr"` are put side by side.
        n_samples: draws per row where there is no closed form.
        generator: a generator or seed for draws and ties.
        closed_forms: False ranks samples even where the projected law is known.

    Returns:
        `(*batch_shape, J)`.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> dist = MultivariateNormal(torch.zeros(1000, 2), torch.eye(2))
        >>> z = pit(dist, dist.sample(), "hdr", generator=0)
        >>> z.shape
        torch.Size([1000, 1])
    """
    results = project_pits(
        dist,
        y,
        applicable(prerank, check_distribution(dist))[0],
        n_samples=n_samples,
        generator=generator,
        closed_forms=closed_forms,
    )
    return torch.cat([result.z for result in results], -1)
