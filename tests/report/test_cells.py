"""Tables as text: what a reader sees, and what a browser sorts by."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from prerank.report.wording import Cell, table_columns


def cells(values, name="pce", **options):
    (column,) = table_columns(pd.DataFrame({name: pd.Series(values, **options)}))
    return column


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (0.5, "0.5"),
        (1.0, "1"),
        (0.0, "0"),
        (-0.00912345, "-0.009123"),
        (0.00012345, "0.0001234"),
        (0.0000123456, "1.235e-05"),
        (1234.567, "1235"),
        (123456.7, "123500"),
        (1.5e9, "1.5e+09"),
        (np.inf, "inf"),
        (-np.inf, "-inf"),
    ],
)
def test_floats_have_four_significant_digits(value, text):
    column = cells([value])
    assert column.numeric
    assert column.cells[0].text == text
    assert float(column.cells[0].value) == value


@pytest.mark.parametrize("name", ["p", "p_value", "p_holm"])
def test_p_values_have_one_form(name):
    column = cells([0.0, 2e-5, 0.00099, 0.001, 0.2, None], name)
    assert [cell.text for cell in column.cells] == ["<0.001"] * 3 + ["0.001", "0.200", ""]
    assert [cell.value for cell in column.cells[:3]] == ["0.0", "2e-05", "0.00099"]


def test_only_p_values_are_cut():
    assert cells([2e-5], "pce").cells[0].text == "2e-05"
    assert cells([2e-5], "tp_rate").cells[0].text == "2e-05"
    assert cells([-2e-5], "p_gain").cells[0].text == "-2e-05"
    assert cells([0], "p_index").cells[0].text == "0"  # a count


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, "", "  "])
def test_missing_values_are_blank(missing):
    column = cells(["a", missing], dtype=object)
    assert column.cells == [Cell("a", "a"), Cell("", None)]
    column = cells([1.5, missing], dtype=object)
    assert column.numeric
    assert column.cells == [Cell("1.5", "1.5"), Cell("", None)]
    assert not cells([missing], dtype=object).numeric


@pytest.mark.parametrize(
    ("values", "options", "texts", "numeric"),
    [
        ([3, 12], {}, ["3", "12"], True),
        ([3, None], {"dtype": "Int64"}, ["3", ""], True),
        ([0.1, 2.0], {"dtype": "float32"}, ["0.1", "2"], True),
        ([0.25, None], {"dtype": "Float64"}, ["0.25", ""], True),
        ([True, False], {}, ["yes", "no"], False),
        ([True, None], {"dtype": "boolean"}, ["yes", ""], False),
        (["b", "a"], {"dtype": "category"}, ["b", "a"], False),
        ([pd.Timestamp("2024-05-01")], {}, ["2024-05-01 00:00:00"], False),
        (["rain", 0.123456], {"dtype": object}, ["rain", "0.1235"], False),
        ([[1, 2], (3,)], {"dtype": object}, ["[1, 2]", "(3,)"], False),
        ([Decimal("0.5")], {"dtype": object}, ["0.5"], False),
    ],
)
def test_every_kind_of_value_is_shown(values, options, texts, numeric):
    column = cells(values, **options)
    assert [cell.text for cell in column.cells] == texts
    assert column.numeric == numeric


def test_names_may_repeat_and_be_anything():
    frame = pd.DataFrame([[1, "x", 2.5]], columns=["a", "a", ("b", 3)])
    columns = table_columns(frame)
    assert [column.name for column in columns] == ["a", "a", "('b', 3)"]
    assert [column.cells[0].text for column in columns] == ["1", "x", "2.5"]
    assert table_columns(pd.DataFrame()) == []
