"""Reliability curves in words."""

import itertools

import pytest

from prerank.calibration import DeviationShape
from prerank.report import reliability_caption

LOW, HIGH = DeviationShape(True, -1, 0), DeviationShape(True, 1, 0)
NARROW, WIDE = DeviationShape(True, 0, 1), DeviationShape(True, 0, -1)
INSIDE = DeviationShape(False, 1, 1)

SENTENCES = [
    ("scale", [INSIDE], "scale: within the 95 % band."),
    ("marginal", [LOW], "marginal: observed values lower than predicted."),
    ("marginal", [HIGH], "marginal: observed values higher than predicted."),
    ("marginal", [NARROW], "marginal: predictions too narrow."),
    ("marginal", [WIDE], "marginal: predictions too wide."),
    (
        "marginal",
        [DeviationShape(True, 1, 1)],
        "marginal: observed values higher than predicted and predictions too narrow.",
    ),
    (
        "location",
        [DeviationShape(True, 0, 0)],
        "location: uneven in a way that is neither a shift nor a wrong spread.",
    ),
    ("dependency(2)", [HIGH], "dependency(2): neighbouring targets more alike than predicted."),
    (
        "marginal",
        [LOW, INSIDE, LOW, WIDE, LOW],
        "marginal: observed values lower than predicted in 0, 2 and 4; within the 95 % band in 1; "
        "predictions too wide in 3.",
    ),
    (
        "copula",
        [DeviationShape(True, 1, 1)],
        "copula: observations too often above many samples in every target at once (values higher "
        "than predicted, or targets that move together more) and a number of samples below that "
        "varies more than predicted (targets that move together more, or predictions too narrow).",
    ),
    ("", [WIDE, WIDE], "values that vary less than predicted in 0 and 1."),
]


@pytest.mark.parametrize(("label", "shapes", "sentence"), SENTENCES)
def test_sentences(label, shapes, sentence):
    names = [str(j) for j in range(len(shapes))]
    assert reliability_caption(label, names, shapes) == sentence


def test_densities_have_words_of_their_own():
    low = reliability_caption("hdr", ["hdr"], [LOW])
    high = reliability_caption("hdr", ["hdr"], [HIGH])
    assert "density is low (predictions too narrow" in low
    assert "density is high (predictions too wide" in high
    signs = [s for s in itertools.product((-1, 0, 1), repeat=2) if any(s)]
    for shift, spread in signs:
        text = reliability_caption("hdr", ["hdr"], [DeviationShape(True, shift, spread)])
        assert "observed values" not in text
        assert text.count(".") == 1


def test_the_level_is_named():
    assert "99.5 % band" in reliability_caption("scale", ["scale"], [INSIDE], level=0.995)
