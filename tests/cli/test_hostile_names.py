"""Names with control characters, marks of direction and formulas, from the table to all outputs."""

from pathlib import Path

import pandas as pd
import pytest

from cli.commands import NONE, call, fit, record

ESCAPE, TURN, FORMULA = "a\x1b[2Jb", "x\u202ey", "=cmd|' /C calc'!A0"


@pytest.fixture
def hostile(rivers, write, undrawn):
    names = dict(zip(["flow", "load"], [f"{ESCAPE}{TURN}", FORMULA], strict=True))
    return write(rivers.rename(columns=names)), list(names.values())


def test_they_are_shown_and_not_obeyed(hostile):
    table, names = hostile
    done = fit(table, *NONE, targets=",".join(names))
    assert done.exit_code == 0, done.stderr
    page = Path("model/report.html").read_text(encoding="utf-8")
    predicted = call("predict", "model", table, "--out", "predictions.csv", "--json")
    assert predicted.exit_code == 0, predicted.stderr
    told = call("fit", table, "--targets", TURN + "\x1b[2J", "--out", "other")
    for text in (done.stdout, page, predicted.stdout, told.stderr):
        assert not set(text) & {"\x1b", "\u202e"}
    assert "\\u202e" in told.stderr
    assert any(ESCAPE in column for column in record(predicted)["columns"])
    columns = list(pd.read_csv("predictions.csv").columns)
    assert not [column for column in columns if column[0] in "=+-@"]
    assert any(column.startswith(f"'{FORMULA}") for column in columns)
