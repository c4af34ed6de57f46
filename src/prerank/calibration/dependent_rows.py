r"""Evidence from rows that depend on each other: in time, or within clusters.

Let :math:`s_u(\alpha) = \sum_{i \in u} (1\{Z_i \le \alpha\} - \alpha)` be the deviation of unit u
(all rows of one time, or one cluster), for U units in order. Its cosine projections

.. math:: \Lambda_b(\alpha) = \frac{\sqrt 2}{n} \sum_{u=1}^{U}
          \cos\Big(\pi b \frac{u - 1/2}{U}\Big) s_u(\alpha), \qquad b = 1, \dots, B,

have about the variance of :math:`\Lambda_0 = \hat F_Z(\alpha) - \alpha` and are independent of it
and of each other: of a stationary series where B is small beside U (Müller 2007), and of
independent clusters for B = U - 1. So :math:`(\Lambda_0, \dots, \Lambda_B)` of a calibrated
forecast are B + 1 independent copies of one Gaussian process over levels and components. Their
distribution does not change under rotations, and

.. math:: \Big\| \sum_{b=0}^{B} u_b \Lambda_b \Big\|, \qquad u \text{ uniform on the sphere},

are replicates that are exchangeable with the observed :math:`\|\Lambda_0\|`, whatever the norm. For
a single level this is the t-test with B degrees of freedom. No variance is inverted, so any number
of levels and components is tested at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.bands import ReliabilityBand, reliability_band
from prerank.calibration.curves import level_grid, level_index
from prerank.defaults import BAND_LEVEL, LEVELS
from prerank.errors import InputError
from prerank.inputs import as_labels, as_ranks

__all__ = [
    "DependentEvidence",
    "DependentRows",
    "dependent_band",
    "dependent_evidence",
    "dependent_margin",
    "deviation_draws",
    "row_units",
]

ROTATIONS = 10_000
"""Replicates of a diagnosis: as many as the correction over many components needs."""

FEWEST_UNITS = 10
"""Fewest different times or clusters for which there are p-values."""

_MOST_COSINES = 16  # of a series: more are biased by its dependence, fewer have less power
_MOST_CELLS = {"time": 2048, "cluster": 256, "row": 256}  # units are added up to so many


@dataclass(frozen=True, eq=False)
class DependentRows:
    """Which rows may depend on each other.

    Attributes:
        kind: `"time"` where rows of equal and of neighbouring times may depend on each other,
            `"cluster"` where those of one cluster may, `"row"` where none do.
        units: `(N,)`, number of the time, in order, or of the cluster of each row, from 0.

    Example:
        >>> rows = row_units(["2024-01-02", "2024-01-01"] * 50, None, 100)
        Traceback (most recent call last):
        prerank.errors.InputError: time has 2 different values, where 10 at least are needed: ...
        >>> rows = row_units(range(500), None, 500)
        >>> rows.count, rows.degrees, rows.assumption
        (500, 16, 'rows in time order, 500 times, 16 degrees of freedom')
    """

    kind: Literal["time", "cluster", "row"]
    units: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """Number of units."""
        return int(self.units.max()) + 1

    @cached_property
    def cells(self) -> Tensor:
        """`(N,)`, units added up where there are many: neighbours in time, any clusters."""
        most, count = _MOST_CELLS[self.kind], self.count
        if count <= most:
            return torch.from_numpy(self.units)
        folded = self.units * most // count if self.kind == "time" else self.units % most
        return torch.from_numpy(folded)

    @property
    def degrees(self) -> int:
        """B, the number of cosines: for a series .4 U^(2/3), 16 at most, for clusters U - 1."""
        if self.kind == "time":
            return max(2, min(_MOST_COSINES, int(0.4 * self.count ** (2 / 3))))
        return min(self.count, _MOST_CELLS[self.kind]) - 1

    @property
    def assumption(self) -> str:
        """What is assumed, in words."""
        if self.kind == "row":
            return "independent rows"
        start = "rows in time order" if self.kind == "time" else "rows in clusters"
        return f"{start}, {self.count:,} {self.kind}s, {self.degrees} degrees of freedom"

    @property
    def method(self) -> str:
        """The assumption in short, for a table."""
        return "time order" if self.kind == "time" else "clusters"

    def of_rows(self, rows: Tensor, place: str = "") -> "DependentRows":
        """Some of the rows, by their numbers.

        Args:
            rows: their numbers.
            place: where they are, for the message if they are of too few units.
        """
        chosen = self.units[rows.cpu().numpy()]
        units = np.unique(chosen, return_inverse=True)[1].astype(np.int64)
        _check_count(self.kind, units, place)
        return DependentRows(self.kind, units)

    def projections(self, values: Tensor, *, total: float | None = None) -> Tensor:
        """Cosine projections of values of the rows, `(N, ...)`, as `(B + 1, ...)`.

        Args:
            values: their first axis is that of the rows.
            total: divisor of the sums; the number of rows by default.
        """
        cells = int(self.cells.max()) + 1
        sums = values.new_zeros(cells, *values.shape[1:])
        sums.index_add_(0, self.cells.to(values.device), values)
        cosines = _cosines(cells, self.degrees).to(values)
        return torch.tensordot(cosines, sums, 1) / (len(values) if total is None else total)

    def curves(self, z: Tensor, *, levels: int = LEVELS, centred: bool = False) -> Tensor:
        """Projections of the deviations of one component's PITs, `(N,)`, as `(B + 1, L)`.

        Args:
            z: PITs.
            levels: number of levels.
            centred: around the empirical CDF; the first row stays the deviation from uniform.
        """
        cells, n = self.cells.to(z.device), len(z)
        size = int(cells.max()) + 1
        keys = cells * levels + level_index(z, levels)
        counts = torch.bincount(keys, minlength=size * levels).reshape(size, levels)
        counts = counts.double().cumsum(-1)
        grid = level_grid(levels).to(z.device)
        observed = counts.sum(0) / n
        centre = observed if centred else grid
        rows = torch.bincount(cells, minlength=size).double()
        deviations = counts - rows.unsqueeze(-1) * centre
        projected = _cosines(size, self.degrees).to(deviations) @ deviations / n
        projected[0] = observed - grid
        return projected


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


def row_units(time: object, cluster: object, n: int) -> DependentRows | None:
    """Read the arguments `time` and `cluster` of a diagnosis; None where both are left out.

    Args:
        time: of each row: numbers or dates, also as text.
        cluster: label of each row.
        n: number of rows.
    """
    if time is not None and cluster is not None:
        raise InputError(
            "time and cluster exclude each other. time allows rows of the same and of neighbouring "
            "times to depend on each other, whatever they have in common besides; cluster allows "
            "any dependence within a cluster, and none between clusters: give the one that holds"
        )
    if time is not None:
        units = as_ranks(as_labels(time, "time", n), "time")
        return _check_count("time", units)
    if cluster is not None:
        labels = as_labels(cluster, "cluster", n).astype(str)
        return _check_count("cluster", np.unique(labels, return_inverse=True)[1].astype(np.int64))
    return None


def dependent_evidence(
    z: Tensor,
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
        z: PITs `(N, J)`.
        rows: which of them depend on each other.
        levels: as in `pce`.
        n_null: number of rotations.
        seed: of the rotations.

    Example:
        >>> noise = torch.randn(500, generator=torch.Generator().manual_seed(0)).tolist()
        >>> series = [noise[0]]
        >>> for one in noise[1:]:
        ...     series.append(0.7 * series[-1] + 0.714 * one)
        >>> z = torch.special.ndtr(torch.tensor(series)).unsqueeze(-1)
        >>> found = dependent_evidence(z, row_units(range(500), None, 500))
        >>> bool(found.p_values[0] > 0.05), round(float(found.floors[0]), 3)
        (True, 0.029)
    """
    turns = _rotations(rows.degrees, n_null, seed).to(z.device)
    grid = level_grid(levels)[1:-1].to(z.device)
    weights = 1 / (grid * (1 - grid))
    together = torch.zeros(2, len(turns), dtype=torch.float64, device=z.device)
    floors, p_values = [], []
    for column in z.double().unbind(-1):
        curves = rows.curves(column, levels=levels)[:, 1:-1]
        norms = _norms(turns @ curves, weights)
        p_values.append(_smaller_p(norms))
        floors.append(_expected_size(curves) * (levels - 2) / levels)
        together += norms
    overall = p_values[0] if len(p_values) == 1 else _smaller_p(together)
    return DependentEvidence(np.array(floors), np.array(p_values), overall)


