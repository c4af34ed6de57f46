"""Inputs in bins: numbers, texts, categories, missing values, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank.calibration.axes import Condition, input_columns
from prerank.errors import InputError, InputTypeError, ShapeError


def test_numbers_are_cut_into_bins_of_equal_size():
    [column] = input_columns(torch.arange(100.0), None, 100)
    axis = column.cut(10)
    assert column.name == "x0"
    assert np.bincount(axis.codes).tolist() == [10] * 10
    assert str(axis.condition(3, 10)) == "x0 above 29.5"
    assert str(axis.condition(0, 2)) == "x0 below 19.5"
    assert str(axis.condition(1, 2)) == "x0 between 9.5 and 19.5"
    assert axis.condition(0, 10) is None


def test_a_finer_grid_has_all_bounds_of_a_coarser_one():
    [column] = input_columns(np.random.default_rng(0).normal(size=997), None, 997)
    assert set(column.cut(6).highs) <= set(column.cut(24).highs)
    assert set(column.cut(40).highs) <= set(column.cut(120).highs)


def test_equal_numbers_stay_together_and_few_are_named():
    [month] = input_columns(np.repeat(np.arange(1, 13), 5)[:, None], ["month"], 60)
    axis = month.cut(6)
    assert len(set(zip(axis.codes, np.repeat(np.arange(12), 5), strict=True))) == 12
    axis = month.cut(40)
    assert str(axis.condition(5, 8)) == "month between 6 and 8"
    assert str(axis.condition(4, 5)) == "month = 5"


def test_a_table_has_levels_truth_values_and_missing_values():
    table = pd.DataFrame(
        {
            "station": ["Bonn", "Ghent", None, "Bonn"],
            "grade": pd.Categorical([1, 2, 1, 1]),
            "wet": [True, False, True, True],
            "rain": [0.5, np.nan, 1.0, 2.0],
            "mixed": pd.Series([1, 2.5, None, 3], dtype=object),
        }
    )
    station, grade, wet, rain, mixed = input_columns(table, None, 4)
    assert station.levels == ("Bonn", "Ghent", "missing")
    assert grade.levels == ("1", "2")
    assert wet.levels == ()
    assert rain.levels == mixed.levels == ("missing",)
    axis = station.cut(40)
    assert axis.ranges.tolist() == [[0, 3], [0, 1], [1, 2], [2, 3]]
    assert str(axis.condition(0, 1)) == "station is Bonn"
    assert str(rain.cut(40).condition(3, 4)) == "rain is missing"
    assert str(wet.cut(40).condition(1, 2)) == "wet = 1"


def test_rare_levels_are_taken_together():
    texts = [f"t{k}" for k in range(100) for _ in range(1 + (k < 3))]
    [column] = input_columns(pd.DataFrame({"id": texts}), None, 103)
    assert len(column.levels) == 40
    assert column.levels[-1] == "other levels"
    assert int((column.members == 39).sum()) == 103 - 6 - 36


def test_the_rows_of_a_condition():
    [column] = input_columns(np.array([1.0, 2.0, np.nan, 4.0]), ["a"], 4)
    assert column.meets(Condition("a", low=2.0)).tolist() == [False, True, False, True]
    assert column.meets(Condition("a", level="missing")).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("X", "names", "error", "words"),
    [
        (np.zeros((3, 2)), None, ShapeError, "4 rows"),
        (np.zeros((4, 0)), None, ShapeError, "X has shape"),
        (np.zeros((4, 2)), ["a"], ShapeError, "1 names, but 2 are needed"),
        (np.zeros((4, 2)), ["a", "a"], InputError, "several inputs named a"),
        (np.full((4, 1), np.inf), None, InputError, "infinite in 4 of 4"),
        (np.zeros((4, 1), dtype="M8[D]"), None, InputTypeError, "dates"),
        (np.zeros((4, 1), dtype=complex), None, InputTypeError, "complex"),
    ],
)
def test_refusals(X, names, error, words):
    with pytest.raises(error, match=words):
        input_columns(X, names, 4)


def test_a_value_that_is_there_is_a_condition():
    [column] = input_columns(np.array([1.0, np.nan, 2.0]), ["rain"], 3)
    condition = Condition("rain")
    assert str(condition) == "rain is not missing"
    assert column.meets(condition).tolist() == [True, False, True]
    assert column.suits(condition)
    assert not column.suits(Condition("rain", level="Bonn"))
