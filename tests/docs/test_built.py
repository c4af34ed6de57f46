"""The paths through the code that a page shows are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how_it_is_built.md").read_text(encoding="utf-8")
LINES = re.findall(r"^(\w[\w/]*\.py) +(\w+(?:, \w+)*)$", PAGE, re.MULTILINE)


def test_there_are_three_paths():
    assert [file for file, _ in LINES if file.startswith("cli/")] == [
        f"cli/{command}.py" for command in ("diagnose", "reading", "fit", "study", "study")
    ]


@pytest.mark.parametrize(("file", "functions"), LINES)
def test_a_path_names_functions_that_are_there(file, functions):
    source = (ROOT / "src" / "prerank" / file).read_text(encoding="utf-8")
    for function in functions.split(", "):
        assert re.search(rf"^ *def {function}\(", source, re.MULTILINE)
