"""Commands answer at once where nothing has to be computed: torch takes seconds to load."""

import json
import os
import subprocess
import sys

import pytest

from cli.commands import COMMAND, SETTINGS
from prerank.preranks import Isotropy, Variogram, parse
from prerank.report.explanations import EXPLANATIONS

HEAVY = {"torch", "numpy", "scipy", "pandas", "sklearn", "matplotlib", "pyarrow", "ray"}
HELP = """
import json, sys
from typer.main import get_command
from typer.testing import CliRunner
from prerank.cli import app

def paths(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths(inner, (*path, name))

asked = {}
for path in paths(get_command(app)):
    done = CliRunner().invoke(app, [*path, "--help"])
    asked[" ".join(path)] = [done.exit_code, done.output, sorted(sys.modules)]
print(json.dumps(asked))
"""
RUN = """
import json, sys
from prerank.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("\\0" + json.dumps(sorted(sys.modules)))
"""


def python(code, *words, cwd):
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(os.name != "posix", reason="a folder that is in use stays")
def test_a_folder_that_was_deleted(place):
    """Libraries that torch needs would end the process there, without a word of ours."""
    for words, code in {"--version": 0, "explain": 1}.items():
        (place / "gone").mkdir()
        done = subprocess.run(
            ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *COMMAND, words],
            cwd=place / "gone",
            env=os.environ | SETTINGS,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        told = "Error: the current folder was deleted: change to one that exists\n"
        assert done.stderr == (told if code else "")


def test_no_help_loads_a_library_of_numbers(place):
    asked = json.loads(python(HELP, cwd=place))
    assert {"", "fit", "study", "study run", "datasets fetch", "demo"} <= asked.keys()
    assert len(asked) > 15
    for path, (code, text, modules) in asked.items():
        assert code == 0, path
        assert f"Usage: prerank {path}".strip() in " ".join(text.split()), path
        assert set() == HEAVY & set(modules), path


@pytest.mark.parametrize(
    "words", [("--version",), ("--help",), ("explain",), ("explain", "hdr+copula")], ids=" ".join
)
def test_commands_that_compute_nothing_load_little(words, place):
    _, _, modules = python(RUN, *words, cwd=place).partition("\0")
    assert set() == HEAVY & set(json.loads(modules))


def test_names_that_are_explained_are_those_that_are_read():
    """A bare name is not parsed: its label has to be itself. Those of fields are never text."""
    names = set(EXPLANATIONS) - {Variogram.name, Isotropy.name}
    assert {name: parse(name)[0].label for name in names} == {name: name for name in names}


def shown(environment, cwd):
    """What the runtime of OpenMP says of itself when a command loads it with torch."""
    done = subprocess.run(
        [*COMMAND, "explain", "pca(2)"],
        cwd=cwd,
        env=os.environ | SETTINGS | {"OMP_DISPLAY_ENV": "true"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.replace(" ", "").replace("'", "").upper().splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime of torch differs")
def test_threads_of_a_command_sleep_while_they_wait(place):
    assert any(line.endswith("OMP_WAIT_POLICY=PASSIVE") for line in shown({}, place))
    chosen = shown({"OMP_WAIT_POLICY": "active"}, place)
    assert any(line.endswith("OMP_WAIT_POLICY=ACTIVE") for line in chosen)
