"""Pre-ranks by hand, and against naive definitions (Allen et al., 2023; MultivCalibration)."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

import prerank.preranks.pooled
from prerank import Ensemble
from prerank.preranks import (
    AverageRank,
    BandDepth,
    Copula,
    Dependency,
    EnergyScoreRank,
    Location,
    MultivariateRank,
    Scale,
    ThresholdExceedance,
    parse,
)
from truths import PRERANKS, gaussian_mixture, labels, student_copula


def project(prerank, pool, weights=None):
    """T of one row's pool: `(S + 1, D)` in, `(S + 1,)` out."""
    points = torch.tensor(np.asarray(pool, dtype=np.float64)).unsqueeze(1)
    share = None if weights is None else torch.tensor(weights, dtype=torch.float64).unsqueeze(1)
    dist = Ensemble(torch.cat([points, points]))  # tells the number of targets
    values = prerank.project(points, dist, share)
    assert values.shape == (len(points), 1, 1)
    return values[:, 0, 0].numpy()


# Four points in the plane, the observation first. Ranks in the first coordinate: 2 1 3 4, in the
# second: 2 1 4 3.
PLANE = [[1, 1], [0, 0], [2, 3], [3, 2]]
# Three points with ties: mid-ranks 1.5 1.5 3 and 2 2 2.
TIED = [[0, 5], [0, 5], [1, 5]]
# Three corners of a triangle with sides 3, 4, 5.
TRIANGLE = [[0, 0], [3, 0], [0, 4]]

BY_HAND = [
    # (0, 0) lies below all others; (1, 1) below the last two, which do not compare.
    (Copula(), PLANE, [1, 0, 2, 2]),
    (MultivariateRank(), PLANE, [2, 1, 3, 3]),
    (Copula(), TIED, [1, 1, 2]),  # twins lie below each other
    (MultivariateRank(), TIED, [2, 2, 3]),
    (AverageRank(), PLANE, [2, 1, 3.5, 3.5]),
    (AverageRank(), TIED, [1.75, 1.75, 2.5]),
    # (4 - c)(c - 1) is 0 2 2 0 for c = 1 2 3 4.
    (BandDepth(), PLANE, [2, 0, 1, 1]),
    # (3 - c)(c - 1) is 0.75 for c = 1.5, 1 for c = 2, 0 for c = 3.
    (BandDepth(), TIED, [0.875, 0.875, 0.5]),
    # mean distance to the other two, minus their distance / 4 (V-statistic: 2 d / (2 * 2^2)).
    (EnergyScoreRank(), TRIANGLE, [3.5 - 5 / 4, 4 - 4 / 4, 4.5 - 3 / 4]),
    (EnergyScoreRank(), [[0], [2], [4]], [3 - 2 / 4, 2 - 4 / 4, 3 - 2 / 4]),
    (ThresholdExceedance(1.0), [[1, 2, 0], [1, 1, 1], [2, 2, 2]], [1 / 3, 0, 1]),  # strictly above
    (ThresholdExceedance(), [[-1, 0, 1, 2]], [0.5]),
    (Location(), [[1, 2, 6], [0, 0, 0]], [3, 0]),
    (Scale(), [[1, 2, 6], [4, 4, 4]], [14 / 3, 0]),  # squares 4 1 9, divided by D
    # Variogram (1 + 16) / (2 * 2) over variance 14/3.
    (Dependency(), [[1, 2, 6]], [-(17 / 4) / (14 / 3)]),
    (Dependency(2), [[1, 2, 6]], [-(25 / 2) / (14 / 3)]),  # one pair, two apart
    (Dependency(), [[0, 1, 0, 1]], [-(1 / 2) / (1 / 4)]),
    (Dependency(2), [[0, 1, 0, 1]], [0]),
    (Dependency(), [[3, 3, 3], [0, 0, 0]], [0, 0]),  # no variance: the largest value
]


@pytest.mark.parametrize(
    ("prerank", "pool", "expected"),
    BY_HAND,
    ids=[f"{p.label}-{i}" for i, (p, *_) in enumerate(BY_HAND)],
)
def test_by_hand(prerank, pool, expected):
    np.testing.assert_allclose(project(prerank, pool), expected, rtol=1e-10, atol=1e-10)


def naive_copula(pool):
    size = len(pool)
    return [
        sum(j != i and bool((pool[j] <= pool[i]).all()) for j in range(size)) for i in range(size)
    ]


def naive_mv_rank(pool):
    return [sum(bool((other <= point).all()) for other in pool) for point in pool]


def ranks(pool):
    return np.stack([rankdata(column, method="average") for column in pool.T], axis=1)


def naive_band_depth(pool):
    c = ranks(pool)
    return ((len(pool) - c) * (c - 1)).mean(1)


def naive_energy(pool):
    values = []
    for i, point in enumerate(pool):
        others = [other for j, other in enumerate(pool) if j != i]
        size = len(others)
        to_point = sum(np.linalg.norm(a - point) for a in others) / size
        between = sum(np.linalg.norm(a - b) for a in others for b in others) / size**2
        values.append(to_point - between / 2)
    return values


def naive_dependency(lag):
    def value(y):
        gamma = sum((y[d] - y[d + lag]) ** 2 for d in range(len(y) - lag)) / (2 * (len(y) - lag))
        variance = sum((v - sum(y) / len(y)) ** 2 for v in y) / len(y)
        return -gamma / variance if variance > 0 else 0.0

    return lambda pool: [value(list(y)) for y in pool]


