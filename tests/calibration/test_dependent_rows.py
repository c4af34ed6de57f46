"""Rows that depend on each other: sizes, power, bands and margins on simulated series."""

import math

import numpy as np
import pytest
import torch

from prerank.calibration import pce_floor, reliability_curve
from prerank.calibration.dependent_limits import dependent_limits
from prerank.calibration.dependent_rows import DependentRows, row_units
from prerank.calibration.rotations import dependent_band, dependent_evidence
from prerank.errors import InputError, ShapeError

N, DATA_SETS = 500, 200


def series(strength, seed, shape=(N, 1)):
    """A stationary autoregression of variance 1."""
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    steps = [noise[0]]
    for step in noise[1:]:
        steps.append(strength * steps[-1] + math.sqrt(1 - strength**2) * step)
    return torch.stack(steps)


def pits(x):
    return torch.special.ndtr(x)


IN_ORDER = row_units(range(N), None, N)
GROUPS = torch.arange(N) // 10
CLUSTERED = row_units(None, GROUPS.numpy(), N)


def clustered(seed):
    source = torch.Generator().manual_seed(seed)
    level, own = (torch.randn(k, 1, generator=source, dtype=torch.float64) for k in (N // 10, N))
    return math.sqrt(0.5) * (level[GROUPS] + own)


DEPENDENT = [(lambda seed: series(0.6, seed), IN_ORDER), (clustered, CLUSTERED)]
# The bound is 7 % and three standard errors of 200 data sets: .07 + 3 sqrt(.07 * .93 / 200).
LARGEST = 0.07 + 3 * math.sqrt(0.07 * 0.93 / DATA_SETS)


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "rows"), DEPENDENT, ids=["time", "cluster"])
def test_sizes_and_bands_of_dependent_rows(draw, rows):
    small = outside = 0
    for seed in range(DATA_SETS):
        z = pits(draw(seed))
        small += dependent_evidence(z, rows, n_null=499).overall <= 0.05
        if seed % 4 == 0:
            band = dependent_band(z, rows)
            curve = reliability_curve(z).observed[:, 0]
            outside += bool(((curve < band.lower) | (curve > band.upper)).any())
    assert small / DATA_SETS <= LARGEST
    # 50 curves, of which 5 % may leave: .05 + 3 sqrt(.05 * .95 / 50).
    assert outside / 50 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 50)


@pytest.mark.slow
def test_several_components_and_strong_series():
    for strength in (0.3, 0.7):
        found = [
            dependent_evidence(pits(series(strength, seed, (N, 4))), IN_ORDER, n_null=499)
            for seed in range(DATA_SETS)
        ]
        assert np.mean([one.overall <= 0.05 for one in found]) <= LARGEST
        single = np.mean([one.p_values <= 0.05 for one in found])
        assert single <= LARGEST


def test_power_and_floor_at_independence():
    """A bias of .2 is found; the floor is on average that of independent rows."""
    found = [
        dependent_evidence(pits(series(0.0, seed) + 0.2), IN_ORDER, n_null=499)
        for seed in range(50)
    ]
    # 16 degrees of freedom against a bias of 4.5 standard errors: 98 %, less 3 standard errors.
    assert np.mean([one.overall <= 0.05 for one in found]) >= 0.9
    floors = [
        dependent_evidence(pits(series(0.0, seed)), IN_ORDER, n_null=9).floors[0]
        for seed in range(50)
    ]
    # A standard deviation from 16 terms has an error of 18 %, the mean of 50 of them 2.5 %.
    assert np.mean(floors) == pytest.approx(pce_floor(N), rel=0.075)


@pytest.mark.parametrize("bias", [0.0, 0.3])
@pytest.mark.parametrize(("draw", "rows"), DEPENDENT, ids=["time", "cluster"])
def test_each_limit_holds(draw, rows, bias):
    """Of one component and of the mean over two that are equal up to a sign."""
    levels = torch.linspace(0, 1, 100, dtype=torch.float64)
    truth = float((torch.special.ndtr(torch.special.ndtri(levels) - bias) - levels).abs().mean())
    wrong = np.zeros(4)
    for seed in range(60):
        x = draw(seed)
        own, mean = dependent_limits(pits(torch.cat([x + bias, bias - x], -1)), rows)
        lower, upper = ([float(one[0]), float(all_)] for one, all_ in zip(own, mean, strict=True))
        wrong += [*(value > truth for value in lower), *(value < truth for value in upper)]
    # 5 % of 60 and 2.6 standard errors of that.
    assert wrong.max() <= 3 + 2.6 * math.sqrt(60 * 0.05 * 0.95)


UNEQUAL = np.repeat(np.arange(205), [100] * 5 + [1] * 200)


def unequal(seed):
    """Five large clusters and many of one row, with an intraclass correlation of .7."""
    rng = np.random.default_rng(seed)
    x = math.sqrt(0.7) * rng.normal(size=205)[UNEQUAL] + math.sqrt(0.3) * rng.normal(size=700)
    return torch.from_numpy(x), row_units(None, rng.permutation(205)[UNEQUAL], 700)


