"""Where among the inputs PITs behave differently: a search, and what its permutations say."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.axes import Condition, InputColumn
from prerank.calibration.dependent_rows import FEWEST_UNITS, DependentRows
from prerank.calibration.nulls import p_value
from prerank.calibration.rearrangements import rearrangements
from prerank.calibration.scan import Grid, Scan
from prerank.errors import InputError
from prerank.numerics.polynomials import legendre

__all__ = ["Region", "RegionSearch", "Score", "find_regions", "pit_scores"]

_BINS, _PAIR_BINS = 40, 6  # of one input, and of each of two
# Where the bounds are found, once the inputs are known: multiples, so that no box is lost.
_FINE_BINS, _FINE_PAIR_BINS = 120, 24
_LEAST, _LEAST_SHARE = 20, 0.02  # rows of a region
FEWEST_ROWS = 2 * _LEAST
"""Fewest rows that can be searched for regions."""

_MOST_PAIRED = 30  # inputs of which all pairs are searched
_ROUNDING = 1e-4  # of statistics, so that equal ones count as equal
# Means of the scores of degree 2 and 4 where the truth is Student's t with 3 degrees of freedom,
# and the forecast a normal of the same variance.
_HEAVY_TAILS = (-0.342, 0.189)
_LEFT = 0.05  # weight from which on a row is removed with its region


@dataclass(frozen=True)
class Score:
    """One bounded score of a row: a polynomial of one PIT.

    Attributes:
        prerank: label.
        component: its number.
        degree: 1 for location, 2 for spread, 3 for skew, 4 for tails; 5 for the combination of
            2 and 4 that heavy tails at the right spread have.
    """

    prerank: str
    component: int
    degree: int


@dataclass(frozen=True, eq=False)
class Region:
    """A box of inputs in which PITs differ from those of the other rows.

    Attributes:
        conditions: one for each input that bounds it.
        rows: numbers of its rows, `(m,)`.
        p_value: of the search that found it, and at least that of the region before.
        z: studentised difference of each score, in the order of the scores.
        inside: mean of each score in the region; 0 where PITs are uniform.
        outside: mean of each score over the rows that were searched and lie outside.
        peak: number of the score that stands out most.
        weights: how much each row belongs to it, from 0 to 1, `(N,)`.
    """

    conditions: tuple[Condition, ...]
    rows: npt.NDArray[np.int64]
    p_value: float
    z: Tensor
    inside: Tensor
    outside: Tensor
    peak: int
    weights: Tensor

    def __str__(self) -> str:
        """The conditions, in words."""
        return " and ".join(map(str, self.conditions))


@dataclass(frozen=True, eq=False)
class RegionSearch:
    """What a search found.

    Attributes:
        p_value: that PITs and inputs are independent.
        scores: that were looked at.
        regions: those with evidence, the clearest first.
        candidate: what stands out most, whether or not there is evidence; None where no region
            has enough rows.
    """

    p_value: float
    scores: tuple[Score, ...]
    regions: tuple[Region, ...]
    candidate: Region | None


def pit_scores(pits: Mapping[str, Tensor]) -> tuple[tuple[Score, ...], Tensor]:
    """Scores of all PITs: five of each target, two of each component of other pre-ranks.

    Each score looks at one PIT. A function of several would not be independent of the inputs for a
    calibrated forecast whose dependence varies over them.

    Args:
        pits: `(N, J)` by the label of the pre-rank.

    Returns:
        Names and values `(N, K)`.
    """
    scores, values = [], []
    for label, z in pits.items():
        polynomials = legendre(2 * z.detach().double().cpu() - 1, 4 if label == "marginal" else 2)
        by_degree = list(polynomials.unbind(-1))
        if label == "marginal":
            second, fourth = _HEAVY_TAILS
            tails = second * by_degree[1] + fourth * by_degree[3]
            by_degree.append(tails / math.hypot(second, fourth))
        for degree, value in enumerate(by_degree, 1):
            scores += [Score(label, j, degree) for j in range(z.shape[-1])]
            values.append(value)
    return tuple(scores), torch.cat(values, -1)


def find_regions(
    pits: Mapping[str, Tensor],
    columns: Sequence[InputColumn],
    *,
    n_null: int,
    alpha: float,
    most: int,
    dependence: DependentRows | None = None,
    generator: torch.Generator | None = None,
) -> RegionSearch:
    r"""Search boxes of one or two inputs for scores of PITs that differ, and test the largest.

    The statistic is that of `prerank.calibration.scan`. Its null is the same search after the
    scores were rearranged against the inputs (see `prerank.calibration.rearrangements`), hence
    valid whatever is searched:

    .. math:: p = \frac{1 + \#\{b : \max_{R, k} T_k^{(b)}(R) \ge \max_{R, k} T_k(R)\}}{B + 1}

    The rows of a region with :math:`p \le \alpha` are removed, and the others searched again.

    Args:
        pits: `(N, J)` by the label of the pre-rank.
        columns: the inputs.
        n_null: number of permutations; of times, of shifts at most.
        alpha: level of the test.
        most: largest number of regions.
        dependence: which rows depend on each other; none by default.
        generator: source of the permutations.

    Example:
        >>> from prerank.calibration.axes import input_columns
        >>> g = torch.Generator().manual_seed(0)
        >>> x, z = torch.rand(500, 2, generator=g), torch.rand(500, 1, generator=g)
        >>> z[x[:, 1] > 0.8] **= 3
        >>> columns = input_columns(x, ["wind", "humidity"], 500)
        >>> search = find_regions({"marginal": z}, columns, n_null=99, alpha=0.05, most=1)
        >>> search.p_value, str(search.regions[0])
        (0.01, 'humidity above 0.79...')
    """
    _check_resolution(n_null, alpha, dependence)
    names, values = pit_scores(pits)
    rows = np.arange(len(values))
    regions: list[Region] = []
    candidate, first_p = None, 1.0
    while len(regions) < most:
        found = _search(values, columns, rows, n_null, dependence, generator)
        if found is None:
            break
        if candidate is None:
            candidate, first_p = found, found.p_value
        if found.p_value > alpha:
            break
        earlier = regions[-1].p_value if regions else 0.0
        regions.append(replace(found, p_value=max(earlier, found.p_value)))
        belongs = (found.weights >= _LEFT).numpy()
        belongs[found.rows] = True
        rows = rows[~belongs[rows]]
    return RegionSearch(first_p, names, tuple(regions), candidate)


def _check_resolution(n_null: int, alpha: float, dependence: DependentRows | None) -> None:
    """Refuse a search whose smallest p-value is above its level: it could find nothing."""
    shifts = math.inf
    if dependence is not None and dependence.kind == "time":
        shifts = dependence.count - 1
    smallest = 1 / (1 + min(n_null, shifts))
    if smallest > alpha:
        number = "n_null" if n_null <= shifts else "the number of different times"
        raise InputError(
            f"the smallest p-value is {smallest:.3f}, above alpha = {alpha:g}: raise {number}, or "
            "alpha"
        )


def _search(
    values: Tensor,
    columns: Sequence[InputColumn],
    rows: npt.NDArray[np.int64],
    n_null: int,
    dependence: DependentRows | None,
    generator: torch.Generator | None,
) -> Region | None:
    """The box that stands out most among some of the rows, with its p-value."""
    n, least = len(rows), max(_LEAST, math.ceil(_LEAST_SHARE * len(rows)))
    if n < 2 * least:
        return None
    if dependence is not None:
        dependence = replace(dependence, units=dependence.units[rows])
        if len(np.unique(dependence.units)) < FEWEST_UNITS:
            return None
    scores = _standardised(values[torch.from_numpy(rows)])
    grids = [grid for grid in _grids(columns, rows, least) if len(grid.kept)]
    if not grids:
        return None
    scan = Scan(grids)
    peak = scan.peak(scores)
    orders = rearrangements(n, n_null, dependence, generator)
    null = scan.null(_rearranged(scores, order) for order in orders)
    p = p_value(peak.statistic - _ROUNDING, null.numpy())
    return _located(grids[peak.grid], values, scores, rows, least, p)


def _grids(
    columns: Sequence[InputColumn], rows: npt.NDArray[np.int64], least: int
) -> Iterator[Grid]:
    varying = [column for column in columns if not column.is_constant]
    size = len(varying)
    for column in varying:
        axes = [column.cut(_BINS, rows)]
        yield Grid(axes, n=len(rows), least=least, penalty=math.log(size))
    if size <= _MOST_PAIRED:
        coarse = [column.cut(_PAIR_BINS, rows) for column in varying]
        for pair in combinations(coarse, 2):
            penalty = math.log(math.comb(size, 2))
            yield Grid(pair, n=len(rows), least=least, penalty=penalty)


def _located(
    coarse: Grid,
    values: Tensor,
    scores: Tensor,
    rows: npt.NDArray[np.int64],
    least: int,
    p: float,
) -> Region:
    """The best box of the same inputs on a finer grid, and how it differs."""
    bins = _FINE_BINS if len(coarse.axes) == 1 else _FINE_PAIR_BINS
    axes = [axis.column.cut(bins, rows) for axis in coarse.axes]
    scan = Scan([Grid(axes, n=len(rows), least=least, penalty=0.0)])
    peak = scan.peak(scores)
    member = np.ones(len(rows), dtype=bool)
    for axis, (start, stop) in zip(axes, peak.ranges, strict=True):
        member &= (axis.codes >= start) & (axis.codes < stop)
    here = torch.from_numpy(rows[member])
    there = torch.from_numpy(rows[~member])
    m, n = len(here), len(rows)
    z = scores[torch.from_numpy(member)].double().sum(0) / math.sqrt(m * (n - m) / (n - 1))
    weights = torch.zeros(len(values), dtype=torch.float64)
    weights[torch.from_numpy(rows)] = scan.weights(scores).double()
    conditions = (axis.condition(*side) for axis, side in zip(axes, peak.ranges, strict=True))
    return Region(
        conditions=tuple(condition for condition in conditions if condition is not None),
        rows=rows[member],
        p_value=p,
        z=z,
        inside=values[here].mean(0),
        outside=values[there].mean(0),
        peak=peak.score,
        weights=weights,
    )


def _rearranged(scores: Tensor, order: Tensor) -> Tensor:
    """Scores of other rows; standardised anew where some rows are taken more often than others."""
    several = bool((order.bincount(minlength=len(order)) != 1).any())
    return _standardised(scores[order]) if several else scores[order]


def _standardised(values: Tensor) -> Tensor:
    """Scores of mean 0 and variance 1; a constant one becomes 0."""
    centred = values - values.mean(0)
    spread = centred.square().mean(0).sqrt()
    return torch.where(spread > 1e-9, centred / spread.clamp_min(1e-9), 0.0).float()
