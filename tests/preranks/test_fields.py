"""Pre-ranks of fields and of distances against their definitions, written out by loops."""

import itertools

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from prerank import Ensemble, pit
from prerank.errors import InputError, InputTypeError, NotApplicableError, ShapeError
from prerank.preranks import (
    Isotropy,
    MinimumSpanningTree,
    ReferenceDistance,
    SampleDensity,
    Variogram,
    parse,
)

SHAPE = (3, 4)
CASES = {
    "ties": np.random.default_rng(0).integers(0, 3, (9, 12)).astype(float),
    "no ties": np.random.default_rng(1).standard_normal((9, 12)),
}


def project(prerank, pool):
    points = torch.from_numpy(pool).unsqueeze(1)
    return prerank.project(points, Ensemble(points))[:, 0, 0].numpy()


def field_variogram(y, step, power):
    field = y.reshape(SHAPE)
    total, count = 0.0, 0
    for i, j in itertools.product(*(range(n) for n in SHAPE)):
        k, m = i + step[0], j + step[1]
        if 0 <= k < SHAPE[0] and 0 <= m < SHAPE[1]:
            total, count = total + abs(field[i, j] - field[k, m]) ** power, count + 1
    return total / (2 * count), count


def lagged(y, steps, power, standardised):
    total = -sum(field_variogram(y, step, power)[0] for step in steps)
    return total / np.var(y) if standardised else total


def weighted(y, weights, power):
    pairs = itertools.combinations(range(len(y)), 2)
    return -sum(weights[i, j] * abs(y[i] - y[j]) ** power for i, j in pairs) / (2 * np.var(y))


def isotropy(y, lag, power):
    across, n = field_variogram(y, (0, lag), power)
    down, m = field_variogram(y, (lag, 0), power)
    return -((across - down) ** 2) / (2 * across**2 / n + 2 * down**2 / m)


STEPS = ([(0, 1)], [(1, 0)], [(0, 1), (1, 0)], [(1, -1)], [(2, 3)])