NAIVE = [
    (Copula(), naive_copula),
    (MultivariateRank(), naive_mv_rank),
    (AverageRank(), lambda pool: ranks(pool).mean(1)),
    (BandDepth(), naive_band_depth),
    (EnergyScoreRank(), naive_energy),
    (ThresholdExceedance(1.0), lambda pool: (pool > 1).mean(1)),
    (Location(), lambda pool: pool.mean(1)),
    (Scale(), lambda pool: pool.var(1)),
    (Dependency(), naive_dependency(1)),
    (Dependency(2), naive_dependency(2)),
]


def random_pool(kind, dim, seed):
    rng = np.random.default_rng(seed)
    if kind == "ties":
        return rng.integers(0, 3, size=(12, dim)).astype(float)
    return rng.normal(size=(12, dim))


@pytest.mark.parametrize("dim", [3, 4])
@pytest.mark.parametrize("kind", ["ties", "no ties"])
@pytest.mark.parametrize(("prerank", "naive"), NAIVE, ids=labels([p for p, _ in NAIVE]))
def test_naive_definition(prerank, naive, kind, dim):
    for seed in range(5):
        pool = random_pool(kind, dim, seed)
        np.testing.assert_allclose(project(prerank, pool), naive(pool), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chunk", [1, 5000])
def test_rows_and_chunks_do_not_mix(chunk, monkeypatch):
    pools = np.stack([random_pool("ties", 3, seed) for seed in range(6)], axis=1)
    points = torch.from_numpy(pools).reshape(12, 2, 3, 3)
    monkeypatch.setattr(prerank.preranks.pooled, "_CHUNK_BYTES", chunk)
    for prerank_, naive in NAIVE[:5]:
        values = prerank_.project(points, Ensemble(points)).reshape(12, 6)
        for row in range(6):
            np.testing.assert_allclose(values[:, row], naive(pools[:, row]), rtol=1e-10, atol=1e-10)


DISTRIBUTIONS = {"knows its covariance": gaussian_mixture, "does not": student_copula}


def pool_of(make, size=9):
    dist = make(2, 5)
    return dist, dist.sample((size,))


@pytest.mark.parametrize("make", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
@pytest.mark.parametrize("prerank", PRERANKS, ids=labels(PRERANKS))
def test_members_of_a_pool_are_treated_alike(prerank, make):
    dist, pool = pool_of(make)
    order = torch.randperm(9)
    values = prerank.project(pool, dist)
    assert values.shape[:-1] == (9, 2, 5)
    assert values.dtype == pool.dtype
    assert values.unique().numel() > 1
    torch.testing.assert_close(prerank.project(pool[order], dist), values[order])
    weights = torch.rand(9, 2, 5, dtype=torch.float64)
    weighted = prerank.project(pool, dist, weights)
    assert weighted.shape == values.shape
    torch.testing.assert_close(prerank.project(pool[order], dist, weights[order]), weighted[order])


@pytest.mark.parametrize("make", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
@pytest.mark.parametrize("prerank", PRERANKS, ids=labels(PRERANKS))
def test_equal_weights_order_the_pool_as_no_weights_do(prerank, make):
    dist, pool = pool_of(make)
    plain = prerank.project(pool, dist)
    # A power of two: sums of it are exact, so that ties stay ties.
    weighted = prerank.project(pool, dist, torch.full(pool.shape[:-1], 0.125, dtype=pool.dtype))
    np.testing.assert_array_equal(
        rankdata(weighted.numpy(), axis=0), rankdata(plain.numpy(), axis=0)
    )


COMPONENTS = {"marginal": 4, "pca": 4, "pca(1)": 1}


@pytest.mark.parametrize("prerank", PRERANKS, ids=labels(PRERANKS))
def test_number_of_components(prerank):
    dist, pool = pool_of(gaussian_mixture)
    size = prerank.project(pool, dist).shape[-1]
    if prerank.label == "pca(0.8)":
        assert 1 < size < 4
    else:
        assert size == COMPONENTS.get(prerank.label, 1)
    assert len(set(prerank.component_names(["a", "b", "c", "d"], size))) == size


def test_weights_count_members_unequally():
    pool, weights = [[1, 1], [0, 0], [2, 3], [3, 2]], [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_allclose(project(Copula(), pool, weights), [2, 0, 3, 3])
    np.testing.assert_allclose(project(MultivariateRank(), pool, weights), [3, 2, 6, 7])
    # Mass below, coordinate by coordinate: 2 0 3 6 and 2 0 7 3; plus the own weight.
    np.testing.assert_allclose(project(AverageRank(), pool, weights), [3, 2, 8, 8.5])
    # Below times above: first 2*7 0 3*4 6*0, second 2*7 0 7*0 3*3.
    np.testing.assert_allclose(project(BandDepth(), pool, weights), [14, 0, 6, 4.5])
    # Distances of 0, 2, 4 on a line; weights 1, 1, 2.
    energy = [(2 * 1 + 4 * 2) / 3 - 2 * 2 * 2 / 18, (2 + 4) / 3 - 2 * 4 * 2 / 18, 3 - 2 * 2 / 8]
    np.testing.assert_allclose(
        project(EnergyScoreRank(), [[0], [2], [4]], [1.0, 1.0, 2.0]), energy, rtol=1e-10
    )


@pytest.mark.parametrize("dim", [5, 7, 14])
@pytest.mark.parametrize("label", ["pca", "location"])
def test_equal_points_have_equal_values(label, dim):
    g = torch.Generator().manual_seed(0)
    point = torch.randn(1, 300, dim, generator=g)
    spread = torch.randn(40, 300, dim, generator=g)
    dist = Ensemble(spread)
    (prerank,) = parse(label)
    values = prerank.project(torch.cat([point.expand(30, -1, -1), spread]), dist)[:30]
    assert (values == values[0]).all()
