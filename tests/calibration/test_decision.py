"""What counts as a failure, decided from plain numbers."""

import math

import pytest

from prerank.calibration import DeviationShape, null_pce, pce_floor
from prerank.calibration.decision import decide
from prerank.calibration.evidence import Evidence, Part

NARROW, FINE = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
LOW, UNEVEN = DeviationShape(True, -1, 0), DeviationShape(True, 0, 0)


def evidence(label, p, parts, *, pce=0.08, floor=0.01, powerless=False):
    """Parts are pairs of a p-value and a shape."""
    named = tuple(Part(f"{label}{j}", pce, q, shape) for j, (q, shape) in enumerate(parts))
    return Evidence(label, pce, floor, p, named, powerless=powerless)


MARGINS = evidence("marginal", 0.9, [(0.9, FINE), (0.9, FINE)])

# Evidence beside margins that pass, and where the fault is said to be.
PLACES = {
    "a margin": ([evidence("marginal", 0.001, [(0.001, NARROW), (0.9, FINE)])], "margins"),
    "the mean of margins": ([evidence("marginal", 0.001, [(0.06, NARROW)] * 2)], "all margins"),
    "spread of the mean": ([MARGINS, evidence("location", 0.001, [(0.001, NARROW)])], "dependence"),
    "shift of the mean": ([MARGINS, evidence("location", 0.001, [(0.001, LOW)])], "elsewhere"),
    "distances": ([MARGINS, evidence("scale", 0.001, [(0.001, LOW)])], "dependence"),
    "a density": ([MARGINS, evidence("hdr", 0.001, [(0.001, LOW)])], "elsewhere"),
    "no margins": ([evidence("scale", 0.001, [(0.001, LOW)])], "elsewhere"),
    "a label with an argument": (
        [MARGINS, evidence("dependency(2)", 0.001, [(0.001, LOW)])],
        "dependence",
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_the_place_of_a_fault(case):
    given, place = PLACES[case]
    decision = decide(given, n=500)
    assert decision.status == "bad"
    assert decision.fault.place == place
    assert set(decision.fault.witnesses) <= set(decision.failing)


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        (NARROW, ("narrow",)),
        (DeviationShape(True, 0, -1), ("wide",)),
        (DeviationShape(True, 1, -1), ("bias", "wide")),
        (UNEVEN, ("shape",)),
    ],
)
def test_kinds_of_wrong_margins(shape, kinds):
    assert decide([evidence("marginal", 0.001, [(0.001, shape)])], n=500).fault.kinds == kinds


@pytest.mark.parametrize(
    ("label", "shape", "together"),
    [
        ("location", NARROW, 1),
        ("location", DeviationShape(True, 0, -1), -1),
        ("scale", LOW, 1),
        ("scale", DeviationShape(True, 1, 0), -1),
        ("dependency", LOW, 0),
    ],
)
def test_whether_targets_move_together(label, shape, together):
    decision = decide([MARGINS, evidence(label, 0.001, [(0.001, shape)])], n=500)
    assert decision.fault.together == together


@pytest.mark.parametrize(
    ("excess", "degree"),
    [(0.009, "slight"), (0.011, "moderate"), (0.029, "moderate"), (0.031, "strong")],
)
def test_degrees(excess, degree):
    given = evidence("marginal", 0.001, [(0.001, NARROW)], pce=0.01 + excess)
    assert decide([given], n=500).fault.degree == degree


@pytest.mark.parametrize(
    ("p", "part", "status", "certain"),
    [
        (0.049, 0.9, "bad", False),
        (0.009, 0.9, "bad", True),
        (0.06, 0.0049, "bad", True),  # times two components: below .01
        (0.06, 0.0051, "good", None),
    ],
)
def test_rules_of_evidence(p, part, status, certain):
    decision = decide([evidence("pca", p, [(part, NARROW), (0.9, FINE)])], n=2000)
    assert decision.status == status
    assert (None if decision.fault is None else decision.fault.certain) is certain


def test_without_p_values_or_power_nothing_is_decided():
    weighted = evidence("marginal", math.nan, [(math.nan, None)])
    assert decide([weighted], n=500).status == "unclear"
    tied = evidence("copula", 0.001, [(0.001, LOW)], powerless=True)
    assert decide([tied], n=500).status == "unclear"
    assert decide([tied, evidence("scale", 0.001, [(0.001, LOW)])], n=500).status == "bad"


@pytest.mark.parametrize(("n", "status"), [(20, "unclear"), (1000, "good")])
def test_a_pass_counts_where_errors_would_be_seen(n, status):
    decision = decide([evidence("scale", 0.5, [(0.5, FINE)])], n=n)
    assert decision.status == status
    seen = null_pce(n)
    assert decision.detectable == pytest.approx(seen[int(0.95 * len(seen))] - pce_floor(n))
