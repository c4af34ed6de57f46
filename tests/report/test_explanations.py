"""Words for every pre-rank."""

from dataclasses import asdict

import pytest

from prerank.preranks import Custom
from prerank.report.explanations import EXPLANATIONS, explanation_of
from truths import PRERANKS

NAMED = list({p.name: p for p in PRERANKS if not isinstance(p, Custom)}.values())


@pytest.mark.parametrize("prerank", NAMED, ids=lambda prerank: prerank.name)
def test_every_prerank_is_explained(prerank):
    assert prerank.name in EXPLANATIONS
    words = asdict(explanation_of(prerank.label))
    assert all(text and not text.endswith(".") for text in words.values())


def test_there_are_no_words_for_what_is_not_there():
    assert set(EXPLANATIONS) == {prerank.name for prerank in NAMED}


def test_a_function_has_general_words():
    assert "function" in explanation_of("my_own").question


@pytest.mark.parametrize("label", ["pca(0.8)", "dependency(2)", "threshold_exceedance(1.5)"])
def test_arguments_do_not_matter(label):
    assert explanation_of(label) is EXPLANATIONS[label.partition("(")[0]]
