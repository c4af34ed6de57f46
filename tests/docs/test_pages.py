"""The code in the pages: Python runs as doctests of the pages, commands run or are parsed here."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from typer.main import get_command

import prerank
from pages import PAGES, ROOT, blocks, commands
from prerank.cli import app

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language in ("", "console")]
LINES = sorted({tuple(words) for block in SHELL for words in commands(block)})
LANGUAGES = {"", "python", "console", "bibtex"}  # or a directive of the pages, in braces


def test_pages_have_code():
    assert len(PAGES) > 20
    assert sum(block.language == "python" for block in BLOCKS) > 20
    assert len(LINES) > 10


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_python_is_executed(block):
    assert block.language in LANGUAGES or block.language.startswith("{")
    prompts = [line for line in block.text.splitlines() if line.lstrip().startswith(">>>")]
    if block.language == "python":
        # The first line is an example, and the last one empty: a fence is no expected output.
        assert block.text.startswith(">>> ")
        assert block.text.endswith("\n\n")
        assert doctest.DocTestParser().get_examples(block.text)
    else:
        assert not prompts
        if not block.language:  # indented: commands, and no Python that nobody runs
            assert not re.search(r"^(import |from \w|\w+ = |\w[\w.]*\()", block.text, re.M)


@pytest.mark.parametrize("page", PAGES[:3], ids=lambda page: page.name)
def test_links_outside_the_site_lead_somewhere(page):
    """Those of the other pages are looked up in the built site."""
    links = [urlsplit(link) for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    local = [link.path for link in links if not link.scheme]
    assert local or page.name != "README.md"
    assert [path for path in local if not (ROOT / path).exists()] == []


def test_tests_that_pages_name_exist():
    files = list((ROOT / "tests").rglob("test_*.py"))
    functions = {
        f"{file.stem}.py::{name}"
        for file in files
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(), re.M)
    }
    known = {name for function in functions for name in function.split(".py::")}
    for page in PAGES:
        text = page.read_text()
        named = {*re.findall(r"\btest_\w+\b(?!=)", text)}  # not an argument
        assert named <= known | {file.stem for file in files}, page
        assert {*re.findall(r"\btest_\w+\.py::test_\w+", text)} <= functions, page


def test_the_version_to_cite_is_this_one():
    record = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(record)
    assert record["version"] == prerank.__version__
    assert f"version = {{{prerank.__version__}}}" in (ROOT / "docs" / "cite.md").read_text()


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_commands_are_understood(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("quick-study", "model", "results"):  # that the lines take for granted
        (tmp_path / folder).mkdir()
    command, context, left = get_command(app), None, list(words)
    name = "prerank"
    while True:
        context = command.make_context(name, left, parent=context)
        if not hasattr(command, "resolve_command"):
            break
        left = [*getattr(context, "_protected_args", []), *context.args]
        name, command, left = command.resolve_command(context, left)
    assert context.info_name == name


SCRIPTS = sorted({m for b in SHELL for m in re.findall(r"python (\S+\.py)((?: +\S+)*)", b.text)})


@pytest.mark.parametrize(("script", "options"), SCRIPTS)
def test_scripts_have_the_options_of_the_pages(script, options):
    if not (ROOT / "experiments").exists() and script.startswith("experiments"):
        pytest.skip("experiments/ is not in this copy of the source")
    path = ROOT / script
    source = path.read_text()
    beside = [
        path.with_name(f"{name}.py") for name in re.findall(r"^from (\w+) import", source, re.M)
    ]
    source += "".join(module.read_text() for module in beside if module.exists())
    for option in re.findall(r"--[\w-]+", options):
        assert f'"{option}"' in source


@pytest.mark.site
def test_the_guide_to_the_command_line_works(tmp_path):
    page = ROOT / "docs" / "guides" / "command_line.md"
    parts = list(blocks(page))
    python = next(part.text for part in parts if part.language == "python")
    examples = doctest.DocTestParser().get_examples(python)
    (tmp_path / "make.py").write_text("".join(example.source for example in examples))
    commands = [part.text for part in parts if part.language == "console"]
    diagnoses = [text for text in commands if text.startswith("prerank diagnose")]
    shell = [text for text in diagnoses if "--within" not in text]
    script = "\n".join(["set -euo pipefail", f"{sys.executable} make.py", *shell])
    prerank = tmp_path / "bin" / "prerank"
    prerank.parent.mkdir()
    prerank.write_text(f'#!/bin/sh\nexec {sys.executable} -m prerank "$@"\n')
    prerank.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{prerank.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "too narrow" in done.stdout
    assert "winter" in done.stdout
    assert done.stdout.rstrip().endswith("exit code 4")
    assert Path(tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "verdict.json").stat().st_size > 100
