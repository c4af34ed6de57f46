"""The source repeats nothing, imports one way, and no two modules share a name."""

from pathlib import Path

import house
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("check", [house.repeats, house.cycles, house.names])
def test_the_source_is_in_order(check):
    assert check(ROOT / "src") == []


BLOCK = [f"x{i} = f(x, {i})" for i in range(6)]


@pytest.fixture
def source(tmp_path):
    """Writes modules into an empty package."""

    def write(**texts):
        for name, text in {"__init__": "", **texts}.items():
            path = tmp_path / "pack" / f"{name.replace('__dot__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_a_repeated_block_is_found_whatever_stands_between_its_lines(source):
    apart = "\n\n".join(f"{line}\n# {i}" for i, line in enumerate(BLOCK))
    found = house.repeats(source(a="\n".join(["y = 1", *BLOCK]), b=apart))
    assert found == [f"pack/a.py:2-7 ~ pack/b.py:1-{len(apart.splitlines()) - 1}"]
    assert house.repeats(source(a="\n".join(BLOCK), b="\n".join(BLOCK[:5]))) == []


def test_a_longer_block_is_one(source):
    found = house.repeats(source(a="\n".join([*BLOCK, "y = 1"]), b="\n".join([*BLOCK, "y = 1"])))
    assert found == ["pack/a.py:1-7 ~ pack/b.py:1-7"]


def test_a_block_may_stand_twice_in_one_module(source):
    assert house.repeats(source(a="\n".join([*BLOCK, "y = 1", *BLOCK]))) == [
        "pack/a.py:1-6 ~ pack/a.py:8-13"
    ]


def test_imports_docstrings_and_headers_are_no_repeats(source):
    header = "\n".join(["def f(", *(f"    a{i}=None," for i in range(8)), "):"])
    words = '    """Says.\n\n' + "    more\n" * 8 + '    """\n'
    imports = "\n".join(f"import m{i}" for i in range(8))
    text = f"{imports}\n{header}\n{words}"
    assert house.repeats(source(a=text, b=text)) == []


@pytest.mark.parametrize(
    "back",
    [
        "import pack.a",
        "from pack import a",
        "from pack.a import f",
        "from . import a",
        "from .a import f",
        "def f():\n    from pack.a import f",
    ],
)
def test_a_cycle_is_found_at_every_level(source, back):
    assert house.cycles(source(a="from pack.b import g", b=back)) == ["pack.a <-> pack.b"]


def test_types_alone_make_no_cycle(source):
    back = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.a import f"
    assert house.cycles(source(a="from pack.b import g", b=back)) == []


def test_names_may_occur_once(source):
    folder = source(a="", sub__dot__a="", sub__dot__base="", base="", sub__dot____init__="")
    assert house.names(folder) == ["a: pack/a.py, pack/sub/a.py"]
    assert house.sizes(folder) == {"pack": (3, 0), "pack.sub": (3, 0)}


def test_code_is_counted_without_words(source):
    text = '"""Module."""\n\nx = """\ntext\n"""  # why\n\n# a comment\ndef f():\n    """Does."""\n'
    folder = source(a=text)
    lines = {3: 'x = """', 4: "text", 5: '"""  # why', 8: "def f():"}
    assert house.code_lines(folder / "pack" / "a.py") == lines
