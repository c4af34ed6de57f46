"""PITs with gaps: NaN in rows that have not what a component needs.

Components then have different numbers of PITs. Each is judged by its own, with the floor, the null
and the band of so many. Where there are too many PITs to hold, their counts stand in their place.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

from prerank.calibration.bands import (
    HistogramBand,
    ReliabilityBand,
    histogram_band,
    reliability_band,
)
from prerank.calibration.curves import (
    PITHistogram,
    ReliabilityCurve,
    level_grid,
    pit_histogram,
    reliability_curve,
)
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.error import pce
from prerank.calibration.intervals import (
    ErrorLimits,
    limited,
    mean_limit_parts,
    mean_pce_limits,
    pce_limits,
)
from prerank.calibration.periods import PeriodMeans, period_means
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.rotations import dependent_band, dependent_histogram_band
from prerank.calibration.uniformity import component_p_values
from prerank.defaults import BAND_LEVEL, LEVELS
from prerank.errors import InputError

__all__ = [
    "available_rows",
    "band_of",
    "components_of",
    "curve_of",
    "errors_of",
    "fewest_pits",
    "gap_sizes",
    "histogram_band_of",
    "histogram_of",
    "limits_of",
    "mean_limits_of",
    "p_values_of",
    "per_component",
    "period_means_of",
    "used_rows",
    "without_gaps",
]

Found = TypeVar("Found", Tensor, tuple[Tensor, ...])

_SIDES = ("lower", "upper")


def gap_sizes(z: Tensor | PITCounts) -> list[int] | None:
    """Number of PITs `(N, J)` of each component; None where there are no gaps.

    Example:
        >>> gap_sizes(torch.tensor([[0.5, torch.nan], [0.1, 0.2]]))
        [2, 1]
    """
    if isinstance(z, PITCounts):
        return z.sizes if z.has_gaps else None
    if not bool(z.isnan().any()):
        return None
    return [int(size) for size in (~z.isnan()).sum(-2).tolist()]


def fewest_pits(several: Iterable[Tensor | PITCounts]) -> int:
    """Smallest number of PITs `(N, J)` of those components that have any.

    Example:
        >>> fewest_pits([torch.tensor([[0.5, torch.nan, torch.nan], [0.1, 0.2, torch.nan]])])
        1
    """
    parts = [
        torch.tensor(z.sizes) if isinstance(z, PITCounts) else (~z.isnan()).sum(-2).flatten().cpu()
        for z in several
    ]
    sizes = torch.cat(parts)
    return int(sizes[sizes > 0].min()) if bool(sizes.any()) else 1


def used_rows(z: Tensor | PITCounts) -> int:
    """Number of rows of PITs `(N, J)` in which a component has one."""
    return z.used if isinstance(z, PITCounts) else int((~z.isnan()).any(-1).sum())


def components_of(z: Tensor | PITCounts, places: list[int]) -> Tensor | PITCounts:
    """Some components of PITs `(N, J)`, by their numbers."""
    return z.of_components(places) if isinstance(z, PITCounts) else z[:, places]


def available_rows(z: Tensor) -> Tensor:
    """Numbers of the rows in which all of some components `(N, J)` have PITs."""
    return (~z.isnan().any(-1)).nonzero().flatten()


def without_gaps(
    z: Tensor, dependence: DependentRows | None, of: str = "a component"
) -> tuple[Tensor, DependentRows | None]:
    """The rows of PITs `(N, J)` in which all components have one, and their dependence.

    Args:
        z: PITs.
        dependence: of all rows.
        of: whose PITs these are, for the message if they are of too few times or clusters.
    """
    at = available_rows(z)
    if len(at) == len(z) or dependence is None:
        return z[at], dependence
    remedy = f"leave out a target with so few values, or {dependence.kind},"
    return z[at], dependence.of_rows(at, f" in the rows that have PITs of {of}", remedy)


def per_component(function: Callable[[Tensor], Found], z: Tensor) -> Found:
    """A function of PITs without gaps, of each component by its own rows.

    Args:
        function: from PITs `(n, J)` to values `(..., J)`, or a named tuple of such.
        z: PITs `(N, J)`, which may have gaps, or `(..., N, J)` without any.

    Returns:
        The same values; NaN for a component without PITs.

    Example:
        >>> z = torch.tensor([[0.5, torch.nan], [0.1, 0.2]])
        >>> per_component(lambda own: own.mean(0), z)
        tensor([0.3000, 0.2000])
    """
    if not bool(z.isnan().any()):
        return function(z)
    parts = []
    for column in z.split(1, -1):
        own = column[available_rows(column)]
        found = function(own if len(own) else torch.full_like(column[:1], 0.5))
        values = found if isinstance(found, tuple) else (found,)
        parts.append([one if len(own) else torch.full_like(one, torch.nan) for one in values])
    joined = [torch.cat(values, -1) for values in zip(*parts, strict=True)]
    return type(found)(*joined) if isinstance(found, tuple) else joined[0]


def errors_of(z: Tensor | PITCounts, *, levels: int) -> Tensor:
    """PCE of each component of PITs `(N, J)` that may have gaps, `(J,)`."""
    if isinstance(z, PITCounts):
        return z.errors()
    return per_component(lambda own: pce(own.double(), levels=levels), z)


def p_values_of(z: Tensor | PITCounts) -> Tensor:
    """`component_p_values` of PITs `(N, J)` that may have gaps."""
    return z.p_values() if isinstance(z, PITCounts) else per_component(component_p_values, z)


def limits_of(z: Tensor | PITCounts, *, levels: int, level: float = BAND_LEVEL) -> ErrorLimits:
    """`pce_limits` of PITs `(N, J)` that may have gaps."""
    if isinstance(z, PITCounts):
        return z.limits(level)
    found = per_component(lambda own: pce_limits(own, levels=levels, level=level), z)
    return ErrorLimits(*found)


def curve_of(z: Tensor | PITCounts, *, levels: int) -> ReliabilityCurve:
    """`reliability_curve` of PITs `(..., N, J)` that may have gaps."""
    if isinstance(z, PITCounts):
        return z.curve(levels)
    grid = level_grid(levels).to(z)
    observed = per_component(lambda own: reliability_curve(own, levels=levels).observed, z)
    return ReliabilityCurve(grid, observed)


def histogram_of(z: Tensor | PITCounts, *, bins: int) -> PITHistogram:
    """`pit_histogram` of PITs `(N, J)` that may have gaps."""
    if isinstance(z, PITCounts):
        return z.histogram(bins)
    density = per_component(lambda own: pit_histogram(own, bins=bins).density, z)
    return PITHistogram(level_grid(bins + 1).to(z), density)


def band_of(
    z: Tensor | PITCounts,
    dependence: DependentRows | None,
    *,
    level: float = BAND_LEVEL,
    levels: int = LEVELS,
) -> ReliabilityBand:
    """The band of the curves of PITs `(N, J)`, one for each component where they have gaps."""
    sizes = gap_sizes(z)
    if sizes is None:
        if dependence is None:
            return reliability_band(_row_number(z), level=level, levels=levels)
        return dependent_band(z, dependence, level=level, levels=levels)
    if dependence is None and len(set(sizes)) == 1:
        return reliability_band(max(sizes[0], 1), level=level, levels=levels)
    bands = []
    for j, size in enumerate(sizes):
        own, depend = _own_rows(z, j, dependence if size else None)
        if own is None or depend is None:
            bands.append(reliability_band(max(size, 1), level=level, levels=levels))
        else:
            bands.append(dependent_band(own, depend, level=level, levels=levels))
    lower, upper = (torch.stack([getattr(b, side) for b in bands], -1) for side in _SIDES)
    return ReliabilityBand(bands[0].levels, lower, upper, torch.tensor(sizes).clamp_min(1), level)


def histogram_band_of(
    z: Tensor | PITCounts,
    dependence: DependentRows | None,
    *,
    bins: int,
    level: float = BAND_LEVEL,
) -> HistogramBand:
    """The band of the histograms of PITs `(N, J)`, for each component where they have gaps."""
    sizes = gap_sizes(z)
    if sizes is None:
        if dependence is None:
            return histogram_band(_row_number(z), bins, level)
        return dependent_histogram_band(z, dependence, bins=bins, level=level)
    bands = []
    for j, size in enumerate(sizes):
        own, depend = _own_rows(z, j, dependence if size else None)
        if own is None or depend is None:
            bands.append(histogram_band(max(size, 1), bins, level))
        else:
            bands.append(dependent_histogram_band(own, depend, bins=bins, level=level))
    lower, upper = (torch.tensor([getattr(b, side) for b in bands]) for side in _SIDES)
    coverage = min(band.coverage for band in bands)
    n = torch.tensor(sizes).clamp_min(1)
    return HistogramBand(lower, upper, n, bins, level, coverage)


def _row_number(z: Tensor | PITCounts) -> int:
    return len(z) if isinstance(z, PITCounts) else z.shape[-2]


def _own_rows(
    z: Tensor | PITCounts, j: int, dependence: DependentRows | None
) -> tuple[Tensor | None, DependentRows | None]:
    """The PITs of a component with gaps, and their dependence; nothing of counts."""
    return (None, None) if isinstance(z, PITCounts) else without_gaps(z[:, [j]], dependence)


def period_means_of(
    z: Tensor,
    periods: tuple[tuple[str, ...], Tensor],
    dependence: DependentRows | None,
    *,
    level: float,
) -> PeriodMeans:
    """`period_means` of PITs `(N, J)` that may have gaps, in the periods that have any.

    Each component is judged by its own rows, in the periods in which it has some.
    """
    if gap_sizes(z) is None:
        return period_means(z, periods, dependence, level=level)
    names, codes = periods
    shape = len(names), z.shape[1]
    counts = torch.zeros(shape, dtype=torch.int64)
    means = torch.full((2, *shape), torch.nan, dtype=torch.float64)
    reach = torch.zeros_like(means)
    for j, column in enumerate(z.cpu().split(1, -1)):
        at = available_rows(column)
        if not len(at):
            continue
        own, depend = without_gaps(column, dependence)
        places, numbers = codes[at].unique(return_inverse=True)
        kept = tuple(names[k] for k in places.tolist())
        found = period_means(own, (kept, numbers), depend, level=level)
        counts[places, j] = found.counts
        means[:, places, j] = torch.stack([found.location, found.spread])[..., 0]
        reach[:, places, j] = found.reach[..., 0]
    some = counts.any(1).nonzero().flatten()
    if not len(some):
        raise InputError("there are no PITs: values are missing in every row")
    kept = tuple(names[k] for k in some.tolist())
    location, spread = means[:, some]
    return PeriodMeans(kept, counts[some], location, spread, reach[:, some], float(level))


def mean_limits_of(z: Tensor | PITCounts, *, levels: int) -> ErrorLimits:
    """`mean_pce_limits` of PITs `(N, J)` that may have gaps."""
    if isinstance(z, PITCounts):
        return z.mean_limits()
    if gap_sizes(z) is None:
        return mean_pce_limits(z, levels=levels)
    if z.shape[-1] == 1:
        return mean_pce_limits(z[available_rows(z)], levels=levels)
    parts = per_component(lambda own: mean_limit_parts(own, levels=levels), z)
    error, area, above = parts.nanmean(-1).unbind()
    return limited(error, area + above, above)
