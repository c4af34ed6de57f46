"""Dates and missing values as numbers: known values, and the same in new tables."""

import numpy as np
import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.files.date_features import DateFeatures
from prerank.files.encoding import TableEncoder, table_encoder

TABLE = pd.DataFrame(
    {
        "day": pd.to_datetime(["2020-01-01 00:00", "2021-01-01 06:00", None, "2022-07-02 00:00"]),
        "depth": [1.0, np.nan, 4.0, 2.0],
        "bed": ["mud", "sand", None, "mud"],
        "flow": [1, 2, 3, 4],
    }
)


def test_dates_are_a_trend_and_turns():
    features = DateFeatures.fit(TABLE.day)
    assert features.cycles == ("year", "week", "day")
    encoded = features(TABLE.day)
    assert encoded[:, 0][[0, 1, 3]].tolist() == [0.0, 366.25, 913.0]
    assert np.isnan(encoded[2]).all()
    turns = encoded[[0, 1, 3], 1:].reshape(3, 3, 2)
    assert np.allclose(np.hypot(turns[..., 0], turns[..., 1]), 1, rtol=1e-12)
    assert np.allclose(
        turns[:, 2], [[0, 1], [1, 0], [0, 1]], atol=1e-6
    )  # six is a quarter of a day
    weeks = features(pd.Series(pd.to_datetime(["2020-01-01", "2020-01-08"])))
    assert np.allclose(weeks[0, 3:5], weeks[1, 3:5], atol=1e-9)


def test_cycles_that_were_not_seen_are_left_out():
    days = pd.Series(pd.date_range("2020-01-01", periods=5))
    assert DateFeatures.fit(days).cycles == ()
    assert DateFeatures.fit(pd.Series(pd.date_range("2020-01-01", periods=60))).cycles == ("week",)
    with pytest.raises(InputError, match="held dates in fit"):
        DateFeatures.fit(days)(pd.Series([1, 2], name="day"))


def test_the_clock_of_a_zone_counts():
    plain = pd.Series(pd.date_range("2020-01-01", periods=50, freq="5h"))
    zoned = plain.dt.tz_localize("Asia/Tokyo")
    assert np.allclose(DateFeatures.fit(plain)(plain), DateFeatures.fit(zoned)(zoned))


def test_gaps_are_filled_and_flagged():
    encoder = TableEncoder.fit(TABLE, impute=True, dates=True)
    encoded = encoder(TABLE)
    assert encoded.shape == (4, encoder.width)
    assert encoded[:, 8:10].tolist() == [[1, 0], [2, 1], [4, 0], [2, 0]]  # the median is 2
    assert encoded[:, 10:13].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert encoded[:, 7].tolist() == [0, 0, 1, 0]  # the flag of the day
    new = encoder(TABLE.iloc[:1].assign(flow=np.nan))  # none was missing: the median, and no flag
    assert new[0, -1] == 2.5
    assert encoder.unfilled(TABLE).shape == (4, 0)


def test_what_is_not_asked_for_is_refused():
    with pytest.raises(InputError, match="'day' holds dates"):
        table_encoder(TABLE)
    with pytest.raises(InputError, match="'bed' has 1 missing"):
        table_encoder(TABLE.drop(columns="day"))
    with pytest.raises(InputError, match="'depth' has 4 missing"):
        table_encoder(TABLE.assign(depth=np.nan), impute=True, dates=True)
    with pytest.raises(InputError, match="impute=True needs a DataFrame"):
        table_encoder(np.ones((3, 2)), impute=True)
    assert table_encoder(TABLE[["flow"]]) is None


def test_a_single_row_may_lack_any_value():
    """All values of such a column are None, and pandas takes them for objects."""
    encoder = TableEncoder.fit(TABLE, impute=True, dates=True)
    whole = encoder(TABLE.iloc[:1])
    for name in TABLE.columns:
        row = pd.DataFrame([{**TABLE.iloc[0].to_dict(), name: None}])
        encoded = encoder(row)
        assert encoded.shape == whole.shape
        assert np.isfinite(encoded).all()
