"""Columns of a file: text that reads as numbers, missing values, and numbers beyond float64."""

import numpy as np
import pyarrow as pa
import pytest

from prerank.errors import InputError
from prerank.files.columns import as_column, as_numbers


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(["1", "2.5", None], [1, 2.5, None]), (["nan", "-1e3"], [None, -1000])],
)
def test_text_that_reads_as_numbers(texts, expected):
    column = as_numbers("y", pa.chunked_array([texts]))
    assert column.kind == "number"
    assert [None if np.isnan(v) else v for v in column.values] == expected


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["1", "x" * 100], r"such as 'x{40}\.\.\.'"),
        (["1,5", "2,5"], "'1,5': decimals need a point"),
        (["", "1"], "such as ''"),
    ],
)
def test_text_in_a_target(texts, words):
    with pytest.raises(InputError, match=words):
        as_numbers("y", pa.chunked_array([texts]))


def test_a_column_knows_its_missing_values():
    column = as_column("a", pa.chunked_array([[1.5, None], [float("nan"), 1.5]]))
    assert column.missing.tolist() == [False, True, True, False]
    assert column.distinct == 1


def test_a_column_knows_whole_numbers_beyond_float64():
    column = as_column("a", pa.chunked_array([[2**62, None], [2**62 + 1, 2**62, 2**63 - 1]]))
    assert column.values[0] == column.values[2] == 2.0**62
    assert column.rest.tolist() == [0, 0, 1, 0, -1]
    assert column.distinct == 3
