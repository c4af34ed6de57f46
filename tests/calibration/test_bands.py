"""The band of a right predictor's reliability curve: its probability, computed and simulated."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, kstwo

from prerank.calibration import reliability_band, reliability_curve
from prerank.calibration.bands import _bounds, coverage
from prerank.errors import InputError


def inside(z, band):
    """Whether the curve of each column of PITs stays within the band, up to rounding."""
    observed = reliability_curve(z, levels=len(band.levels)).observed
    within = (observed >= band.lower[:, None] - 1e-9) & (observed <= band.upper[:, None] + 1e-9)
    return within.all(0)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_coverage_is_that_of_an_enumeration(n):
    bins = 4
    bounds = [([0, 0, 1, 1, n], [0, 1, n, n, n]), ([0, 0, 0, 1, n], [0, n, n, n, n])]
    for lower, upper in bounds:
        counts = [
            np.bincount(cells, minlength=bins).cumsum()
            for cells in itertools.product(range(bins), repeat=n)
        ]
        kept = [(lower[1:] <= c).all() and (c <= upper[1:]).all() for c in counts]
        found = coverage(np.array(lower), np.array(upper))
        assert found == pytest.approx(np.mean(kept), rel=1e-12)


def test_coverage_of_a_constant_band_is_kolmogorovs():
    n, levels, width = 50, 4001, 0.1901
    grid = np.linspace(0, 1, levels)
    lower = np.ceil(n * np.clip(grid - width, 0, 1)).astype(int)
    upper = np.floor(n * np.clip(grid + width, 0, 1)).astype(int)
    lower[-1], upper[0] = n, 0
    # A grid sees a little less than all levels: about the law for a width wider by one step.
    exact = kstwo.cdf(width, n)
    assert exact - 1e-12 <= coverage(lower, upper) <= kstwo.cdf(width + 1 / levels, n)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 20, 190, 5000])
def test_probability_is_what_was_asked_for(n, level):
    exact = coverage(*_bounds(n, level, 100))
    assert exact >= level
    if n >= 190:  # a count has little probability of its own
        assert exact < level + 0.005


@pytest.mark.parametrize("n", [20, 190, 1000])
def test_right_predictors_stay_inside(n):
    samples = 4000
    generator = torch.Generator().manual_seed(n)
    z = torch.rand(n, samples, generator=generator, dtype=torch.float64)
    share = float(inside(z, reliability_band(n)).double().mean())
    error = math.sqrt(0.95 * 0.05 / samples)
    exact = coverage(*_bounds(n, 0.95, 100))
    assert abs(share - exact) < 3 * error
    assert abs(share - 0.95) < 3 * error


def test_tails_are_seen_where_kolmogorov_sees_nothing():
    even = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    z = even.clone()
    z[::16] = 0.001  # 13 of 200 are extreme
    assert kstest(z.numpy(), "uniform").pvalue > 0.05
    band = reliability_band(200)
    assert not inside(z[:, None], band).item()
    assert inside(even[:, None], band).item()


def test_form():
    band = reliability_band(100, level=0.9, levels=21)
    assert band.n == 100
    assert band.level == 0.9
    for bound in (band.levels, band.lower, band.upper):
        assert bound.shape == (21,)
        assert bound.dtype == torch.float64
        assert bound[0] == 0
        assert bound[-1] == 1
        assert (bound.diff() >= 0).all()
    assert (band.lower <= band.levels).all()
    assert (band.upper >= band.levels).all()
    torch.testing.assert_close(band.lower, 1 - band.upper.flip(0))
    wide, narrow = reliability_band(100, level=0.99), reliability_band(400, level=0.99)
    assert (wide.upper - wide.lower)[1:-1].min() > 0
    # A fourfold n halves the band; counts round each end by up to 1 / 100.
    ratio = (wide.upper - wide.lower)[50] / (narrow.upper - narrow.lower)[50]
    assert abs(float(ratio) - 2) < 0.2


BAD = [
    ({"n": 0}, "n"),
    ({"n": 10, "level": 1.0}, "level"),
    ({"n": 10, "level": 95}, "95"),
    ({"n": 10, "levels": 1}, "levels"),
]


@pytest.mark.parametrize(("arguments", "word"), BAD)
def test_bad_arguments(arguments, word):
    with pytest.raises(InputError, match=word):
        reliability_band(**arguments)
