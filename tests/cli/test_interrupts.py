"""Commands that are interrupted: one line, a code of its own, and nothing half done."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from cli.commands import COMMAND, NONE, SETTINGS, contents, fit, interrupted, without_progress

SCRIPT = (sys.executable, "-X", "importtime", "-c", "from prerank.__main__ import main; main()")
STARTS = {"module": (*COMMAND[:1], "-X", "importtime", *COMMAND[1:]), "script": SCRIPT}


@pytest.mark.parametrize("module", ["typing", "torch._C"])
@pytest.mark.parametrize("start", STARTS)
def test_an_interrupt_at_the_start(start, module, place):
    """While modules are imported, which takes seconds: one of the first, and one in the middle."""
    process = subprocess.Popen(
        [*STARTS[start], "explain", "pca(2)"],
        cwd=place,
        env=os.environ | SETTINGS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if len(lines) > 1 and line.split()[-1] == module:
                process.send_signal(signal.SIGINT)
        output = process.stdout.read()
    finally:
        process.kill()
        process.communicate()
    told = [line for line in lines if not line.startswith("import time:")]
    assert (process.returncode, output) == (130, "")
    assert told == ["Error: interrupted before the command started\n"]


BETWEEN = """
import os, signal, sys
import typer.main

made = typer.main.get_command

def interrupted(app):
    os.kill(os.getpid(), signal.SIGINT)
    return made(app)

typer.main.get_command = interrupted
from prerank.__main__ import main
main()
"""


def test_an_interrupt_while_the_commands_are_made(place):
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN, "datasets", "list"],
        cwd=place,
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Error: interrupted before the command started\n"


def test_an_interrupt_at_the_end_changes_nothing(place):
    late = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    done = subprocess.run(
        [sys.executable, "-c", f"{late}; from prerank.__main__ import main; main()", "--help"],
        cwd=place,
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "diagnose" in done.stdout


def test_an_interrupted_training_leaves_nothing(rivers, tmp_path_factory, place):
    table = tmp_path_factory.mktemp("table") / "rivers.csv"
    rivers.to_csv(table, index=False)
    words = ("--targets", "flow,load", "--out", "new/model")
    code, output, shown = interrupted(
        *("fit", table, *words),
        cwd=place,
        number=signal.SIGINT,
        ready=lambda shown: b"training, " in shown,
    )
    assert (code, output) == (130, b"")
    assert "Error: interrupted: nothing half done is left" in shown
    assert "Traceback" not in shown
    assert contents(place) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("at", ["training.trainer.Trainer.step", "report.html.write_page"])
def test_a_signal_leaves_the_old_model(at, number, fitted, place, undrawn, monkeypatch):
    """A signal to this process: while it trains, and while it writes."""
    _, folder = fitted
    shutil.copytree(folder / "model", place / "model")
    before, seen = contents(place), []

    def stop(*_):
        seen.extend(path.suffix for path in place.glob(".model.*/new/*"))
        os.kill(os.getpid(), number)

    monkeypatch.setattr(f"prerank.{at}", stop)
    done = fit(folder / "rivers.csv", *NONE, "--force")
    assert (done.exit_code, done.stdout) == (130, "")
    assert without_progress(done.stderr) == "Error: interrupted: nothing half done is left\n"
    assert contents(place) == before
    assert (".safetensors" in seen) == (at == "report.html.write_page")
