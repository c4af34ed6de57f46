"""Faults that were put in are named."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import Ensemble, GaussianMixture, diagnose
from prerank.calibration import DeviationShape
from prerank.report.verdicts import Evidence, reach_verdict

N = 800
CORRELATED = 0.4 * torch.eye(3) + 0.6
NARROW, FINE = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)


def normal(covariance, mean=(0.0, 0.0, 0.0)):
    return MultivariateNormal(torch.tensor(mean).expand(N, 3), covariance)


FAULTS = {
    "too narrow": (normal(0.4 * CORRELATED), "predictions too narrow in every target"),
    "too wide": (normal(3 * CORRELATED), "predictions too wide in every target"),
    "biased": (normal(CORRELATED, (0.5, 0.0, 0.0)), "observed values lower than predicted in y0"),
    "independent": (
        normal(torch.eye(3)),
        "wrong dependence; each target is right on its own, but they move together more",
    ),
    "too dependent": (
        normal(0.1 * torch.eye(3) + 0.9),
        "wrong dependence; each target is right on its own, but they move together less",
    ),
}


@pytest.fixture(scope="module")
def observed():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(N, 3, generator=generator) @ torch.linalg.cholesky(CORRELATED).mT


@pytest.mark.parametrize("samples", [False, True], ids=["law", "samples"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault, samples, observed):
    dist, words = FAULTS[fault]
    if samples:
        dist = Ensemble(dist.sample((60,)))
    verdict = diagnose(dist, observed, generator=0).verdict()
    assert verdict.mood == "bad"
    assert words in verdict.headline
    assert verdict.advice
    assert any("fails" in point for point in verdict.points)


def test_a_right_predictor_is_acquitted(observed):
    verdict = diagnose(normal(CORRELATED), observed, generator=0).verdict()
    assert verdict.mood == "good"
    assert "No evidence" in verdict.headline
    assert any("would have shown" in point for point in verdict.points)


def test_few_rows_are_no_acquittal(observed):
    dist = MultivariateNormal(torch.zeros(20, 3), CORRELATED)
    verdict = diagnose(dist, observed[:20], generator=0).verdict()
    assert verdict.mood == "unclear"
    assert "Too few rows" in verdict.headline


def test_weighted_samples_have_no_verdict():
    found = [Evidence("marginal", 0.2, 0.01, math.nan, ("rain",), ())]
    verdict = reach_verdict(found, n=500)
    assert verdict.mood == "unclear"
    assert "No verdict" in verdict.headline
    assert "rain" not in verdict.headline


def test_a_single_target_has_no_dependence():
    found = [Evidence("marginal", 0.08, 0.01, 0.001, ("rain",), (NARROW,))]
    headline = reach_verdict(found, n=500).headline
    assert headline == "Strongly miscalibrated: predictions too narrow."


def test_targets_that_are_wrong_by_a_little_each():
    found = [Evidence("marginal", 0.02, 0.01, 0.01, ("rain", "wind"), (FINE, FINE))]
    assert "a little each" in reach_verdict(found, n=500).headline


def test_a_density_alone_is_not_called_dependence():
    low = DeviationShape(True, -1, 0)
    found = [
        Evidence("marginal", 0.01, 0.01, 0.9, ("rain", "wind"), (FINE, FINE)),
        Evidence("hdr", 0.09, 0.01, 0.001, ("hdr",), (low,)),
    ]
    verdict = reach_verdict(found, n=500)
    assert "dependence" not in verdict.headline
    assert "density is low" in verdict.headline


def test_without_the_margins_nothing_is_said_of_them():
    found = [Evidence("scale", 0.09, 0.01, 0.001, ("scale",), (DeviationShape(True, -1, 0),))]
    headline = reach_verdict(found, n=500).headline
    assert "on its own" not in headline
    assert "closer together" in headline


def test_a_small_error_is_called_small():
    found = [Evidence("marginal", 0.006, 0.002, 0.001, ("rain",), (NARROW,))]
    assert reach_verdict(found, n=50_000).headline.startswith("Slightly")


def test_ties_become_advice():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (400, 2), generator=generator).double()
    dist = GaussianMixture(
        torch.zeros(400, 1), torch.ones(400, 1, 2), torch.eye(2).expand(400, 1, 2, 2)
    )
    verdict = diagnose(dist, y, generator=0).verdict()
    assert any("discrete targets" in line for line in verdict.advice)


def test_members_of_a_stack_have_their_own(observed):
    laws = torch.stack([0.4 * CORRELATED, CORRELATED]).unsqueeze(1).expand(2, N, 3, 3)
    found = diagnose(
        MultivariateNormal(torch.zeros(2, N, 3), laws), observed.expand(2, N, 3), generator=0
    )
    assert [found.verdict(model=m).mood for m in (0, 1)] == ["bad", "good"]
