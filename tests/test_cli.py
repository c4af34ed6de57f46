"""The command line, as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import prerank
from prerank.cli import app

SOURCE = Path(prerank.__file__).parents[1]


def run(*arguments, cwd):
    environment = os.environ | {
        "PYTHONPATH": str(SOURCE),
        "COLUMNS": "120",
        "OMP_NUM_THREADS": "1",
        "PYTHONIOENCODING": "utf-8",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "prerank", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def verdicts(output):
    """One dict of pre-rank and verdict for each table of the demonstration."""
    tables = []
    for line in output.splitlines():
        if "law" in line or "Misspecified" in line:
            tables.append({})
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if len(cells) == 7:
            tables[-1][cells[0]] = cells[-1]
    return tables


def test_version(tmp_path):
    done = run("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.strip() == f"prerank {prerank.__version__}"
    assert done.stderr == ""


def test_help_lists_the_commands(tmp_path):
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert "--version" in done.stdout
    assert done.stderr == ""


BAD = [
    ((), "Usage"),
    (("demonstrate",), "demonstrate"),
    (("demo", "--rows", "10"), "--rows"),
    (("demo", "--rows", "many"), "--rows"),
]


@pytest.mark.parametrize(("arguments", "word"), BAD, ids=[" ".join(a) or "nothing" for a, _ in BAD])
def test_bad_arguments_exit_with_2(arguments, word):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert word in done.output


def test_demo_finds_the_misspecified_predictor(tmp_path):
    done = run("demo", "--rows", "300", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    right, wrong = verdicts(done.stdout)
    names = ["marginal", "location", "scale", "dependency", "pca", "hdr", "copula"]
    assert list(right) == list(wrong) == names
    assert set(right.values()) | set(wrong.values()) == {"miscalibrated", "no evidence"}
    for name in ("scale", "dependency", "hdr"):
        assert wrong[name] == "miscalibrated"
    assert wrong["marginal"] == right["marginal"] == "no evidence"
    # One of the right predictor's seven may look odd by chance: that is what p-values are.
    assert list(right.values()).count("miscalibrated") <= 1
    assert "300 rows" in done.stdout
    assert list(tmp_path.iterdir()) == []
