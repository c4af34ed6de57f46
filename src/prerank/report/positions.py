"""Where an observation stands among the samples of its prediction, in words."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from prerank.report.wording import listed

__all__ = ["inner_share", "outer_margins", "position_words"]

_LEAST = 39  # samples from which on something can be in their outer 5 %
_MANY = 2000  # the distances of more are not computed

Array = npt.NDArray[np.float64]


def outer_margins(samples: Array, observation: Array) -> npt.NDArray[np.int64]:
    r"""Targets in which an observation lies in the outer 5 % of the samples.

    .. math:: \frac{2}{S + 1} \min\big(\#\{s : Y_{sd} \le y_d\} + 1,\;
              \#\{s : Y_{sd} \ge y_d\} + 1\big) \le 0.05

    For a right prediction this is true of each target with a probability of 5 % at most, so that
    of many targets some are outer.

    Args:
        samples: `(S, D)`.
        observation: `(D,)`.

    Returns:
        `(D,)`: -1 where the observation is outer and low, 1 where it is outer and high, else 0.

    Example:
        >>> outer_margins(np.linspace(-1, 1, 99)[:, None] * [1, 1, 1], np.array([-2, 0, 2]))
        array([-1,  0,  1])
    """
    low = (samples <= observation).sum(0) + 1
    high = (samples >= observation).sum(0) + 1
    outer = 2 * np.minimum(low, high) <= 0.05 * (len(samples) + 1)
    return np.where(outer, np.where(low < high, -1, 1), 0)


def inner_share(samples: Array, observation: Array) -> float:
    r"""Share of the samples that are less far out than an observation, all targets together.

    .. math:: \tfrac1S \#\{s : R_s < R_0\}, \qquad
              R_i = \sum_{j=0}^S \|\Sigma^{-1/2} (Y_i - Y_j)\|,

    with :math:`Y_0` the observation and :math:`\Sigma` the covariance of all S + 1 points, which
    are treated alike. An observation that denies the dependence of the samples is far out, though
    no margin shows it.

    Args:
        samples: `(S, D)`.
        observation: `(D,)`.

    Example:
        >>> line = np.linspace(-1, 1, 99)
        >>> inner_share(np.stack([line, line + 0.1 * np.cos(40 * line)], 1), np.array([0.5, -0.5]))
        1.0
    """
    chosen = samples[:: -(-len(samples) // _MANY)]
    pool = np.concatenate([observation[np.newaxis], chosen])
    pool = pool - pool.mean(0)
    pool = pool / np.where(np.ptp(pool, axis=0) > 0, pool.std(0), 1.0)
    values, directions = np.linalg.eigh(pool.T @ pool / len(pool))
    kept = values > max(1e-9 * values[-1], np.finfo(float).tiny)
    white = torch.from_numpy(pool @ directions[:, kept] / np.sqrt(values[kept]))
    reach = torch.cdist(white, white).sum(-1)
    return float((reach[1:] < reach[0]).double().mean())


def position_words(samples: Array, observation: Array, names: Sequence[str]) -> str:
    """Say in which margins, and how far together, an observation is far out.

    Args:
        samples: `(S, D)`.
        observation: `(D,)`.
        names: of the D targets.

    Example:
        >>> samples = np.random.default_rng(0).normal(size=(200, 2))
        >>> position_words(samples, np.array([0.0, -5.0]), ["rain", "wind"])
        'observation in the outer 5 % of the margin of wind (lower than predicted), and farther out
        than every sample, all targets together'
    """
    size, targets = samples.shape
    if size < _LEAST:
        return f"observation among {size} samples, too few to say what is in their outer 5 %"
    signs = outer_margins(samples, observation)
    groups = []
    for sign, word in ((-1, "lower"), (1, "higher")):
        members = [name for name, own in zip(names, signs, strict=True) if own == sign]
        if members:
            margins = "margins" if len(members) > 1 else "margin"
            groups.append(f"the {margins} of {listed(members)} ({word} than predicted)")
    inner = "every margin" if targets > 1 else "the margin"
    where = (
        f"in the outer 5 % of {' and of '.join(groups)}"
        if groups
        else f"in the inner 95 % of {inner}"
    )
    if targets == 1 or size < 10 * targets:  # too few for a covariance
        return f"observation {where}"
    share = inner_share(samples, observation)
    others = "every sample" if share == 1 else f"{min(100 * share, 99):.0f} % of the samples"
    return f"observation {where}, and farther out than {others}, all targets together"
