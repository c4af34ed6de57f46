"""Inputs find the rows of the observations: by keys, by row numbers, by order."""

import numpy as np
import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.files import read_forecasts, write_samples

DAYS = np.array([3, 1, 2, 5])


@pytest.fixture
def folder(tmp_path):
    observed = pd.DataFrame({"day": DAYS, "rain": [0.3, 0.1, 0.2, 0.5], "wet": [1, 0, 0, 1]})
    observed.to_csv(tmp_path / "observed.csv", index=False)
    write_samples(
        tmp_path / "samples.npz", np.random.default_rng(0).normal(size=(9, 4, 1)), ["rain"]
    )
    return tmp_path


def read(folder, inputs, **options):
    files = folder / "samples.npz", folder / "observed.csv"
    return read_forecasts(*files, targets="rain", inputs=folder / inputs, **options)


def write(folder, **columns):
    pd.DataFrame(columns).to_csv(folder / "inputs.csv", index=False)


def test_by_a_column_of_both_files(folder):
    write(folder, day=[1, 2, 3, 4, 5], humidity=[10.0, 20.0, 30.0, 40.0, 50.0])
    table = read(folder, "inputs.csv").inputs
    assert list(table) == ["humidity"]
    assert table.humidity.tolist() == [30.0, 10.0, 20.0, 50.0]


def test_by_order_and_by_row_numbers(folder):
    write(folder, humidity=[1, 2, 3, 4], place=["a", "b", None, "a"])
    table = read(folder, "inputs.csv").inputs
    assert table.humidity.tolist() == [1, 2, 3, 4]
    assert table.place.isna().tolist() == [False, False, True, False]
    write(folder, row=[3, 2, 1, 0], humidity=[1, 2, 3, 4])
    table = read(folder, "inputs.csv").inputs
    assert list(table) == ["humidity"]
    assert table.humidity.tolist() == [4, 3, 2, 1]


def test_other_columns_of_the_observations(folder):
    table = read(folder, "observed.csv").inputs
    assert list(table) == ["day", "wet"]
    assert table.day.tolist() == DAYS.tolist()


def test_dates_are_left_out_with_a_remark(folder):
    pd.DataFrame({"when": pd.date_range("2024-01-01", periods=4), "a": range(4)}).to_parquet(
        folder / "inputs.parquet"
    )
    forecasts = read(folder, "inputs.parquet")
    assert list(forecasts.inputs) == ["a"]
    assert forecasts.remarks[-1].endswith("dates or no numbers: when")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"humidity": [1, 2, 3]}, "3 rows of inputs for the 4 rows"),
        ({"day": [1, 2, 3], "a": [1, 2, 3]}, "1 of 4 observations have no row of inputs.*day=5"),
        ({"day": [1, 2, 3, 5, 5], "a": [1, 2, 3, 4, 5]}, "several rows of inputs"),
        ({"day": [1, 2, 3, 5]}, "no input beside"),
    ],
)
def test_refusals(folder, columns, words):
    write(folder, **columns)
    with pytest.raises(InputError, match=rf"inputs\.csv: .*{words}"):
        read(folder, "inputs.csv")
