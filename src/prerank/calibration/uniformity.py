r"""Are PITs uniform? Two statistics of the counts at levels that are dense in both tails.

At levels :math:`\alpha` that are evenly spaced in :math:`\log(\alpha / (1 - \alpha))`, the
statistic of Anderson and Darling is a plain sum, and that of Berk and Jones looks at the worst
level:

.. math:: A = n \sum_\alpha (\hat F_Z(\alpha) - \alpha)^2, \qquad
          K = n \max_\alpha \Big( \hat F \log \frac{\hat F}{\alpha}
              + (1 - \hat F) \log \frac{1 - \hat F}{1 - \alpha} \Big).

A sees a bias, K a wrong spread and wrong tails, however far out. The p-value comes from the smaller
of their two p-values, which is ranked among the same smaller one of replicates: so its size is
exact. Several components are judged by the mean of their A and by the smallest of their p-values,
so that neither many small faults nor a single large one is lost.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prerank.calibration.nulls import key_counts, stand_in_keys
from prerank.defaults import MANY_ROWS, NULL_REPLICATES
from prerank.numerics.buckets import Buckets

__all__ = [
    "cell_statistics",
    "component_p_values",
    "component_statistics",
    "counted_p_values",
    "joint_p_value",
    "smallest_rank",
    "tail_buckets",
    "tail_cells",
    "tail_levels",
]

_MIDDLE, _TAIL = 64, 8  # levels between 1/(n + 1) and n/(n + 1), and beyond on either side
_FURTHEST, _FINEST = 1e-4, 1e-7  # last level times n, and the least that float32 tells from 1
_ROUNDING = 1e-9


class _Null(NamedTuple):
    """Sorted replicates of A, of K, and of the smaller of their p-values."""

    area: Tensor
    peak: Tensor
    least: Tensor


def tail_levels(n: int) -> Tensor:
    """Levels for n PITs, dense in both tails, `(L,)` in float64.

    More than 65,536 PITs have the levels of so many, which float32 barely tells from 0 and 1.

    Example:
        >>> levels = tail_levels(300)
        >>> len(levels), bool((levels + levels.flip(0) - 1).abs().max() < 1e-12)
        (80, True)
    """
    n = min(n, MANY_ROWS)
    top = math.log(n + 1)
    lower = torch.sigmoid(torch.linspace(-top, top, _MIDDLE, dtype=torch.float64)[: _MIDDLE // 2])
    last = max(_FURTHEST / n, min(_FINEST, 0.5 * float(lower[0])))
    tail = torch.logspace(
        math.log10(last), math.log10(float(lower[0])), _TAIL + 1, dtype=torch.float64
    )
    lower = torch.cat([tail[:-1], lower])
    return torch.cat([lower, 1 - lower.flip(0)])


def tail_cells(z: Tensor) -> Tensor:
    """Number of the cell between `tail_levels` that each PIT of `(..., N, J)` lies in."""
    return tail_buckets(min(z.shape[-2], MANY_ROWS))(z)


@lru_cache(maxsize=16)
def tail_buckets(n: int) -> Buckets:
    """The cells between `tail_levels`."""
    return Buckets(tail_levels(n))


def component_p_values(z: Tensor) -> Tensor:
    """P-value of each component of PITs `(N, J)` by itself, `(J,)`: that of n uniforms.

    Example:
        >>> z = torch.rand(300, 1, generator=torch.Generator().manual_seed(0))
        >>> z = torch.cat([z, 0.5 + 0.8 * (z - 0.5)], -1)
        >>> fine, wide = component_p_values(z).tolist()
        >>> fine > 0.05, wide < 0.001
        (True, True)
    """
    return counted_p_values(_component_counts(z), len(z))


def counted_p_values(counts: Tensor, levels_of: int) -> Tensor:
    """`component_p_values` from counts of PITs.

    Args:
        counts: of the cells between levels, `(J, L + 1)`; components may have different numbers.
        levels_of: the levels are `tail_levels` of so many PITs.

    Returns:
        `(J,)`, NaN for a component without PITs.
    """
    found = torch.full((len(counts),), torch.nan, dtype=torch.float32)
    sizes = counts.sum(-1)
    for n in sizes[sizes > 0].unique().tolist():
        at = sizes == n
        least = _least(*_statistics(counts[at], n, levels_of), n, levels_of)
        null = _null(n, min(levels_of, MANY_ROWS)).least
        found[at] = (1 + torch.searchsorted(null, least + _ROUNDING)) / (len(null) + 1)
    return found


def component_statistics(z: Tensor) -> tuple[Tensor, Tensor]:
    """A and K of each component of PITs `(N, J)`, each `(J,)`."""
    return _statistics(_component_counts(z), len(z), len(z))


def _component_counts(z: Tensor) -> Tensor:
    """Number of PITs `(N, J)` between `tail_levels`, `(J, L + 1)`."""
    n, components = z.shape
    n_cells = len(tail_levels(n)) + 1
    keys = tail_cells(z.cpu()) + torch.arange(components) * n_cells
    return key_counts(keys.unsqueeze(0), n_cells)[0]


def cell_statistics(counts: Tensor, levels_of: int) -> tuple[Tensor, Tensor]:
    """Mean of A over the components, and the smallest of their p-values, from counts of PITs.

    Args:
        counts: of the cells between levels, `(b, J, L + 1)`; the sums over these, which components
            with gaps have different, are the same for all b.
        levels_of: the levels are `tail_levels` of so many PITs.

    Returns:
        `(b,)` each. The p-values are among replicates of the largest number of PITs, which brings
        all components to one scale.
    """
    sizes = counts[0].sum(-1)
    parts = [_statistics(counts[:, sizes == n], int(n), levels_of) for n in sizes.unique() if n > 0]
    area, peak = (torch.cat(one, -1) for one in zip(*parts, strict=True))
    return area.mean(-1), _least(area, peak, int(sizes.max()), levels_of).amin(-1)


def joint_p_value(
    z: Tensor, null_pits: Tensor, *, n_null: int, generator: torch.Generator | int | None = None
) -> float:
    """P-value of several components together, by members of the pools in the observation's place.

    Args:
        z: PITs of the observations, `(N, J)`, NaN in gaps.
        null_pits: PITs of the other members of each pool, `(R, N, J)`, with the same gaps.
        n_null: number of replicates.
        generator: source of the choices.

    Returns:
        At least `1 / (n_null + 1)`, and at least `2 / (n_null + 1)` where only one of the two
        statistics is extreme.
    """
    n, components = z.shape
    n_cells = len(tail_levels(n)) + 2  # the last one for gaps
    cells = torch.cat([_cells_and_gaps(z.unsqueeze(0)), _cells_and_gaps(null_pits)])
    own = cells[:1] + torch.arange(components, device=cells.device) * n_cells
    drawn = stand_in_keys(cells, n_cells=n_cells, n_null=n_null, generator=generator)
    mean, worst = [], []
    for keys in (own, *drawn):
        average, smallest = cell_statistics(key_counts(keys, n_cells)[..., :-1].cpu(), n)
        mean.append(average)
        worst.append(smallest)
    return smallest_rank(torch.stack([-torch.cat(mean), torch.cat(worst)]))


def _cells_and_gaps(z: Tensor) -> Tensor:
    """`tail_cells`, and one more cell for gaps."""
    gaps = z.isnan()
    return tail_cells(z.masked_fill(gaps, 0)).masked_fill(gaps, len(tail_levels(z.shape[-2])) + 1)


def smallest_rank(values: Tensor) -> float:
    """Exact p-value of the first of B + 1 exchangeable columns, from several statistics.

    The statistics `(K, B + 1)`, small where extreme, become ranks; columns are compared by their
    smallest rank, and by the sum of all where these are equal. The p-value is the share of columns
    that are at least as extreme as the first.

    Example:
        >>> smallest_rank(torch.tensor([[0.1, 0.5, 0.9, 0.7], [0.2, 0.4, 0.6, 0.8]]))
        0.25
    """
    ordered = values.sort(-1).values
    ranks = torch.searchsorted(ordered, values + _ROUNDING * values.abs()).double()
    keys = ranks.amin(0) + ranks.mean(0) / (4 * values.shape[-1])
    return float((keys <= keys[0]).double().mean())


def _statistics(counts: Tensor, n: int, levels_of: int) -> tuple[Tensor, Tensor]:
    """A and K of counts `(..., L + 1)` of n PITs between the levels of `levels_of` PITs."""
    levels = tail_levels(levels_of)
    below = counts.cumsum(-1)[..., :-1]
    middle = slice(_TAIL, len(levels) - _TAIL)
    area = (below[..., middle] / n - levels[middle]).square_().sum(-1) * n
    peak = _entropies(n)[below]
    peak = peak.sub_(below * torch.logit(levels)).sub_(n * torch.log1p(-levels)).amax(-1)
    return area, peak


@lru_cache(maxsize=4)
def _entropies(n: int) -> Tensor:
    k = torch.arange(n + 1, dtype=torch.float64)
    return torch.xlogy(k, k / n) + torch.xlogy(n - k, 1 - k / n)


def _least(area: Tensor, peak: Tensor, n: int, levels_of: int) -> Tensor:
    """The smaller of the p-values of A and K for a single component."""
    null = _null(n, min(levels_of, MANY_ROWS))
    return torch.minimum(_tail_share(area, null.area), _tail_share(peak, null.peak))


def _tail_share(values: Tensor, null: Tensor) -> Tensor:
    at = torch.searchsorted(null, values - _ROUNDING)
    return (1 + len(null) - at) / (len(null) + 1)


@lru_cache(maxsize=64)
def _null(n: int, levels_of: int) -> _Null:
    levels = tail_levels(levels_of).numpy()
    shares = np.diff(levels, prepend=0, append=1)
    rng = np.random.default_rng([n, len(levels)])
    draws = rng.multinomial(n, shares / shares.sum(), NULL_REPLICATES)
    parts = [_statistics(torch.from_numpy(part), n, levels_of) for part in np.array_split(draws, 8)]
    area, peak = (torch.cat(one) for one in zip(*parts, strict=True))
    ordered = area.sort().values, peak.sort().values
    # Shares of replicates leave out the observation, so they are smaller: the p-value is valid.
    shares_of = [
        (len(area) - torch.searchsorted(one, of - _ROUNDING)) / (len(area) + 1)
        for of, one in zip((area, peak), ordered, strict=True)
    ]
    return _Null(*ordered, torch.minimum(*shares_of).sort().values)
