"""Observations that take few values, and what they do to a predictor with a density."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.error import pce_floor
from prerank.distributions import draw
from prerank.inputs import as_points

__all__ = ["tie_error", "tie_remarks"]

_DRAWS = 16  # in which a predictor that knows of the values would show one of them


def tie_error(y: object) -> npt.NDArray[np.float64]:
    r"""PCE of a predictor with a density that knows how often each value occurs, and no more.

    .. math:: \frac14 \sum_k p_k^2

    for each target, where :math:`p_k` are the shares of its values. Such a predictor has a narrow
    peak at each value: its PITs are the middles of the steps of the CDF, and not uniform. One that
    is certain of the value to come has an error of 1/4.

    Args:
        y: targets `(N, D)`.

    Example:
        >>> tie_error([[0.0, 0.1], [0.0, 0.2], [1.0, 0.3], [1.0, 0.4]])
        array([0.125 , 0.0625])
    """
    columns = as_points(y, "y").double().flatten(end_dim=-2).mT
    return np.array([float(_shares(column).square().sum()) / 4 for column in columns])


def tie_remarks(dist: Distribution, y: Tensor, names: Sequence[str]) -> tuple[str, ...]:
    """What to say of targets with ties that a predictor without ties is to meet.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`.
        names: of the targets.

    Returns:
        Sentences; none where the error that ties alone would make is within the floor.
    """
    errors = tie_error(y)
    floor = pce_floor(y.shape[-2])
    if not (errors > floor).any():
        return ()
    met = (draw(dist, _DRAWS, generator=0).points == y).flatten(end_dim=-2).double().mean(0)
    # A predictor that knows the values meets them as often as they meet each other; one with a
    # density does so by accident.
    hit = [d for d, error in enumerate(errors) if error > floor and float(met[d]) < error]
    if not hit:
        return ()
    ties = []
    for d in hit:
        shares = _shares(y[..., d].flatten())
        ties.append(f"{names[d]} ({len(shares)} values, one in {shares.max():.0%} of the rows)")
    return (
        f"discrete targets: {', '.join(ties)}. A predictor with a density cannot have uniform PITs "
        f"there; one that knew no more than how often each value occurs would have a PCE of up to "
        f"{max(errors[d] for d in hit):.3f}. Round its samples to the values with "
        f"prerank.datasets.snap, and diagnose them as an Ensemble: the PITs of samples between the "
        f"values say little there, and a penalty on them can take probability off the values.",
    )


def _shares(column: Tensor) -> Tensor:
    return column.unique(return_counts=True)[1].double() / len(column)
