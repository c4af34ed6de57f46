"""Location and spread of PITs over time: exact bands, and those of rows that depend."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from prerank.calibration.curves import pit_histogram
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.periods import period_means, periods_of
from prerank.calibration.rotations import dependent_histogram_band
from prerank.errors import PrerankError


def left(z, periods, rows=None, level=0.9):
    """Whether location and spread leave the band in some period."""
    found = period_means(z, periods, rows, level=level)
    both = zip((found.location, found.spread), found.reach, strict=True)
    return np.array([bool(((part - 0.5).abs() > reach).any()) for part, reach in both])


@pytest.mark.parametrize("size", [1, 3, 20, 21])
def test_the_band_of_independent_rows_is_exact(size):
    z = torch.rand(
        2000, 6 * size, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    periods = periods_of(range(6 * size), size, 6 * size)
    share = np.mean([left(one, periods) for one in z], 0)
    assert (abs(share - 0.1) < 4 * 0.3 / 2000**0.5).all()  # four standard errors


def series(rng, times, phi, stations=1):
    """PITs of AR(1) series, equally correlated between stations, `(times * stations, 1)`."""
    noise = rng.normal(size=(times + 50, 1 + stations))
    for t in range(1, len(noise)):
        noise[t] = phi * noise[t - 1] + (1 - phi**2) ** 0.5 * noise[t]
    values = 0.8**0.5 * noise[50:, :1] + 0.2**0.5 * noise[50:, 1:]
    return norm.cdf(values).reshape(-1, 1)


@pytest.mark.parametrize(("phi", "stations"), [(0.0, 1), (0.5, 1), (0.3, 4)])
def test_the_band_of_dependent_rows_keeps_its_level(phi, stations):
    rng = np.random.default_rng(1)
    time = np.repeat(np.arange(360), stations)
    periods, rows = periods_of(time, 30, len(time)), row_units(time, None, len(time))
    share = np.mean([left(series(rng, 360, phi, stations), periods, rows) for _ in range(400)], 0)
    assert (share < 0.1 + 4 * 0.3 / 400**0.5).all()
    if stations > 1:  # or the test could not fail
        naive = np.mean([left(series(rng, 360, phi, stations), periods) for _ in range(100)], 0)
        assert naive[0] > 0.5


def test_a_drift_is_not_taken_for_dependence():
    rng = np.random.default_rng(2)
    drift = np.repeat([0.0, 0.9], 360)  # of the second half
    z = norm.cdf(rng.normal(size=720) + drift)[:, None]
    rows = row_units(range(720), None, 720)
    found = period_means(z, periods_of(range(720), 30, 720), rows)
    out = ((found.location - 0.5).abs() > found.reach[0]).flatten()
    assert not out[:12].any()
    assert out[12:].sum() > 8


def test_clusters_have_halves_too():
    rng = np.random.default_rng(3)
    cluster = np.repeat(np.arange(240), 5)
    z = norm.cdf(0.9**0.5 * rng.normal(size=240)[cluster] + 0.1**0.5 * rng.normal(size=1200))
    periods = periods_of(cluster, 20, 1200)
    wide = period_means(z[:, None], periods, row_units(None, cluster, 1200)).reach
    assert bool((wide > 1.5 * period_means(z[:, None], periods).reach).all())


def test_a_single_time_in_each_period_gives_no_band():
    rows = row_units(range(12), None, 12)
    found = period_means(torch.rand(12, 1), periods_of(range(12), 1, 12), rows)
    assert bool((found.reach == 0.5).all())


DATES = pd.date_range("2024-11-15", periods=60)


@pytest.mark.parametrize("time", [DATES, DATES.strftime("%Y-%m-%d"), DATES.to_numpy(), list(DATES)])
def test_periods_are_those_of_the_calendar(time):
    names, codes = periods_of(time, "month", 60)
    assert names == ("2024-11", "2024-12", "2025-01")
    assert torch.bincount(codes).tolist() == [16, 31, 13]
    assert periods_of(time, "year", 60)[0] == ("2024", "2025")


BAD = {
    "word": (lambda: periods_of(DATES, "fortnight", 60), "every must be one of"),
    "numbers": (lambda: periods_of(range(60), "month", 60), "time has numbers"),
    "dates": (lambda: periods_of(DATES, 7, 60), "time has no numbers"),
    "text": (lambda: periods_of(["soon"] * 3, "month", 3), "dates like"),
    "length": (lambda: periods_of(DATES, "month", 61), "61 rows"),
    "zero": (lambda: periods_of(range(60), 0, 60), "every"),
    "level": (lambda: period_means(torch.rand(2, 1), periods_of([0, 1], 1, 2), level=1), "level"),
    "stack": (lambda: period_means(torch.rand(2, 2, 1), periods_of([0, 1], 1, 2)), r"\(N, J\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_named(case):
    call, words = BAD[case]
    with pytest.raises(PrerankError, match=words):
        call()


@pytest.mark.parametrize("kind", ["time", "cluster"])
def test_the_band_of_bars_keeps_its_level(kind):
    rng = np.random.default_rng(4)
    out = []
    for _ in range(200):
        if kind == "time":
            z, labels = series(rng, 400, 0.5), (range(400), None)
        else:
            z = norm.cdf(0.6**0.5 * rng.normal(size=(50, 1)) + 0.4**0.5 * rng.normal(size=(50, 8)))
            z, labels = z.reshape(-1, 1), (None, np.repeat(np.arange(50), 8))
        band = dependent_histogram_band(torch.from_numpy(z), row_units(*labels, 400), bins=10)
        bars = pit_histogram(z, bins=10).density
        out.append(bool(((bars < band.lower) | (bars > band.upper)).any()))
    # 200 at 5 %: a standard error of .0154. Rotations of few bars are not quite Gaussian.
    assert np.mean(out) < 0.05 + 4 * 0.0154


def test_weeks_begin_on_mondays_and_numbers_keep_their_digits():
    days = ["2025-01-01", "2025-01-02", "2025-01-05", "2025-01-06"]
    names, codes = periods_of(days, "week", 4)
    assert (names, codes.tolist()) == (("2024-12-30", "2025-01-06"), [0, 0, 0, 1])
    names, codes = periods_of([0.1, 0.2, 0.3, 0.6, 0.7], 0.1, 5)
    assert (names, codes.tolist()) == (("0.1", "0.2", "0.3", "0.6", "0.7"), [0, 1, 2, 3, 4])
    assert periods_of([1_000_000, 1_000_024], 24, 2)[0] == ("999984", "1000008")
