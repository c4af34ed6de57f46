r"""Evidence from rows that depend on each other, by rotations of their projections.

The cosine projections :math:`(\Lambda_0, \dots, \Lambda_B)` of a calibrated forecast are B + 1
independent copies of one Gaussian process over levels and components (see
`prerank.calibration.dependent_rows`). Their distribution does not change under rotations, and

.. math:: \Big\| \sum_{b=0}^{B} u_b \Lambda_b \Big\|, \qquad u \text{ uniform on the sphere},

are replicates that are exchangeable with the observed :math:`\|\Lambda_0\|`, whatever the norm. For
a single level this is the t-test with B degrees of freedom. No variance is inverted, so any number
of levels and components is tested at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.bands import (
    HistogramBand,
    ReliabilityBand,
    histogram_band,
    reliability_band,
)
from prerank.calibration.curves import level_grid
from prerank.calibration.dependent_rows import CountedUnits, DependentRows, columns_of
from prerank.defaults import BAND_LEVEL, LEVELS

__all__ = [
    "DependentEvidence",
    "dependent_band",
    "dependent_evidence",
    "dependent_histogram_band",
    "deviation_draws",
    "rotations",
]

ROTATIONS = 10_000
"""Replicates of a diagnosis: as many as the correction over many components needs."""


@dataclass(frozen=True)
class DependentEvidence:
    """Floors and p-values of one pre-rank whose rows depend on each other.

    Attributes:
        floors: expected PCE of a calibrated forecast with rows as dependent as these, `(J,)`.
        p_values: of the components, `(J,)`.
        overall: p-value of all components at once.
    """

    floors: npt.NDArray[np.float64]
    p_values: npt.NDArray[np.float64]
    overall: float


def dependent_evidence(
    z: Tensor | CountedUnits,
    rows: DependentRows,
    *,
    levels: int = LEVELS,
    n_null: int = ROTATIONS,
    seed: int = 0,
) -> DependentEvidence:
    r"""Floors and p-values of PITs whose rows depend on each other.

    Each p-value is the smaller of those of two norms of the deviation, corrected for the choice:
    the PCE, and :math:`\sum_j \Lambda_0(\alpha_j)^2 / (\alpha_j (1 - \alpha_j))`, which weights the
    tails as Anderson and Darling do. For all components at once, both are added up over them.

    Args:
        z: PITs `(N, J)`, or their counts.
        rows: which of them depend on each other.
        levels: as in `pce`.
        n_null: number of rotations.
        seed: of the rotations.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> noise = torch.randn(500, generator=torch.Generator().manual_seed(0)).tolist()
        >>> series = [noise[0]]
        >>> for one in noise[1:]:
        ...     series.append(0.7 * series[-1] + 0.714 * one)
        >>> z = torch.special.ndtr(torch.tensor(series)).unsqueeze(-1)
        >>> found = dependent_evidence(z, row_units(range(500), None, 500))
        >>> bool(found.p_values[0] > 0.05), round(float(found.floors[0]), 3)
        (True, 0.029)
    """
    device = _device_of(z)
    turns = rotations(rows.degrees, n_null, seed).to(device)
    grid = level_grid(levels)[1:-1].to(device)
    weights = 1 / (grid * (1 - grid))
    together = torch.zeros(2, len(turns), dtype=torch.float64, device=device)
    floors, p_values = [], []
    for column in columns_of(z):
        curves = rows.curves(column, levels=levels)[:, 1:-1]
        norms = _norms(turns @ curves, weights)
        p_values.append(_smaller_p(norms))
        floors.append(_expected_size(curves) * (levels - 2) / levels)
        together += norms
    overall = p_values[0] if len(p_values) == 1 else _smaller_p(together)
    return DependentEvidence(np.array(floors), np.array(p_values), overall)


def dependent_band(
    z: Tensor | CountedUnits,
    rows: DependentRows,
    *,
    level: float = BAND_LEVEL,
    levels: int = LEVELS,
) -> ReliabilityBand:
    """Simultaneous band for the curve of a calibrated forecast whose rows depend on each other.

    The band of independent rows, widened by one factor: rotations of a component's projections
    leave the wider band with probability 1 - `level`. So its curve leaves the band where the test
    by the largest distance rejects. Of several components the largest factor counts.

    Args:
        z: PITs `(N, J)`, or their counts.
        rows: which of them depend on each other.
        level: probability that the curve of a component stays inside.
        levels: number of levels.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> z = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
        >>> wide = dependent_band(z, row_units([k // 8 for k in range(400)], None, 400))
        >>> bool(wide.upper[50] > 0.5), wide.level
        (True, 0.95)
    """
    band = reliability_band(len(z), level=level, levels=levels)
    widths = torch.maximum(band.upper - band.levels, band.levels - band.lower)[1:-1].to(
        _device_of(z)
    )
    turns = rotations(rows.degrees, ROTATIONS, 0).to(_device_of(z))
    factor = 0.0
    for column in columns_of(z):
        curves = rows.curves(column, levels=levels)[:, 1:-1] / widths
        distances = (turns @ curves).abs().amax(-1)
        factor = max(factor, float(distances.quantile(level, interpolation="higher")))
    inner = torch.zeros_like(band.levels)
    inner[1:-1] = factor * widths.cpu()
    lower, upper = (band.levels - inner).clamp_min(0), (band.levels + inner).clamp_max(1)
    return band._replace(lower=lower, upper=upper)


def dependent_histogram_band(
    z: Tensor | CountedUnits, rows: DependentRows, *, bins: int = 20, level: float = BAND_LEVEL
) -> HistogramBand:
    """Simultaneous band for the bars of a calibrated forecast whose rows depend on each other.

    The band of independent rows, widened by one factor as `dependent_band` is.

    Args:
        z: PITs `(N, J)`, or their counts.
        rows: which of them depend on each other.
        bins: as in `pit_histogram`.
        level: probability that all bars of a component stay inside.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> z = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
        >>> wide = dependent_histogram_band(z, row_units([k // 8 for k in range(400)], None, 400))
        >>> wide.lower < 1 < wide.upper, wide.coverage
        (True, 0.95)
    """
    band = histogram_band(len(z), bins, level)
    turns = rotations(rows.degrees, ROTATIONS, 0).to(_device_of(z))
    factor = 0.0
    for column in columns_of(z):
        curves = rows.curves(column, levels=bins + 1)
        curves[:, 0] = 0  # the first bin is closed on both sides
        bars = turns @ (curves.diff(dim=-1) * bins)
        distances = torch.maximum(bars / (band.upper - 1), -bars / (1 - band.lower)).amax(-1)
        factor = max(factor, float(distances.quantile(level, interpolation="higher")))
    lower, upper = 1 - factor * (1 - band.lower), 1 + factor * (band.upper - 1)
    return band._replace(lower=max(lower, 0.0), upper=upper, coverage=level)


def deviation_draws(
    pits: Sequence[Tensor],
    rows: DependentRows,
    *,
    levels: int = LEVELS,
    draws: int = 2000,
    seed: int = 0,
) -> list[list[Tensor]]:
    r"""Draws of :math:`\hat F_Z - F_Z`, whether the forecast is calibrated or not.

    .. math:: D^* = \sqrt{\frac{B}{\chi^2_B}} \frac{1}{\sqrt B} \sum_{b=1}^{B} w_b \Lambda_b, \qquad
              w_b \sim N(0, 1),

    with projections around the empirical CDF: at one level this is :math:`t_B` times the standard
    error. The same weights serve all PITs, so draws of different ones are paired. For clusters of
    unequal size they vary more, by the degrees of freedom and the factor of `DependentRows.width`.

    Args:
        pits: each `(N, J)`.
        rows: which rows depend on each other.
        levels: number of levels.
        draws: their number.
        seed: of the weights.

    Returns:
        For each of the PITs and each of their components, `(draws, levels)`.
    """
    weights = rows.width[1] * _multipliers(rows.degrees, rows.width[0], draws, seed)
    return [
        [
            weights.to(z.device) @ rows.curves(column, levels=levels, centred=True)[1:]
            for column in z.double().unbind(-1)
        ]
        for z in pits
    ]


@lru_cache(maxsize=8)
def rotations(degrees: int, count: int, seed: int) -> Tensor:
    """The first unit vector, then random ones: `(count + 1, degrees + 1)`, float64, cached."""
    source = torch.Generator().manual_seed(seed)
    turns = torch.randn(count + 1, degrees + 1, generator=source, dtype=torch.float64)
    turns[0] = 0
    turns[0, 0] = 1
    return torch.nn.functional.normalize(turns, dim=-1)


def _device_of(z: Tensor | CountedUnits) -> torch.device:
    """Where the projections are; counts are on the CPU."""
    return z.device if isinstance(z, Tensor) else torch.device("cpu")


def _norms(replicates: Tensor, weights: Tensor) -> Tensor:
    """PCE and weighted square of each curve, `(2, R)`, up to constant factors."""
    return torch.stack([replicates.abs().sum(-1), replicates.square() @ weights])


def _smaller_p(norms: Tensor) -> float:
    """P-value of the first column by the smaller of two, corrected for the choice.

    All columns are exchangeable: each gets its p-values among all, and the smaller of them is
    ranked in the same way.
    """
    ordered = norms.sort(-1).values
    slack = 1 - 1e-12  # sums in another order must not turn a tie into a rejection
    below = torch.searchsorted(ordered, norms * slack)
    best = (norms.shape[-1] - below).min(0).values  # numbers that are at least as large
    return float((best <= best[0]).double().mean())


def _expected_size(curves: Tensor) -> float:
    """Mean over levels of E|N(0, v)|, with v from the projections without the first."""
    degrees = len(curves) - 1
    bias = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    deviation = curves[1:].square().mean(0).sqrt() / (bias * math.sqrt(2 / degrees))
    return float(deviation.mean() * math.sqrt(2 / math.pi))


@lru_cache(maxsize=8)
def _multipliers(count: int, degrees: int, draws: int, seed: int) -> Tensor:
    """Weights `(draws, count)` of equal variance, whose sums have t distributions."""
    source = torch.Generator().manual_seed(seed)
    normal = torch.randn(draws, count, generator=source, dtype=torch.float64)
    other = torch.randn(draws, count, generator=source, dtype=torch.float64)
    power = other[:, :degrees].square().mean(-1, keepdim=True)
    return normal / (count * power).sqrt()
