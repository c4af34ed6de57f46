"""Are the PITs of neighbouring rows correlated?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.calibration.dependent_rows import DependentRows

__all__ = ["SerialCorrelation", "serial_correlation", "serial_correlations"]

SERIAL_LEVEL = 0.01
"""Probability that independent rows are reported as correlated, over all PITs and lags."""

_LAGS = 3
_FEWEST = 30  # units from which the sums below are about normal


@dataclass(frozen=True)
class SerialCorrelation:
    """The clearest correlation between PITs of neighbouring rows or times.

    Attributes:
        prerank: label of the pre-rank.
        place: number of its component.
        lag: distance of the rows or times.
        correlation: of the PITs, summed over the rows of a time.
        p_value: corrected over all PITs and lags.
    """

    prerank: str
    place: int
    lag: int
    correlation: float
    p_value: float


def serial_correlation(
    pits: Mapping[str, Tensor], rows: DependentRows | None = None
) -> SerialCorrelation | None:
    r"""Find PITs that are correlated in the order of the rows, or of their times.

    .. math:: t_k = \frac{\sum_u x_u x_{u+k}}{\sqrt{\sum_u x_u^2 x_{u+k}^2}}, \qquad
              x_u = \sum_{i \in u} (Z_i - \bar Z),

    is about standard normal where units are independent of each other, calibrated or not, and
    whatever their sizes. The largest over lags 1 to 3 and all components counts, corrected by
    Bonferroni.

    Args:
        pits: of each pre-rank by label, `(N, J)`.
        rows: times of the rows; by default their order is that of the rows.

    Returns:
        None where the corrected p-value is at least .01, there are fewer than 30 units, or the rows
        are clusters, which have no order.

    Example:
        >>> noise = torch.rand(301, 1, generator=torch.Generator().manual_seed(0))
        >>> serial_correlation({"scale": noise}) is None
        True
        >>> found = serial_correlation({"scale": (noise[1:] + noise[:-1]) / 2})
        >>> found.lag, round(found.correlation, 1), found.p_value < 0.001
        (1, 0.5, True)
    """
    if rows is not None and rows.kind != "time":
        return None
    best: tuple[float, str, int, int, float] = (0.0, "", 0, 0, 0.0)
    tests = 0
    for label, z in pits.items():
        columns = z.detach().double()
        centred = (columns - columns.nanmean(0)).nan_to_num(0)  # gaps tell nothing
        if rows is not None:
            units = torch.from_numpy(rows.units).to(z.device)
            centred = centred.new_zeros(rows.count, columns.shape[1]).index_add_(0, units, centred)
        if len(centred) < _FEWEST:
            return None
        power = centred.square().sum(0).clamp_min(1e-300)
        for lag in range(1, _LAGS + 1):
            products = centred[lag:] * centred[:-lag]
            sums, scale = products.sum(0), products.square().sum(0).sqrt().clamp_min(1e-300)
            score, place = (sums / scale).abs().max(0)
            tests += len(sums)
            if float(score) > best[0]:
                at = int(place)
                best = float(score), label, at, lag, float(sums[at] / power[at])
    p_value = min(1.0, tests * math.erfc(best[0] / math.sqrt(2)))
    if p_value >= SERIAL_LEVEL:
        return None
    _, label, at, lag, correlation = best
    return SerialCorrelation(label, at, lag, correlation, p_value)


def serial_correlations(
    pits: Mapping[str, Tensor], rows: DependentRows | None = None
) -> dict[int, SerialCorrelation]:
    """`serial_correlation` of each predictor of a stack, by its number; of those with evidence.

    Args:
        pits: of each pre-rank by label, `(..., N, J)`.
        rows: times of the rows.
    """
    found = {}
    for model in range(next(iter(pits.values())).shape[:-2].numel()):
        own = {label: z.reshape(-1, *z.shape[-2:])[model] for label, z in pits.items()}
        if (one := serial_correlation(own, rows)) is not None:
            found[model] = one
    return found
