"""Every pre-rank of the literature on ensembles equals its definition, by slow and obvious loops.

The definitions are those of Gneiting et al. (2008), Thorarinsdottir et al. (2016), Smith and Hansen
(2004), Allen et al. (2024) and Lemos et al. (2023), as in the R package MultivCalibration, but for
two points that leave the ranks alone or repair them: variances divide by D and not by D - 1, and a
member is scored against the other members of its pool, among them the observation, as the
observation is against the members.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from prerank import Ensemble
from prerank.preranks import (
    AverageRank,
    BandDepth,
    Copula,
    Dependency,
    EnergyScoreRank,
    Isotropy,
    Location,
    MinimumSpanningTree,
    MultivariateRank,
    ReferenceDistance,
    Scale,
    ThresholdExceedance,
    Variogram,
)

ROWS, COLUMNS = 2, 3
# Six targets, a grid of two rows and three columns; the observation first.
POOLS = {
    # The members 2 and 3 are twins, and the observation has a target in common with most.
    "twins": [
        [1, 0, 2, 2, 1, 0],
        [0, 0, 1, 1, 1, 0],
        [2, 1, 2, 0, 1, 3],
        [2, 1, 2, 0, 1, 3],
        [1, 3, 3, 2, 2, 1],
    ],
    # The observation is one of its members.
    "twin of the observation": [
        [0.5, -1, 2, 0, 0, 1],
        [1.5, -1, 0, 0, 3, 1],
        [0.5, -1, 2, 0, 0, 1],
        [-2, -1, 2, 1, 0, 1],
    ],
    # All points are equal, and have no variance.
    "constant": [[3, 3, 3, 3, 3, 3]] * 4,
    # Members without variance beside others, on numbers that binary digits cannot write.
    "tenths": [
        [0.1, 0.2, 0.3, 0.1, 0.2, 0.3],
        [0.1, 0.1, 0.1, 0.1, 0.1, 0.1],
        [0.3, 0.2, 0.1, 0.3, 0.2, 0.1],
        [0.3, 0.1, 0.2, 0.3, 0.1, 0.2],
        [0.7, 0.7, 0.7, 0.7, 0.7, 0.7],
    ],
}


def below(p, q):
    return all(a <= b for a, b in zip(p, q, strict=True))


def mid_rank(value, values):
    return 1 + sum(v < value for v in values) + (sum(v == value for v in values) - 1) / 2


def target_ranks(i, pool):
    return [mid_rank(value, [p[d] for p in pool]) for d, value in enumerate(pool[i])]


def distance(p, q):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(p, q, strict=True)))


def variance(p):
    centre = sum(p) / len(p)
    return sum((a - centre) ** 2 for a in p) / len(p)


def others(i, pool):
    return [p for j, p in enumerate(pool) if j != i]


def multivariate_rank(i, pool):
    return sum(below(p, pool[i]) for p in pool)


def copula(i, pool):
    return sum(below(p, pool[i]) for p in others(i, pool))


def average_rank(i, pool):
    return sum(target_ranks(i, pool)) / len(pool[i])


def band_depth(i, pool):
    return sum((len(pool) - r) * (r - 1) for r in target_ranks(i, pool)) / len(pool[i])


def energy_score(i, pool):
    rest = others(i, pool)
    near = sum(distance(p, pool[i]) for p in rest) / len(rest)
    apart = sum(distance(p, q) for p in rest for q in rest) / len(rest) ** 2
    return near - apart / 2


def spanning_tree(i, pool):
    """Kruskal's method: the shortest edges that close no circle."""
    rest = others(i, pool)
    edges = sorted(
        (distance(rest[j], rest[k]), j, k) for j, k in itertools.combinations(range(len(rest)), 2)
    )
    part, length = list(range(len(rest))), 0.0
    for edge, j, k in edges:
        if part[j] != part[k]:
            length += edge
            part = [part[j] if one == part[k] else one for one in part]
    return length


def exceedance(i, pool):
    return sum(value > 1 for value in pool[i]) / len(pool[i])


def location(i, pool):
    return sum(pool[i]) / len(pool[i])


