"""Code that lies in the current folder does not run in workers, unless it is the function's."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import prerank
from prerank.study.engines.search_path import search_path
from study.engines.jobs import square

SOURCE = Path(prerank.__file__).parents[1]
# Python imports it at its start, from whatever folder its path names.
TRAP = "import os; open(f'ran{os.getpid()}', 'w').close()"
USE = """
from prerank.study.engines import {engine}, Task
print({engine}(workers=1, retries=0).map({function}, [Task("minus three", -3)]).values)
"""
PROCESSES = USE.format(engine="Processes", function="abs")


@pytest.fixture
def trapped(tmp_path):
    """A folder with modules that nobody asked for."""
    for name in ("sitecustomize", "torch", "scipy", "rich", "typer", "pandas"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    return tmp_path


def start(*words, cwd, said=None):
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        input=said,
        capture_output=True,
        text=True,
        check=False,
    )


def ran(folder):
    return [path.name for path in folder.glob("ran*")]


@pytest.mark.parametrize("words", [["-c", PROCESSES], ["-i"]], ids=["command", "interactive"])
def test_workers_do_not_search_the_current_folder(tmp_path, words):
    (tmp_path / "sitecustomize.py").write_text(TRAP)
    said = PROCESSES if words == ["-i"] else None
    done = start(*words, cwd=tmp_path, said=said)
    assert "{'minus three': 3}" in done.stdout, done.stderr
    assert ran(tmp_path) == []


def test_a_command_does_not_search_the_current_folder(trapped):
    done = start("-m", "prerank", "explain", "hdr", cwd=trapped)
    assert done.returncode == 0, done.stderr
    assert ran(trapped) == []


def test_the_folder_of_the_function_is_searched(tmp_path):
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    lines = "import mine\n" + USE.format(engine="Processes", function="mine.double")
    done = start("-c", lines, cwd=tmp_path)
    assert "{'minus three': -6}" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("function", ["abs", "mine.double"])
def test_workers_of_ray_do_not_search_the_current_folder(tmp_path, function):
    pytest.importorskip("ray")
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    lines = "import mine\n" + USE.format(engine="RayCluster", function=function)
    if function == "abs":
        for name in ("rich", "scipy", "torch"):
            (tmp_path / f"{name}.py").write_text(TRAP)
        # No name of the current folder is a module of the driver: it does not search it itself.
        lines = f"import sys; sys.path.pop(0)\n{lines.removeprefix('import mine')}"
    done = start("-c", lines, cwd=tmp_path)
    assert f"{{'minus three': {3 if function == 'abs' else -6}}}" in done.stdout, done.stderr
    assert ran(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["", "."])
def test_processes_of_ray_do_not_search_the_current_folder(tmp_path, entry):
    """Its own ones take PYTHONPATH as it stands; the driver has its modules by then."""
    pytest.importorskip("ray")
    trap = f"import os; open({str(tmp_path)!r} + f'/ran{{os.getpid()}}', 'w').close()"
    lines = f"""
import os, pathlib, ray
from prerank.study.engines import RayCluster
os.environ["PYTHONPATH"] += os.pathsep + {entry!r}
for name in ("sitecustomize", "json", "torch"):
    pathlib.Path(name + ".py").write_text({trap!r})
before = os.environ["PYTHONPATH"]
"""
    code = lines + USE.format(engine="RayCluster", function="abs")
    done = start("-c", f"{code}\nassert os.environ['PYTHONPATH'] == before", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "{'minus three': 3}" in done.stdout
    assert ran(tmp_path) == []


def test_what_counts_as_the_folder_of_a_function(tmp_path, monkeypatch):
    home = Path(__file__).parents[2]
    for folder, kept in ((home, True), (home / "study", False), (tmp_path, False)):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", ["", str(folder), *sys.path])
        for function in (square, functools.partial(square, 1)):
            assert (str(folder) in search_path(function)) is kept
        assert str(folder) not in search_path(abs)
