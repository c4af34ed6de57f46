"""Names with control characters, marks of direction and formulas, from the table to all outputs."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.commands import NONE, call, fit, record, run

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


LINE = "south: calibrated\nVerdict of all rows: jointly calibrated :smile:"


@pytest.fixture
def forecasts(tmp_path, monkeypatch):
    """Files of forecasts with a group, a key and a target of somebody else's making."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    keys = [f"=k{i}{ESCAPE}" for i in range(60)]
    observed = pd.DataFrame({"key": keys, "at": [LINE, "north"] * 30, "shift": -1.5})
    observed[FORMULA], observed["load"] = random.normal(size=(2, 60))
    observed.to_csv("observed.csv", index=False)
    samples = pd.DataFrame({"key": np.repeat(keys, 12), "sample": np.tile(range(12), 60)})
    samples[FORMULA], samples["load"] = random.normal(size=(2, 720))
    samples.to_csv("samples.csv", index=False)
    return "--samples", "samples.csv", "--observations", "observed.csv", "--key", "key"


def test_the_name_of_a_group_begins_no_line(forecasts):
    done = call("diagnose", *forecasts, "--by", "at")
    assert done.exit_code == 0, done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith("Verdict of all")]
    assert "\\nVerdict of all rows" in done.stdout
    assert ":smile:" in done.stdout


def test_repaired_samples_hold_no_formulas(forecasts):
    done = call("calibrate", *forecasts, "--apply", "samples.csv", "--out", "out.csv")
    assert done.exit_code == 0, done.stderr
    assert "\x1b" not in Path("out.csv").read_text(encoding="utf-8")
    table = pd.read_csv("out.csv")
    assert table.columns.tolist() == ["key", "sample", f"'{FORMULA}", "load"]
    assert table["key"].str.startswith("'=k").all()
    assert table["load"].dtype.kind == "f"


def test_settings_of_figures_in_the_current_folder_are_left_alone(forecasts, tmp_path):
    latex = tmp_path / "bin" / "latex"
    latex.parent.mkdir()
    latex.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
    latex.chmod(0o755)
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    done = run(
        *("diagnose", *forecasts, "--out", "page.html"),
        cwd=tmp_path,
        PATH=f"{latex.parent}{os.pathsep}{os.environ['PATH']}",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").exists()
    assert not list(tmp_path.rglob("ran"))