def dependent_band(
    z: Tensor, rows: DependentRows, *, level: float = BAND_LEVEL, levels: int = LEVELS
) -> ReliabilityBand:
    """Simultaneous band for the curve of a calibrated forecast whose rows depend on each other.

    The band of independent rows, widened by one factor: rotations of a component's projections
    leave the wider band with probability 1 - `level`. So its curve leaves the band where the test
    by the largest distance rejects. Of several components the largest factor counts.

    Args:
        z: PITs `(N, J)`.
        rows: which of them depend on each other.
        level: probability that the curve of a component stays inside.
        levels: number of levels.

    Example:
        >>> z = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
        >>> wide = dependent_band(z, row_units([k // 8 for k in range(400)], None, 400))
        >>> bool(wide.upper[50] > 0.5), wide.level
        (True, 0.95)
    """
    band = reliability_band(len(z), level=level, levels=levels)
    widths = torch.maximum(band.upper - band.levels, band.levels - band.lower)[1:-1].to(z.device)
    turns = _rotations(rows.degrees, ROTATIONS, 0).to(z.device)
    factor = 0.0
    for column in z.double().unbind(-1):
        curves = rows.curves(column, levels=levels)[:, 1:-1] / widths
        distances = (turns @ curves).abs().amax(-1)
        factor = max(factor, float(distances.quantile(level, interpolation="higher")))
    inner = torch.zeros_like(band.levels)
    inner[1:-1] = factor * widths.cpu()
    lower, upper = (band.levels - inner).clamp_min(0), (band.levels + inner).clamp_max(1)
    return band._replace(lower=lower, upper=upper)


