"""The calibration error against loops, its floor against enumeration and simulation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from prerank import pce, pce_floor
from prerank.calibration import mean_spread, pce_spread
from prerank.calibration.curves import level_grid


def naive_pce(z, grid):
    """Mean over levels of |level - share of PITs at or below it|, for one component."""
    return sum(abs(a - sum(v <= a for v in z) / len(z)) for a in grid) / len(grid)


def at_levels(levels):
    """PITs anywhere, at 0 and 1, and exactly at levels."""
    grid = level_grid(levels).tolist()
    special = st.sampled_from([0.0, 1.0, *grid])
    return st.one_of(st.floats(0, 1), special)


@given(data=st.data(), levels=st.integers(2, 120))
def test_pce_by_a_loop(data, levels):
    z = data.draw(st.lists(at_levels(levels), min_size=1, max_size=30))
    expected = naive_pce(z, level_grid(levels).tolist())
    value = pce(torch.tensor(z, dtype=torch.float64).unsqueeze(-1), levels=levels)
    assert value.shape == (1,)
    assert float(value) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("levels", [2, 3, 10, 100])
def test_levels_are_evenly_spaced_with_both_ends(levels):
    grid = level_grid(levels).numpy()
    np.testing.assert_allclose(grid, np.linspace(0, 1, levels), rtol=0, atol=1e-15)
    assert grid[0] == 0
    assert grid[-1] == 1


BY_HAND = [
    ([0.5], 3, 0.5 / 3),  # at level 0.5 the CDF is 1
    ([0.0], 3, 1.5 / 3),  # at 0 it is 1, at 0.5 it is 1
    ([1.0], 3, 0.5 / 3),
    ([0.0, 1.0], 3, 0.5 / 3),
    ([0.25, 0.75], 5, (0.25 + 0.25) / 5),  # CDF 0 .5 .5 1 1 at 0 .25 .5 .75 1
    ([0.2, 0.7], 2, 0.0),
]


@pytest.mark.parametrize(("z", "levels", "expected"), BY_HAND)
def test_pce_by_hand(z, levels, expected):
    value = pce(np.array(z)[:, None], levels=levels)
    assert float(value) == pytest.approx(expected, abs=1e-15)


def test_stacks_and_components_are_separate():
    z = torch.rand(3, 2, 40, 5, dtype=torch.float64)
    values = pce(z, levels=17)
    assert values.shape == (3, 2, 5)
    grid = level_grid(17).tolist()
    for index in np.ndindex(3, 2, 5):
        column = z[index[0], index[1], :, index[2]].tolist()
        assert float(values[index]) == pytest.approx(naive_pce(column, grid), abs=1e-12)


def test_rows_may_come_in_any_order():
    z = torch.rand(50, 2, dtype=torch.float64)
    torch.testing.assert_close(pce(z[torch.randperm(50)]), pce(z), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_error_is_computed_in_double_precision(dtype):
    z = torch.linspace(0, 1, 1001, dtype=dtype).unsqueeze(-1)
    exact = pce(z.double())
    assert pce(z).dtype == dtype
    torch.testing.assert_close(pce(z).double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("levels", [2, 3, 10, 100])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 99, 100])
def test_floor_by_enumeration(n, levels):
    counts = np.arange(n + 1)
    expected = np.mean(
        [
            (binom.pmf(counts, n, a) * np.abs(counts / n - a)).sum()
            for a in np.linspace(0, 1, levels)
        ]
    )
    assert pce_floor(n, levels=levels) == pytest.approx(expected, rel=1e-10, abs=1e-15)


@pytest.mark.parametrize("n", [7, 256])
def test_floor_by_simulation(n):
    generator = torch.Generator().manual_seed(n)
    values = pce(torch.rand(n, 8000, generator=generator, dtype=torch.float64))
    error = float(values.std()) / math.sqrt(8000)
    assert abs(float(values.mean()) - pce_floor(n)) < 4 * error


@pytest.mark.parametrize("n", [20, 256])
def test_spread_by_simulation(n):
    generator = torch.Generator().manual_seed(n)
    values = pce(torch.rand(n, 20_000, generator=generator, dtype=torch.float64))
    # A standard deviation of 20,000 values of kurtosis 6 at most is known to 0.8 %; n is finite.
    assert float(values.std()) == pytest.approx(pce_spread(n), rel=4 * 0.008 + 0.2 / n)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 1.0])
def test_spread_of_a_mean_by_simulation(correlation):
    """Two pre-ranks, of three components and of one, with equally correlated normal scores."""
    n, replicates = 200, 4000
    generator = torch.Generator().manual_seed(1)
    own, shared = (
        torch.randn(replicates, n, k, generator=generator, dtype=torch.float64) for k in (4, 1)
    )
    z = torch.special.ndtr(correlation**0.5 * shared + (1 - correlation) ** 0.5 * own)
    parts = [z[..., :3], z[..., 3:]]
    true = torch.stack([pce(part).mean(-1) for part in parts]).mean(0).std()
    # Known to 4 x 1.4 %, and up to 4 % too large by its approximation.
    assert 0.94 * true < mean_spread(parts).mean() < 1.10 * true


def test_spread_where_all_pits_are_equal():
    z = torch.full((50, 2), 0.5, dtype=torch.float64)
    assert float(mean_spread([z])) == pytest.approx(pce_spread(50) / 2**0.5)


def test_floor_of_a_batch_of_256():
    assert 0.0193 <= pce_floor(256) <= 0.0194


@pytest.mark.parametrize("n", [256, 1000, 100_000, 10**8])
def test_floor_is_about_0_310_over_the_root_of_n(n):
    # Mean over levels of sqrt(2 a (1 - a) / (pi n)): pi/8 sqrt(2/pi), times 99/100 or so.
    assert pce_floor(n) * math.sqrt(n) == pytest.approx(0.310, rel=0.005)
    assert pce_floor(4 * n) == pytest.approx(pce_floor(n) / 2, rel=0.005)


def test_floor_falls_with_n():
    values = [pce_floor(n) for n in range(1, 60)]
    assert all(a > b for a, b in zip(values, values[2:], strict=False))