@pytest.mark.slow
def test_lower_limits_of_unequal_clusters_hold():
    """A bias of .8, and none: 200 data sets, 5 % and 2.6 standard errors; 14 % before."""
    levels = torch.linspace(0, 1, 100, dtype=torch.float64)
    truth = float((torch.special.ndtr(torch.special.ndtri(levels) - 0.8) - levels).abs().mean())
    wrong = np.zeros(2)
    for seed in range(200):
        x, rows = unequal(seed)
        own, _ = dependent_limits(pits(torch.stack([x, x + 0.8], -1)), rows)
        wrong += own.lower.numpy() > [0, truth]
    assert wrong.max() / 200 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 200)


def test_widths_of_clusters():
    """Those of equal sizes have U - 1 degrees of freedom, five large ones among many small 4."""
    assert CLUSTERED.width == (N // 10 - 1, 1.0)
    degrees, factor = unequal(0)[1].width
    assert (degrees, factor) == (4, pytest.approx(math.sqrt(5.04 / 4.04 * 204 / 205), rel=0.01))
    assert IN_ORDER.width == (IN_ORDER.degrees, 1.0)


def test_sizes_of_few_times():
    """AR(.7) at 40 times: 1,000 data sets, 7 % and 2.6 standard errors; 11 % before."""
    rows = row_units(range(40), None, 40)
    small = [
        dependent_evidence(pits(series(0.7, seed, (40, 1))), rows, n_null=199).overall <= 0.05
        for seed in range(1000)
    ]
    assert np.mean(small) <= 0.07 + 2.6 * math.sqrt(0.07 * 0.93 / 1000)


@pytest.mark.parametrize(("count", "degrees"), [(10, 2), (60, 3), (200, 10), (320, 16), (9000, 16)])
def test_one_cosine_for_twenty_times(count, degrees):
    assert DependentRows("time", np.arange(count)).degrees == degrees


def test_order_counts_and_labels_do_not():
    """Shuffled rows with their times give the same answer; so do renamed clusters."""
    z = pits(series(0.6, 1))
    other = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    dates = np.datetime64("2024-01-01") + np.arange(N)
    for given, moved in (
        ({"time": dates, "cluster": None}, {"time": dates[other].astype(str), "cluster": None}),
        ({"time": None, "cluster": GROUPS}, {"time": None, "cluster": GROUPS[other]}),
    ):
        one = dependent_evidence(z, row_units(**given, n=N))
        two = dependent_evidence(z[other], row_units(**moved, n=N))
        assert one.overall == pytest.approx(two.overall, abs=1e-9)
        assert one.floors == pytest.approx(two.floors)


def test_text_is_a_label_and_what_is_missing_is_not():
    names = ["None", "nan", *"abcdefghij"] * 5
    assert row_units(None, names, 60).count == row_units(None, np.array(names), 60).count == 12
    for missing in (None, float("nan"), np.datetime64("NaT", "D")):
        given = [missing, *names[1:]]
        for one in (given, np.array(given, dtype=object)):
            with pytest.raises(InputError, match="missing values"):
                row_units(None, one, 60)
    with pytest.raises(InputError, match="missing values"):
        row_units(["nan", *map(str, range(59))], None, 60)


def test_rows_of_one_time_are_one_unit():
    """Ten copies of each row, at its time, say no more than the rows."""
    z = pits(series(0.3, 2))[:100]
    rows = row_units(np.repeat(np.arange(100), 10), None, 1000)
    assert rows.count == 100
    once = dependent_evidence(z, row_units(range(100), None, 100)).overall
    assert dependent_evidence(z.repeat_interleave(10, 0), rows).overall == pytest.approx(once)


def test_many_units_are_added_up():
    z = torch.rand(6000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for kind in ("time", "cluster", "row"):
        rows = DependentRows(kind, np.arange(6000))
        assert rows.curves(z[:, 0]).shape == (rows.degrees + 1, 100)
        found = dependent_evidence(z, rows, n_null=99)
        assert found.floors[0] == pytest.approx(pce_floor(6000), rel=0.6)


@pytest.mark.parametrize(
    ("time", "cluster", "error", "words"),
    [
        (range(20), range(20), InputError, "exclude each other"),
        (range(19), None, ShapeError, "time has shape"),
        ([1, 2] * 10, None, InputError, r"time has 2 different .* at least 10"),
        (None, ["a", "b"] * 10, InputError, r"cluster has 2 different .* at least 10"),
        (["soon"] * 20, None, InputError, "numbers or dates"),
        ([*range(19), float("nan")], None, InputError, "time has missing values"),
    ],
)
def test_refusals(time, cluster, error, words):
    with pytest.raises(error, match=words):
        row_units(time, cluster, 20)


def test_clusters_of_very_different_sizes_are_refused():
    sizes = [400, *[5] * 20]  # one decides alone
    with pytest.raises(InputError, match=r"effective number of clusters is 1\.0"):
        row_units(None, np.repeat(np.arange(21), sizes), 500)
