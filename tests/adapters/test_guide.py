"""The lines of the guide to other libraries that need one of them, run where it is installed."""

import re
from importlib.util import find_spec

import pytest

from adapters.judging import REQUIRED
from pages import ROOT, blocks

GUIDE = ROOT / "docs" / "guides" / "other_libraries.md"
# pytest runs the other ones.
BLOCKS = [block.text for block in blocks(GUIDE) if block.language == "{code-block} python"]
NEEDED = ["gluonts", "darts", "numpyro", "bayesflow", "arviz_base", "skpro"]


def library_of(block):
    [name] = [
        one for one in NEEDED if re.search(rf"^(import|from) (.*\b)?{one}\b", block, re.MULTILINE)
    ]
    return name


def test_each_library_has_its_lines():
    assert sorted(map(library_of, BLOCKS)) == sorted(NEEDED)


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("block", BLOCKS, ids=library_of)
def test_the_lines_run(block, monkeypatch, capsys):
    name = library_of(block)
    if find_spec(name) is None and name not in REQUIRED:
        pytest.skip(f"{name} is not installed: make test-adapters")
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # on torch it switches gradients off everywhere
    exec(compile(block, name, "exec"), {})
    assert capsys.readouterr().out
