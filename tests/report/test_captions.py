"""Reliability curves in words."""

import itertools
import re

import pytest

from prerank.calibration import DeviationShape
from prerank.report import reliability_caption
from prerank.report.explanations import EXPLANATIONS

LOW, HIGH = DeviationShape(True, -1, 0), DeviationShape(True, 1, 0)
WIDE = DeviationShape(True, 0, -1)
INSIDE = DeviationShape(False, 1, 1)

SMALL = "PITs too small (values too often below the predicted median)"
MIDDLE = "PITs crowded in the middle (values too often near the predicted median)"
SENTENCES = [
    ("scale", [INSIDE], "scale: within the 95 % band."),
    ("marginal", [LOW], f"marginal: {SMALL}."),
    ("marginal", [WIDE], f"marginal: {MIDDLE}."),
    (
        "marginal",
        [DeviationShape(True, 1, 1)],
        "marginal: PITs too large and crowded at both ends (values too often above the predicted "
        "median and values too often far from the predicted median).",
    ),
    ("location", [DeviationShape(True, 0, 0)], "location: PITs uneven in another way."),
    (
        "dependency(2)",
        [HIGH],
        "dependency(2): PITs too large (neighbouring targets too often like each other).",
    ),
    (
        "marginal",
        [LOW, INSIDE, LOW, WIDE, LOW],
        f"marginal: {SMALL} in 0, 2 and 4; within the 95 % band in 1; {MIDDLE} in 3.",
    ),
    ("", [WIDE, WIDE], f"{MIDDLE} in 0 and 1."),
]


@pytest.mark.parametrize(("label", "shapes", "sentence"), SENTENCES)
def test_sentences(label, shapes, sentence):
    names = [str(j) for j in range(len(shapes))]
    assert reliability_caption(label, names, shapes) == sentence


@pytest.mark.parametrize("label", EXPLANATIONS)
def test_a_curve_alone_names_no_cause(label):
    """Heavy tails, a wrong width and a wrong dependence may have the same curve."""
    for shift, spread in itertools.product((-1, 0, 1), repeat=2):
        text = reliability_caption(label, [label], [DeviationShape(True, shift, spread)])
        assert not re.search(
            r"narrow|wide|tails|than predicted|move together|bias|lower|higher", text
        )
        assert text.count(".") == 1


def test_what_tests_found_comes_first():
    text = reliability_caption(
        "marginal", ["a", "b", "c"], [WIDE, INSIDE, INSIDE], causes=["heavy tails", "skew", ""]
    )
    band = "within the 95 % band"
    assert text == f"marginal: heavy tails in a; skew, though {band}, in b; {band} in c."


def test_the_level_is_named():
    assert "99.5 % band" in reliability_caption("scale", ["scale"], [INSIDE], level=0.995)
