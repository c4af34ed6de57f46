"""Answers of the command line are those of the golden files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import prerank
from golden.answers import COMMANDS, TRAINED, make_answers, make_inputs, make_options
from golden.compare import check_same, read

SOURCE = Path(prerank.__file__).parents[1]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Run all commands once."""
    return make_answers(tmp_path_factory.mktemp("answers"))


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer(name, answers):
    check_same(answers[name], read("json", f"{name}.json"), trained=name in TRAINED)


def test_no_option_is_lost(tmp_path):
    found = make_options(tmp_path)
    for command, options in read("json", "options.json").items():
        assert set(options) <= set(found[command]), command


def test_a_process_of_its_own_answers_the_same(tmp_path):
    make_inputs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "prerank", *COMMANDS["diagnose_text_check"]],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(SOURCE), "COLUMNS": "100", "NO_COLOR": "1"}
        | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    expected = read("json", "diagnose_text_check.json")
    lines = [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]
    assert (done.returncode, lines) == (expected["code"], expected["text"])