def dependent_margin(
    z: Tensor, rows: DependentRows, *, level: float = BAND_LEVEL, levels: int = LEVELS
) -> float:
    r"""Distance between the mean PCE of PITs and that of infinitely many rows like these.

    .. math:: \Big| \int |\hat F_Z - \alpha| - \int |F_Z - \alpha| \Big|
              \le \int |\hat F_Z - F_Z|,

    so the quantile of the right-hand side over `deviation_draws` bounds the left-hand side, for
    calibrated forecasts and for others.

    Args:
        z: PITs `(N, J)`.
        rows: which of them depend on each other.
        level: confidence.
        levels: number of levels.

    Example:
        >>> z = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
        >>> round(dependent_margin(z, row_units(range(400), None, 400)), 2)
        0.03
    """
    drawn = deviation_draws([z], rows, levels=levels)[0]
    sizes = torch.stack([part.abs().mean(-1) for part in drawn]).mean(0)
    return float(sizes.quantile(level))


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
    error. The same weights serve all PITs, so draws of different ones are paired.

    Args:
        pits: each `(N, J)`.
        rows: which rows depend on each other.
        levels: number of levels.
        draws: their number.
        seed: of the weights.

    Returns:
        For each of the PITs and each of their components, `(draws, levels)`.
    """
    weights = _multipliers(rows.degrees, draws, seed)
    return [
        [
            weights.to(z.device) @ rows.curves(column, levels=levels, centred=True)[1:]
            for column in z.double().unbind(-1)
        ]
        for z in pits
    ]


def _check_count(
    kind: Literal["time", "cluster", "row"], units: npt.NDArray[np.int64], place: str = ""
) -> DependentRows:
    count = len(np.unique(units))
    if count < FEWEST_UNITS:
        raise InputError(
            f"{kind} has {count} different values{place}, where {FEWEST_UNITS} at least are "
            "needed: with fewer, p-values would say little; leave it out, and judge by the size "
            "of the excess"
        )
    return DependentRows(kind, units)


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


@lru_cache(maxsize=32)
def _cosines(cells: int, degrees: int) -> Tensor:
    """`(degrees + 1, cells)`, the first row of ones."""
    place = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    order = torch.arange(degrees + 1, dtype=torch.float64).unsqueeze(-1)
    waves = math.sqrt(2) * torch.cos(math.pi * order * place)
    waves[0] = 1
    return waves


@lru_cache(maxsize=8)
def _rotations(degrees: int, count: int, seed: int) -> Tensor:
    """The first unit vector, then random ones: `(count + 1, degrees + 1)`."""
    source = torch.Generator().manual_seed(seed)
    turns = torch.randn(count + 1, degrees + 1, generator=source, dtype=torch.float64)
    turns[0] = 0
    turns[0, 0] = 1
    return torch.nn.functional.normalize(turns, dim=-1)


@lru_cache(maxsize=8)
def _multipliers(degrees: int, count: int, seed: int) -> Tensor:
    """Weights whose sums have t distributions, `(count, degrees)`."""
    source = torch.Generator().manual_seed(seed)
    normal = torch.randn(count, degrees, generator=source, dtype=torch.float64)
    other = torch.randn(count, degrees, generator=source, dtype=torch.float64)
    return normal / other.square().sum(-1, keepdim=True).sqrt()
