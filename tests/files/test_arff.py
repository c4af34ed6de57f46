"""ARFF files: what is read, and every fault by its line."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerank.errors import InputError
from prerank.files.arff import read_arff

FLOATS = st.floats(allow_nan=False, width=64)


def test_arff_details():
    columns = read_arff(
        "@relation x\n"
        "@attribute 'it\\'s' numeric\n"
        '@attribute "double ""numeric\n'
        "@attribute bed{mud,'coarse, gravel',\"?\"}\n"
        "@attribute day date 'yyyy-MM-dd'\n"
        "@attribute note string\n"
        "@data\n"
        "1.5,2,mud,2020-01-01,'tab\\there'\r\n"
        "  -1e3 , ? , 'coarse, gravel' , ?, \"don't\"  \n"
        "% 1,2,3\n"
        '?,inf,"?",2020-01-03, plain\n'.replace('"double ""numeric', '"double " numeric')
    ).to_pydict()
    assert columns == {
        "it's": [1.5, -1000, None],
        "double ": [2, None, math.inf],
        "bed": ["mud", "coarse, gravel", "?"],
        "day": ["2020-01-01", None, "2020-01-03"],
        "note": ["tab\there", "don't", "plain"],
    }


def test_arff_with_tabs_and_without_rows():
    head = "@relation x\n@attribute a real\n@attribute b integer\n@data\n"
    assert read_arff(head + "1\t2\n3\t4\n").to_pydict() == {"a": [1, 3], "b": [2, 4]}
    assert read_arff(head).num_rows == 0


HEAD = "@relation x\n@attribute a numeric\n@attribute b {u, v}\n@data\n"
BAD_ARFF = {
    "too few values": (HEAD + "1\n", "line 5: 1 values, where 2 attributes"),
    "too many values": (HEAD + "1,u\n2,v,3\n", "line 6: 3 values, where 2 attributes"),
    "no number": (HEAD + "one,u\n", "line 5: 'a' is numeric, and 'one' is not"),
    "a number for people": (HEAD + "1_000,u\n", "'a' is numeric, and '1_000' is not"),
    "no level": (HEAD + "1,w\n", "line 5: 'b' has no level 'w'"),
    "open quote": (HEAD + "1,'u\n", "line 5: the quote before 'u' is never closed"),
    "after a quote": (HEAD + "1,'u'v\n", "line 5: 'v' follows a closing quote"),
    "sparse": (HEAD + "{0 1, 1 u}\n", "line 5: sparse rows"),
    "weights": (HEAD + "1,u,{5}\n", "line 5: 3 values"),
    "no data": ("@relation x\n@attribute a numeric\n", "no @data section"),
    "no attributes": ("@relation x\n@data\n1\n", "line 2: @data comes before any @attribute"),
    "no name": ("@attribute\n@data\n", "line 1: an @attribute without a name"),
    "no type": ("@attribute a\n@data\n", "line 1: attribute 'a' has the type ''"),
    "no levels": ("@attribute a {}\n@data\n", "has the type '{}'"),
    "open levels": ("@attribute a {u, v\n@data\n", "not supported"),
    "relational": ("@attribute a relational\n@data\n", "'relational', which is not supported"),
    "open name": ("@attribute 'a numeric\n@data\n", "line 1: the quote before 'a numeric'"),
    "a long line": ("x" * 1000, r"line 1: 'x{40}\.\.\.' is neither"),
}


@pytest.mark.parametrize("case", BAD_ARFF)
def test_bad_arff(case):
    text, words = BAD_ARFF[case]
    with pytest.raises(InputError, match=words):
        read_arff(text)


def quoted(text, quote):
    return quote + re.sub(r"([\\'\"])", r"\\\1", text) + quote


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=6)


@settings(max_examples=60)
@given(
    st.lists(TEXTS.filter(bool), min_size=2, max_size=2, unique=True),
    st.lists(st.tuples(st.none() | FLOATS, st.none() | TEXTS), max_size=6),
    st.sampled_from("'\""),
)
def test_arff_goes_round(names, rows, quote):
    levels = sorted({text for _, text in rows if text is not None} | {"other"})
    lines = [
        "@RELATION r",
        f"@attribute {quoted(names[0], quote)} numeric",
        f"@attribute {quoted(names[1], quote)} {{{','.join(quoted(v, quote) for v in levels)}}}",
        "@data",
        *(
            f"{'?' if a is None else repr(a)},{'?' if b is None else quoted(b, quote)}"
            for a, b in rows
        ),
    ]
    columns = read_arff("\n".join(lines)).to_pydict()
    assert columns == {names[0]: [a for a, _ in rows], names[1]: [b for _, b in rows]}
