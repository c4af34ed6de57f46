"""A head tried on held-out rows: which rows these are, and that units do not matter."""

import numpy as np
import pandas as pd
import pytest

from prerank import Ensemble
from prerank.diagnosis.trial import held_out_rows, try_head
from prerank.errors import InputError


def test_rows_are_held_out_at_random_or_at_the_end():
    held = held_out_rows(100, 0.2, seed=0)
    assert held.sum() == 20
    assert (held != held_out_rows(100, 0.2, seed=1)).any()
    np.testing.assert_array_equal(held, held_out_rows(100, 0.2, seed=0))
    last = np.arange(100) >= 80
    days = pd.date_range("2024-01-20", periods=100)
    order = np.random.default_rng(0).permutation(100)
    for times in (
        [f"{n - 50}" for n in range(100)],  # 9 before 10, and -1 before 0
        [f"{n}e-3" for n in range(100)],
        [str(day) for day in days],
        [f"{day:%Y-%m-%dT%H:%M}+01:00" for day in days],
    ):
        shuffled = held_out_rows(100, 0.2, seed=0, times=[times[n] for n in order])
        np.testing.assert_array_equal(shuffled, last[order])


def test_rows_of_one_time_stay_together():
    """Three stations a day: the day that is cut belongs to the held-out rows."""
    held = held_out_rows(100, 0.2, seed=0, times=[str(n // 3) for n in range(100)])
    np.testing.assert_array_equal(held, np.arange(100) >= 78)


@pytest.mark.parametrize(
    ("n", "times", "words"),
    [
        (24, None, "24 rows are too few to calibrate by 19 and judge on 5"),
        (1, None, "1 rows are too few"),
        (40, ["2024"] * 40, "40 rows are too few to calibrate by 0 and judge on 40"),
        (40, ["31.12.2024"] * 40, "times, such as '31.12.2024', must be numbers or dates like"),
        (40, ["2024-01-01", "later"] * 20, "must be numbers or dates"),
    ],
)
def test_rows_that_cannot_be_split(n, times, words):
    with pytest.raises(InputError, match=words):
        held_out_rows(n, 0.2, seed=0, times=times)


def test_units_do_not_matter():
    """Neither for the fit nor for the diagnosis; location would add metres to millimetres."""
    random = np.random.default_rng(0)
    centre = random.normal(size=(150, 2))
    y = pd.DataFrame(centre + random.normal(size=(150, 2)), columns=["a", "b"])
    samples = centre + 0.5 * random.normal(size=(10, 150, 2))
    held = held_out_rows(150, 0.4, seed=0)
    units = np.array([1.0, 1024.0])  # a power of two: rounding is the same
    one, other = (
        try_head(samples * u, y * u, held, preranks="location", seed=0) for u in (1.0, units)
    )
    assert other.before.findings == one.before.findings
    assert other.after.findings == one.after.findings
    assert other.energy == pytest.approx(one.energy, rel=1e-9)
    assert one.changed
    assert one.after.findings[0].excess < one.before.findings[0].excess
    np.testing.assert_allclose(
        other.head(Ensemble(samples * units)).samples.numpy() / units,
        one.head(Ensemble(samples)).samples.numpy(),
        rtol=1e-9,
        atol=1e-12,
    )


def test_times_divide_the_rows_of_the_fit():
    """A wrong time is refused by the fit, so it arrives there."""
    rng = np.random.default_rng(0)
    samples, y = rng.normal(size=(10, 60, 1)), pd.DataFrame({"a": rng.normal(size=60)})
    held = held_out_rows(60, 0.2, seed=0)
    with pytest.raises(InputError, match="time has 1 different"):
        try_head(samples, y, held, preranks="location", seed=0, times=["1"] * 60)
    times = [str(k) for k in range(60)]
    assert try_head(samples, y, held, preranks="location", seed=0, times=times).n_fitted == 48