@pytest.mark.parametrize("pool", CASES.values(), ids=CASES)
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_variograms_of_fields(pool, power):
    for steps, standardised in itertools.product(STEPS, (True, False)):
        prerank = Variogram.at_lags(steps, shape=SHAPE, power=power, standardised=standardised)
        expected = [lagged(y, steps, power, standardised) for y in pool]
        np.testing.assert_allclose(project(prerank, pool), expected, rtol=1e-12, atol=1e-12)
    for lag in (1, 2):
        expected = [isotropy(y, lag, power) for y in pool]
        np.testing.assert_allclose(
            project(Isotropy(SHAPE, lag, power), pool), expected, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("pool", CASES.values(), ids=CASES)
def test_weights_and_lags_of_a_line(pool):
    distance = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    weights = np.divide(1, distance, where=distance > 0, out=np.zeros((12, 12)))
    for power in (1, 2):
        expected = [weighted(y, weights, power) for y in pool]
        found = project(Variogram(torch.from_numpy(weights), power), pool)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    gaps = [-((y[2:] - y[:-2]) ** 2).mean() / (2 * np.var(y)) for y in pool]
    line = Variogram.at_lags([2], shape=12)
    np.testing.assert_allclose(project(line, pool), gaps, rtol=1e-12, atol=1e-12)


def test_fields_without_variance_rank_highest():
    pool = np.stack([np.full(12, 3.0), np.arange(12.0)])
    for prerank in (Variogram.at_lags([(0, 1)], shape=SHAPE), Isotropy(SHAPE)):
        flat, sloped = project(prerank, pool)
        assert flat == 0 > sloped


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_lengths_of_spanning_trees(dim):
    rng = np.random.default_rng(dim)
    for size in (2, 3, 7, 20):
        pool = rng.standard_normal((size, dim))
        others = [np.delete(pool, i, 0) for i in range(size)]
        # No two points coincide: scipy takes a distance of 0 for a missing edge.
        expected = [minimum_spanning_tree(cdist(rest, rest)).sum() for rest in others]
        found = project(MinimumSpanningTree(), pool)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    # Without 0 the points 1, 1, 3 are left, and without 3 the points 0, 1, 1.
    twins = project(MinimumSpanningTree(), np.array([[0.0], [1.0], [1.0], [3.0]]))
    np.testing.assert_allclose(twins, [2, 3, 3, 1], rtol=1e-9)


def test_distances_to_given_and_random_points():
    pool = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
    dist = Ensemble(pool)
    at = torch.tensor([1.0, 0.0, -1.0])
    given = ReferenceDistance(points=at).project(pool, dist).squeeze(-1)
    torch.testing.assert_close(given, (pool - at).norm(dim=-1))
    one, again, other = (
        ReferenceDistance(seed).project(pool, dist).squeeze(-1) for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    stacked = ReferenceDistance().project(pool.unsqueeze(1).expand(-1, 2, -1, -1), dist)
    assert torch.equal(stacked[:, 0], stacked[:, 1])


def test_density_of_samples_by_hand():
    pool = np.random.default_rng(3).standard_normal((8, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
    size, dim = pool.shape
    spread = pool.std(0)
    correlation = np.corrcoef(pool.T)
    shrunk = np.eye(dim) + (correlation - np.eye(dim)) * size / (size + dim)
    covariance = shrunk * np.outer(spread, spread)
    gaps = pool[:, None] - pool
    squares = np.einsum("ijd,de,ije->ij", gaps, np.linalg.inv(covariance), gaps)
    kernel = np.exp(-squares / (2 * size ** (-2 / (dim + 4))))
    np.fill_diagonal(kernel, 0)
    np.testing.assert_allclose(project(SampleDensity(), pool), np.log(kernel.sum(1)), atol=1e-9)


def test_density_of_samples_where_a_target_is_constant_or_members_are_few():
    pool = np.random.default_rng(4).standard_normal((4, 6))
    pool[:, 2] = 7.0
    assert np.isfinite(project(SampleDensity(), pool)).all()


def test_density_of_samples_sees_a_wrong_spread():
    """The density of 50 members rejects a spread of .7 as that of the distribution does."""
    g = torch.Generator().manual_seed(5)
    y, samples = torch.randn(500, 3, generator=g), 0.7 * torch.randn(50, 500, 3, generator=g)
    z = pit(Ensemble(samples), y, "sample_density", generator=0)
    # A uniform mean has a standard error of .013.
    assert float(z.mean()) < 0.5 - 8 * 0.013


WRONG = [
    (lambda: Variogram(torch.ones(2, 3)), ShapeError, "symmetric"),
    (lambda: Variogram(torch.triu(torch.ones(3, 3))), ShapeError, "symmetric"),
    (lambda: Variogram(torch.eye(3)), InputError, "positive"),
    (lambda: Variogram(torch.ones(3, 3), power=0), InputError, "power"),
    (lambda: Variogram.at_lags([0], shape=4), InputError, "connects no points"),
    (lambda: Variogram.at_lags([4], shape=4), InputError, "connects no points"),
    (lambda: Variogram.at_lags([(1, 0)], shape=4), InputError, "each of 1 dimensions"),
    (lambda: Variogram.at_lags([1], shape=0), InputTypeError, "positive ints"),
    (lambda: Isotropy((2, 3), lag=2), InputError, "connects no points"),
    (lambda: Isotropy((2, 3, 4)), InputError, "two dimensions"),
    (lambda: ReferenceDistance(-1), InputError, "seed"),
    (lambda: parse("variogram"), InputError, "Variogram.at_lags"),
    (lambda: parse("hdr+isotropy"), InputError, "Isotropy"),
]


@pytest.mark.parametrize(("make", "error", "words"), WRONG, ids=[w for *_, w in WRONG])
def test_what_cannot_be(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_other_numbers_of_targets_are_refused():
    dist = Ensemble(torch.zeros(4, 5, 12))
    for prerank in (
        Variogram.at_lags([1], shape=3),
        Isotropy((2, 3)),
        ReferenceDistance(points=torch.zeros(3)),
    ):
        with pytest.raises((NotApplicableError, ShapeError)):
            prerank.check(dist)