def scale(i, pool):
    return variance(pool[i])


REFERENCE = [1.0, 0.0, -1.0, 0.5, 0.25, 2.0]


def reference_distance(i, pool):
    return distance(pool[i], REFERENCE)


def dependency(lag):
    def value(i, pool):
        y = pool[i]
        steps = [(y[d] - y[d + lag]) ** 2 for d in range(len(y) - lag)]
        return ratio(-sum(steps) / (2 * len(steps)), variance(y))

    return value


def ratio(above, under):
    """0 where all targets are equal, the largest value."""
    return above / under if under > 0 else 0.0


def grid_steps(y, down, across, power):
    """Differences of all targets of the grid that are so far apart."""
    return [
        abs(y[r * COLUMNS + c] - y[(r + down) * COLUMNS + c + across]) ** power
        for r in range(ROWS)
        for c in range(COLUMNS)
        if 0 <= r + down < ROWS and 0 <= c + across < COLUMNS
    ]


def half_mean(steps):
    return sum(steps) / (2 * len(steps))


def grid_variogram(lags, power, standardised):
    def value(i, pool):
        y = pool[i]
        total = -sum(half_mean(grid_steps(y, *lag, power)) for lag in lags)
        return ratio(total, variance(y)) if standardised else total

    return value


WEIGHTS = [[abs(math.sin(1 + j * k)) for k in range(6)] for j in range(6)]


def weighted_variogram(power):
    def value(i, pool):
        y = pool[i]
        pairs = itertools.combinations(range(len(y)), 2)
        total = sum(WEIGHTS[j][k] * abs(y[j] - y[k]) ** power for j, k in pairs)
        return ratio(-total / 2, variance(y))

    return value


def isotropy(power):
    def value(i, pool):
        across, down = (grid_steps(pool[i], *step, power) for step in ((0, 1), (1, 0)))
        a, d = half_mean(across), half_mean(down)
        return ratio(-((a - d) ** 2), 2 * a**2 / len(across) + 2 * d**2 / len(down))

    return value


DEFINITIONS = [
    (MultivariateRank(), multivariate_rank),
    (Copula(), copula),
    (AverageRank(), average_rank),
    (BandDepth(), band_depth),
    (EnergyScoreRank(), energy_score),
    (MinimumSpanningTree(), spanning_tree),
    (ThresholdExceedance(1.0), exceedance),
    (Location(), location),
    (Scale(), scale),
    (ReferenceDistance(points=REFERENCE), reference_distance),
    (Dependency(), dependency(1)),
    (Dependency(4), dependency(4)),
    *(
        (
            Variogram.at_lags(lags, shape=(ROWS, COLUMNS), power=power, standardised=standardised),
            grid_variogram(lags, power, standardised),
        )
        for lags in ([(0, 1)], [(1, 0)], [(1, -1)], [(0, 1), (1, 0), (0, 2)])
        for power in (0.5, 2.0)
        for standardised in (True, False)
    ),
    *((Variogram(WEIGHTS, power), weighted_variogram(power)) for power in (1.0, 2.0)),
    *((Isotropy((ROWS, COLUMNS), power=power), isotropy(power)) for power in (0.5, 2.0)),
]


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize(
    ("prerank", "definition"),
    DEFINITIONS,
    ids=[f"{k}-{prerank.label}" for k, (prerank, _) in enumerate(DEFINITIONS)],
)
def test_it_is_its_definition(prerank, definition, pool):
    points = torch.tensor(pool, dtype=torch.float64).unsqueeze(1)
    found = prerank.project(points, Ensemble(points))[:, 0, 0].numpy()
    expected = [definition(i, pool) for i in range(len(pool))]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("prerank", [prerank for prerank, _ in DEFINITIONS])
def test_equal_points_are_tied(prerank, pool):
    points = torch.tensor(pool, dtype=torch.float64).unsqueeze(1)
    found = prerank.project(points, Ensemble(points))[:, 0, 0].tolist()
    for (p, t), (q, u) in itertools.combinations(zip(pool, found, strict=True), 2):
        assert p != q or t == u
