"""Units in which targets are judged: as they are, or divided by a scale."""

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.defaults import N_SAMPLES, SEED
from prerank.distributions import draw
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor, check_finite

__all__ = ["ORIGINAL", "divisors_of", "sample_spread"]

ORIGINAL = "original"
"""Units of targets that are judged as they are."""


def divisors_of(
    scale: object, dist: Distribution, observed: Tensor, units: str | None
) -> tuple[Tensor | None, str]:
    """Divisors of the targets, and the units that they make.

    Args:
        scale: as for `diagnose`.
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        observed: observations `(..., N, D)`.
        units: of `dist` and `observed`; `"original"` by default.

    Returns:
        `(D,)`, or None where the units stay as they are; and the units in words.
    """
    start = f"{units}, " if units else ""
    if scale is None or (isinstance(scale, str) and scale == "none"):
        return None, units or ORIGINAL
    if isinstance(scale, str):
        if scale != "samples":
            raise InputError(f"scale must be 'none', 'samples' or divisors, got {scale!r}")
        words = f"{start}each target divided by the spread of its samples"
        return sample_spread(dist).to(observed), words
    divisors = as_tensor(scale, "scale")
    if divisors.shape != observed.shape[-1:]:
        raise ShapeError(
            f"scale has shape {tuple(divisors.shape)}, but there are {observed.shape[-1]} targets"
        )
    check_finite(divisors, "scale")
    if not bool((divisors > 0).all()):
        raise InputError("scale must be positive: it holds divisors of the targets")
    return divisors.to(observed), f"{start}each target divided by the given scale"


def sample_spread(dist: Distribution, *, n_samples: int = N_SAMPLES) -> Tensor:
    r"""Standard deviation of each target over the predictive samples of all rows.

    .. math:: s_d = \Big(\frac1{SN} \sum_{s, i} (Y_{sid} - \bar Y_d)^2\Big)^{1/2},

    and 1 where all samples of a target are equal.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`; an `Ensemble` uses its members, whatever
            their weights.
        n_samples: draws per row of other distributions.

    Returns:
        `(D,)`, in float64.

    Example:
        >>> from prerank import Ensemble
        >>> sample_spread(Ensemble([[[0.0, 5.0]], [[4.0, 5.0]]]))
        tensor([2., 1.], dtype=torch.float64)
    """
    points = draw(dist, n_samples, generator=SEED).points.double().cpu().numpy()
    spreads = []
    for values in np.moveaxis(points, -1, 0):
        size = np.abs(values).max() or 1.0  # whose square may be too large for a number
        spreads.append(float(size * (values / size).std()) or 1.0)
    return torch.tensor(spreads, dtype=torch.float64)
