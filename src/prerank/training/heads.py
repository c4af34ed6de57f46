"""A head behind networks: fitted to rows that they have not seen, and judged on those of one."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from prerank.models import FlowNetwork, MixtureNetwork
from prerank.recalibration import CalibrationHead, Change
from prerank.scores import energy_score, nll
from prerank.training.cross_fitting import forecast_unseen
from prerank.training.data import TrainingData
from prerank.training.runs import Run

__all__ = ["fit_head"]


def fit_head(
    head: CalibrationHead,
    network: MixtureNetwork | FlowNetwork,
    data: TrainingData,
    theta: Tensor,
    runs: Sequence[Run],
    unseen: Sequence[Tensor],
    *,
    returned: Sequence[int] | None = None,
    groups: object = None,
    time: object = None,
) -> None:
    r"""Fit a head to forecasts of rows by the networks that have not seen them.

    Where one network of several is kept, the others may have faults that it has not. The head is
    left out if it makes the forecasts of the kept network worse on the n rows that this network has
    not seen: if the change :math:`d_i` of the negative log-likelihood of a row, or of its energy
    score, has

    .. math:: \bar d > \Big(\frac{1}{n (n - 1)} \sum_i (d_i - \bar d)^2\Big)^{1/2}.

    The head was fitted to these rows among others, so this finds harm and proves no gain.

    Args:
        head: to fit.
        network: what was trained.
        data: its rows.
        theta: parameters of the runs, `(R, P)`.
        runs: as they were trained.
        unseen: rows of each run that it was not fitted to.
        returned: places of the runs that are kept; None for all.
        groups: of all rows.
        time: of all rows.
    """
    numbers = torch.cat(list(unseen)).unique().numpy()
    head.fit(
        *forecast_unseen(network, data, theta, runs, unseen),
        groups=None if groups is None else np.asarray(groups)[numbers],
        time=None if time is None else np.asarray(time)[numbers],
    )
    if returned is None or len(returned) > 1 or len(runs) == 1 or not head.change_.active:
        return
    (kept,) = returned
    # Units are those of the first split.
    dist, y = forecast_unseen(
        network, data, theta[[kept]], [runs[kept]], [unseen[kept]], units=runs[0].split
    )
    calibrated = head(dist)
    changes = (
        nll(calibrated, y) - nll(dist, y),
        energy_score(calibrated, y, generator=0) - energy_score(dist, y, generator=0),
    )
    if any(_worse(change) for change in changes):
        change, copies = head.change_, head.copies
        head.change_ = Change.identity(y.shape[-1], copies, stack=(), like=change.width)
        head.amounts_, head.gains_ = (
            {level: torch.zeros_like(value) for level, value in values.items()}
            for values in (head.amounts_, head.gains_)
        )


def _worse(change: Tensor) -> bool:
    """Whether a mean change is above its standard error, or not a number."""
    return not bool(change.mean() <= change.std() / len(change) ** 0.5)
