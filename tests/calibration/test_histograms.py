"""The band of a right predictor's PIT histogram: its probability, computed and simulated."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import binom

from prerank.calibration import (
    default_bins,
    histogram_band,
    histogram_shapes,
    pit_histogram,
)
from prerank.calibration.bands import count_coverage
from prerank.errors import InputError, InputTypeError, ShapeError


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("bins", [1, 2, 3, 4])
def test_coverage_is_that_of_an_enumeration(n, bins):
    cells = itertools.product(range(bins), repeat=n)
    counts = np.array([np.bincount(c, minlength=bins) for c in cells])
    for lower, upper in itertools.combinations_with_replacement(range(n + 2), 2):
        kept = ((counts >= lower) & (counts <= upper)).all(-1)
        found = count_coverage(n, bins, lower, upper)
        assert found == pytest.approx(kept.mean(), rel=1e-12, abs=1e-15)


def test_coverage_of_two_bins_is_binomial():
    n, lower, upper = 1001, 450, 560
    least, most = max(lower, n - upper), min(upper, n - lower)
    expected = binom.cdf(most, n, 0.5) - binom.cdf(least - 1, n, 0.5)
    assert count_coverage(n, 2, lower, upper) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [1, 20, 190, 5000, 200_000])
def test_probability_is_at_least_what_was_asked_for(n):
    for bins, level in itertools.product([1, 2, 10, 20], [0.5, 0.9, 0.95, 0.99]):
        band, case = histogram_band(n, bins, level), f"{bins} bins, level {level}"
        lower, upper = (round(bound * n / bins) for bound in (band.lower, band.upper))
        assert band.coverage == count_coverage(n, bins, lower, upper), case
        assert level <= band.coverage <= 1, case
        if n >= 5000 and bins > 1:  # a count has little probability of its own
            assert band.coverage < level + 0.03, case


def tail_probabilities(n, bins, lower, upper):
    return binom.cdf(lower - 1, n, 1 / bins), binom.sf(upper, n, 1 / bins)


@pytest.mark.parametrize(("n", "bins"), [(50, 10), (400, 20), (1000, 10)])
def test_no_narrower_band_of_equal_tails_would_do(n, bins):
    band = histogram_band(n, bins)
    lower, upper = (round(bound * n / bins) for bound in (band.lower, band.upper))
    below, above = tail_probabilities(n, bins, lower, upper)
    # The next band of equal tails cuts off the side whose next tail is the smaller one.
    further = tail_probabilities(n, bins, lower + 1, upper - 1)
    assert max(below, above) < min(further)
    next_one = (lower + 1, upper) if further[0] < further[1] else (lower, upper - 1)
    assert count_coverage(n, bins, *next_one) < 0.95


@pytest.mark.parametrize(("n", "bins"), [(20, 10), (190, 10), (1000, 20)])
def test_right_predictors_stay_inside(n, bins):
    samples = 4000
    generator = torch.Generator().manual_seed(n)
    z = torch.rand(n, samples, generator=generator, dtype=torch.float64)
    band = histogram_band(n, bins)
    shapes = histogram_shapes(pit_histogram(z, bins=bins), band)
    share = 1 - np.mean([shape.outside for shape in shapes])
    error = math.sqrt(band.coverage * (1 - band.coverage) / samples)
    assert abs(share - band.coverage) < 3 * error


def test_a_bar_on_the_bound_is_inside():
    n, bins = 400, 10
    band = histogram_band(n, bins)
    upper = round(band.upper * n / bins)
    for extra, outside in ((0, False), (1, True)):
        rest = np.full(bins - 1, (n - upper - extra) // (bins - 1))
        rest[: (n - upper - extra) % (bins - 1)] += 1
        counts = torch.from_numpy(np.array([upper + extra, *rest]))
        middles = (torch.arange(bins) + 0.5) / bins
        z = middles.repeat_interleave(counts).unsqueeze(-1)
        assert z.shape == (n, 1)
        (shape,) = histogram_shapes(pit_histogram(z, bins=bins), band)
        assert shape.outside is outside


def pits(shift, spread, n=1000):
    """PITs of a standard normal prediction of observations that differ from it."""
    even = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    return torch.from_numpy(ndtr((shift + spread * even).numpy())).unsqueeze(-1)


TRUTHS = [
    (0.0, 1.0, (False, 0, 0)),
    (0.7, 1.0, (True, 1, 0)),
    (-0.7, 1.0, (True, -1, 0)),
    (0.0, 1.8, (True, 0, 1)),
    (0.0, 0.5, (True, 0, -1)),
]


@pytest.mark.parametrize(("shift", "spread", "expected"), TRUTHS)
@pytest.mark.parametrize("bins", [5, 10, 20])
def test_shapes_of_known_deviations(shift, spread, expected, bins):
    histogram = pit_histogram(pits(shift, spread), bins=bins)
    (shape,) = histogram_shapes(histogram, histogram_band(1000, bins))
    assert shape.outside is expected[0]
    if shape.outside:
        assert shape == expected


def test_form():
    band = histogram_band(np.int64(100), np.int64(10), 0.9)
    assert (band.n, band.bins, band.level) == (100, 10, 0.9)
    assert band.lower < 1 < band.upper
    wide, narrow = histogram_band(1000, 10), histogram_band(4000, 10)
    # A fourfold n halves the band; counts round each end by up to 1 / 100.
    ratio = (wide.upper - wide.lower) / (narrow.upper - narrow.lower)
    assert abs(ratio - 2) < 0.1
    assert histogram_band(50, 1)[:2] == (1, 1)
    assert default_bins(1) == 10


BAD = [
    ({"n": 0}, InputError, "n must be at least 1"),
    ({"n": 2.5}, InputTypeError, "n must be an int"),
    ({"n": 10, "bins": 0}, InputError, "bins must be at least 1"),
    ({"n": 10, "level": 1.0}, InputError, "level"),
    ({"n": 10, "level": 95}, InputError, "95"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), BAD)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        histogram_band(**arguments)


@pytest.mark.parametrize("shape", [(30,), (2, 30, 1), (30, 1)])
def test_histograms_must_match_the_band(shape):
    histogram = pit_histogram(torch.rand(50, 1), bins=12)
    histogram = histogram._replace(density=torch.ones(shape))
    with pytest.raises(ShapeError, match=r"\(12, J\)"):
        histogram_shapes(histogram, histogram_band(50, 12))
