"""The workflows of a public forge: valid, without what a linter warns of, the Makefile's steps."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("check_jsonschema", reason="make test-supply")

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
TOOLS = Path(sys.executable).parent
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
FILES = {
    "github-workflows": [*(FORGE / "workflows").glob("*.yml")],
    "github-issue-forms": [FORGE / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "feature")],
    "github-issue-config": [FORGE / "ISSUE_TEMPLATE" / "config.yml"],
    "readthedocs": [ROOT / ".readthedocs.yaml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
if not FORGE.exists():
    pytest.skip(f"{FORGE} is not in this copy of the source", allow_module_level=True)


def said(tool, *words):
    """Status and output of a tool."""
    done = subprocess.run(
        [TOOLS / tool, *words], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("schema", FILES)
def test_files_of_the_forge_are_valid(schema):
    assert FILES[schema]
    status, words = said("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *FILES[schema])
    assert status == 0, words


def test_the_schema_refuses_what_is_wrong(tmp_path):
    """A job without a machine to run on."""
    broken = tmp_path / "broken.yml"
    broken.write_text("on: push\njobs:\n  one:\n    steps:\n      - run: make test\n")
    assert said("check-jsonschema", "--builtin-schema", "vendor.github-workflows", broken)[0] == 1


def test_the_linter_of_workflows_finds_nothing(tmp_path):
    status, words = said("zizmor", "--offline", "--pedantic", FORGE / "workflows")
    assert status == 0, words
    unpinned = tmp_path / "unpinned.yml"
    unpinned.write_text(
        "on: push\njobs:\n  one:\n    runs-on: ubuntu-24.04\n    steps:\n"
        "      - uses: someone/something@main\n"
    )
    assert said("zizmor", "--offline", unpinned)[0] != 0  # it can find something


def test_steps_are_those_of_the_makefile():
    run = (ROOT / ".ci" / "run").read_text()
    asked = re.findall(r"^make (.+)$", run, flags=re.MULTILINE)
    workflow = (FORGE / "workflows" / "tests.yml").read_text()
    offered = re.findall(r"^ {10}- (.+)$", workflow, flags=re.MULTILINE)
    assert offered == asked
    every = [line for path in FILES["github-workflows"] for line in path.read_text().splitlines()]
    commands = [line.split("run: ", 1)[1] for line in every if "run: " in line]
    assert len(commands) > 4
    for command in commands:
        assert command == "make $TARGET" or command.split()[:1] == ["make"]
        assert command == "make $TARGET" or command.split()[1] in TARGETS
