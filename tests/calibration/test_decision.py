"""What counts as a failure, decided from plain numbers."""

import math

import pytest

from prerank.calibration import DeviationShape, null_pce, pce_floor
from prerank.calibration.causes import Causes
from prerank.calibration.decision import decide
from prerank.calibration.dependence import Dependence
from prerank.calibration.evidence import Evidence, Part

NARROW, FINE = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
LOW = DeviationShape(True, -1, 0)


def evidence(label, p, parts, *, pce=0.08, floor=0.01, **fields):
    """Parts are pairs of a p-value and a shape."""
    named = tuple(Part(f"{label}{j}", pce, q, shape) for j, (q, shape) in enumerate(parts))
    return Evidence(label, pce, floor, p, named, **fields)


FAILING = [evidence("marginal", 0.001, [(0.001, NARROW), (0.9, FINE)])]
TESTED = [evidence("marginal", 0.9, [(0.9, FINE)] * 2), evidence("scale", 0.001, [(0.001, LOW)])]
WRONG, RIGHT = Dependence(0.001, 1, 0, ()), Dependence(0.3, 1, 0, ())


def causes(targets=None, shared=(), dependence=None):
    return Causes(targets or {}, shared, ("rain", "wind"), dependence)


@pytest.mark.parametrize(
    ("given", "found", "place", "witness"),
    [
        (FAILING, causes({"rain": ("narrow",)}), "margins", "marginal"),
        (FAILING, causes(shared=("wide",)), "margins", "marginal"),
        (TESTED, causes(shared=("wide",), dependence=WRONG), "margins", "marginal"),
        (TESTED, causes(dependence=WRONG), "dependence", "scale"),
        (TESTED, causes(dependence=RIGHT), "elsewhere", "scale"),
        (TESTED, causes(), "elsewhere", "scale"),
        (FAILING, None, "elsewhere", "marginal"),
    ],
)
def test_the_place_of_a_fault(given, found, place, witness):
    decision = decide(given, n=500, causes=found)
    assert decision.status == "bad"
    assert decision.fault.place == place
    assert [one.label for one in decision.fault.witnesses] == [witness]


@pytest.mark.parametrize(
    ("least", "degree"),
    [
        (0.0, "slight"),
        (0.009, "slight"),
        (0.011, "moderate"),
        (0.029, "moderate"),
        (0.031, "strong"),
    ],
)
def test_degrees_are_those_of_a_lower_limit(least, degree):
    given = evidence("marginal", 0.001, [(0.001, NARROW)], least=least)
    fault = decide([given], n=500).fault
    assert (fault.degree, fault.least) == (degree, least)


@pytest.mark.parametrize(
    ("p", "status", "certain"),
    [(0.049, "bad", False), (0.009, "bad", True), (0.051, "good", None)],
)
def test_rules_of_evidence(p, status, certain):
    decision = decide([evidence("pca", p, [(0.9, NARROW), (0.9, FINE)])], n=2000)
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
