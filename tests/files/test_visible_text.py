"""Control characters and formulas in names of others."""

import json
import unicodedata

import pandas as pd

from prerank.files.visible_text import formula_safe, visible


def test_nothing_that_is_not_shown_is_left():
    every = "".join(f" {chr(code)}" for code in range(0x110000))
    left = set(visible(every))
    hidden = {c for c in every if unicodedata.category(c) in ("Cc", "Cf")} - {"\t", "\n"}
    turning = {c for c in every if unicodedata.bidirectional(c) in {
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}}  # fmt: skip
    assert not left & (hidden | turning | {"\u200e", "\u200f", "\u061c", "\u2028", "\u2029"})
    for hidden in ("\u202e", "\u200b", "\xad", "\U000e0041"):
        assert json.loads(f'"{visible(hidden)}"') == hidden
    assert visible("fl\u200dow") == "fl\\u200dow"
    # Fillers and selectors are not of the category Cf; runs of joiners look like one, or none.
    for hidden in "\u034f\u115f\u2800\u3164\ufe0f\U000e0100\u17b5\u180b":
        assert visible(f"flow{hidden}") == f"flow{json.dumps(hidden)[1:-1]}"
    assert visible("\u6c34\u200d") == "\u6c34\\u200d"
    assert visible("\u2019\u200c") == "\u2019\\u200c"
    assert visible("\u0915\u094d\u200d\u200d") == "\u0915\u094d\u200d\\u200d"
    for usual in (
        "Niederschlag in mm/h, ≤ 5 °C",
        "雨\t量\n",
        "مطر",
        "می\u200cشود",
        "क्\u200dष",
        "👩\u200d🔬",
        "❤\ufe0f",
        "🏳\ufe0f\u200d🌈",
    ):
        assert visible(usual) == usual


def test_numbers_written_as_text_are_left_alone():
    table = pd.DataFrame({"text": ["-1.5", "+2", "-1+1", "\n=1", "＝1", ""]})
    assert formula_safe(table).text.tolist() == ["-1.5", "+2", "'-1+1", "'\n=1", "'＝1", ""]


def test_texts_that_spreadsheets_would_run():
    table = pd.DataFrame(
        {"=cmd|' /C calc'!A0": [-1.0, 2.0], "site": ["@SUM(1)", None], "n": [1, -2]}
    )
    assert list(formula_safe(pd.DataFrame({"a\u202eb": [1]})).columns) == ["a\\u202eb"]
    safe = formula_safe(table)
    assert list(safe.columns) == ["'=cmd|' /C calc'!A0", "site", "n"]
    assert safe["site"][0] == "'@SUM(1)"
    assert safe["site"].isna()[1]
    assert safe.iloc[:, [0, 2]].to_numpy().tolist() == [[-1.0, 1], [2.0, -2]]
    assert table.columns[0].startswith("=")
