"""What is written is read back exactly, or nothing is written."""

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prerank.errors import InputError
from prerank.files import read_forecasts, write_samples

SUFFIXES = [".parquet", ".pq", ".csv", ".tsv", ".npz"]
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)
SHAPES = st.tuples(st.integers(2, 5), st.integers(1, 6), st.integers(1, 3))


@given(
    suffix=st.sampled_from(SUFFIXES),
    samples=SHAPES.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=FLOATS)),
)
@example(".csv", np.array([[[5e-324]], [[0.1 + 0.2]]]))
@example(".tsv", np.array([[[1 / 3]], [[-1.7976931348623157e308]]]))
def test_round_trip(tmp_path_factory, suffix, samples):
    """Also where S = N, and where all samples are alike: names tell targets from keys."""
    folder = tmp_path_factory.mktemp("round")
    names = [f"target {d}" for d in range(samples.shape[2])]
    path = write_samples(folder / f"s{suffix}", samples, names)
    pd.DataFrame(samples[-1], columns=names).to_parquet(folder / "y.parquet")
    found = read_forecasts(path, folder / "y.parquet", targets=names)
    np.testing.assert_array_equal(found.samples, samples)
    np.testing.assert_array_equal(found.observations, samples[-1])
    assert found.targets == tuple(names)
    assert found.remarks == ()
    assert sorted(os.listdir(folder)) == [path.name, "y.parquet"]


KEYS = {
    "text": {"id": ["a,b", 'c"d', "e\nf", "ü"]},
    "objects": {"id": np.array(list("wxyz"), dtype=object)},
    "dates": {"day": pd.date_range("2024-02-28", periods=4)},
    "whole days": {
        "day": np.array(["2024-02-28", "2024-02-29", "1650-01-01", "2300-01-01"], "M8[D]")
    },
    "two": {"lat": [0.1, 0.1, 0.3, 0.3], "lon": [1, 2, 1, 2]},
    "row": {"row": [7, 5, 9, 1]},
}


@pytest.mark.parametrize("case", KEYS)
def test_round_trip_with_keys(tmp_path, case):
    samples = np.random.default_rng(0).normal(size=(4, 4, 2))
    truth = pd.DataFrame(samples[0], columns=["u", "v"]).assign(**KEYS[case]).iloc[[3, 1, 0, 2]]
    truth.to_parquet(tmp_path / "y.parquet", index=False)
    for suffix in (".parquet", ".csv", ".npz"):
        path = write_samples(tmp_path / f"s{suffix}", samples, ["u", "v"], KEYS[case])
        found = read_forecasts(path, tmp_path / "y.parquet")
        np.testing.assert_array_equal(found.samples, samples[:, [3, 1, 0, 2]])
        np.testing.assert_array_equal(found.observations, samples[0, [3, 1, 0, 2]])
        assert len(found.remarks) == 1


def test_one_target_without_an_axis(tmp_path):
    samples = np.arange(6).reshape(3, 2)
    np.save(tmp_path / "y.npy", np.zeros(2))
    for suffix in (".csv", ".npz"):
        path = write_samples(tmp_path / f"s{suffix}", samples, ["u"])
        found = read_forecasts(path, tmp_path / "y.npy")
        np.testing.assert_array_equal(found.samples, samples[..., None])
        assert found.targets == ("u",)


GOOD = np.zeros((3, 2, 2))
BAD = {
    "suffix": ("s.xlsx", GOOD, ["u", "v"], None, r"ends in '\.xlsx' cannot be written"),
    "names": ("s.csv", GOOD, ["u"], None, r"shape \(3, 2, 2\): for 1 targets"),
    "axes": ("s.csv", GOOD[0], ["u", "v"], None, r"shape \(2, 2\): for 2 targets"),
    "empty": ("s.csv", GOOD[:, :0], ["u", "v"], None, "and not empty"),
    "one": ("s.csv", GOOD[:1], ["u", "v"], None, "1 sample for each forecast"),
    "NaN": ("s.csv", GOOD * np.nan, ["u", "v"], None, "12 of 12 samples are NaN or infinite"),
    "text": ("s.csv", GOOD.astype(str), ["u", "v"], None, "only numbers can be written"),
    "same names": ("s.csv", GOOD, ["u", "u"], None, "'u' cannot name a column"),
    "sample": ("s.csv", GOOD, ["u", "sample"], None, "'sample' cannot name a column"),
    "row": ("s.csv", GOOD, ["u", "row"], None, "'row' cannot name a column"),
    "space": ("s.csv", GOOD, ["u", " v"], None, "' v' cannot name a column"),
    "no name": ("s.csv", GOOD, ["u", ""], None, "'' cannot name a column"),
    "key is target": ("s.csv", GOOD, ["u", "v"], {"v": [1, 2]}, "'v' cannot name a column"),
    "key length": ("s.csv", GOOD, ["u", "v"], {"k": [1, 2, 3]}, r"key 'k' has shape \(3,\), where"),
    "key kind": ("s.csv", GOOD, ["u", "v"], {"k": [1, None]}, "numbers, dates or text alone"),
    "no key": ("s.csv", GOOD, ["u", "v"], {}, "key needs at least one column"),
    "same keys": (
        "s.csv",
        GOOD,
        ["u", "v"],
        {"k": [1, 1]},
        r"forecasts 0 and 1 \(from 0 on\) have the same key",
    ),
    "missing key": ("s.csv", GOOD, ["u", "v"], {"k": [1, np.nan]}, "key 'k' has no value for"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_written(tmp_path, case):
    file, samples, targets, key, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        write_samples(tmp_path / file, samples, targets, key)
    assert str(caught.value).startswith(f"{tmp_path / file}: ")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_samples(tmp_path / "file" / "s.csv", GOOD, ["u", "v"])
