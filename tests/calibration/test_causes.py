"""Faults of margins and of the dependence, from PITs with a known fault."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.calibration.dependence import dependence_given_margins
from prerank.calibration.margins import deviation_kinds, shared_p_value, wrong_targets

N = 1000
RNG = np.random.default_rng(0)
KINDS = {
    "high": RNG.normal(0.3, 1, N),
    "low": RNG.normal(-0.3, 1, N),
    "narrow": RNG.normal(0, 1.3, N),
    "wide": RNG.normal(0, 0.75, N),
    "heavy": RNG.standard_t(4, N) / math.sqrt(2),
    "light": RNG.uniform(-math.sqrt(3), math.sqrt(3), N),
    "right": (RNG.gamma(4, 1, N) - 4) / 2,
    "left": (4 - RNG.gamma(4, 1, N)) / 2,
    "modes": RNG.choice([-0.9, 0.9], N) + RNG.normal(0, math.sqrt(0.19), N),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_deviations(kind):
    assert deviation_kinds(stats.norm.cdf(KINDS[kind])) == (kind,)


@pytest.mark.parametrize("kind", ["high", "narrow", "wide", "modes"])
def test_kinds_among_twenty_samples(kind):
    samples = np.random.default_rng(1).normal(size=(20, N))
    ranks = (samples < KINDS[kind]).sum(0) + np.random.default_rng(2).uniform(size=N)
    assert deviation_kinds(ranks / 21, resolution=1 / 21) == (kind,)


def test_bias_and_spread_together():
    z = stats.norm.cdf(0.4 + 1.4 * np.random.default_rng(3).normal(size=N))
    assert deviation_kinds(z) == ("high", "narrow")


def test_only_targets_with_evidence_of_their_own_are_named():
    assert wrong_targets([0.001, 0.5, 0.004, 0.9]) == [0, 2]
    assert wrong_targets([0.005, 0.5, 0.5, 0.9]) == []


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_shared_test_keeps_its_size_under_dependence(correlation):
    # 400 data sets: .05 and three standard errors of .011.
    rng = np.random.default_rng(4)
    common = rng.normal(size=(400, 100, 1))
    x = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * rng.normal(
        size=(400, 100, 5)
    )
    rate = np.mean([shared_p_value(z) < 0.05 for z in stats.norm.cdf(x)])
    assert rate < 0.05 + 3 * 0.011


def scores(n, r, source):
    covariance = (1 - r) * torch.eye(3) + r
    return torch.randn(n, 3, generator=source) @ torch.linalg.cholesky(covariance).mT


def pits(x):
    return torch.special.ndtr(x.double())


def test_size_of_the_dependence_under_wrong_margins():
    # Too narrow and biased margins, correlation as predicted: 100 data sets with 99 replicates
    # each, .05 and three standard errors of .022.
    source = torch.Generator().manual_seed(0)
    rejected = 0
    for seed in range(100):
        pool = pits(scores(40 * 200, 0.5, source)).reshape(40, 200, 3)
        z = pits(0.3 + 1.5 * scores(200, 0.5, source))
        rejected += dependence_given_margins(z, pool, n_null=99, generator=seed).p_value <= 0.05
    assert rejected / 100 < 0.05 + 3 * 0.022


@pytest.mark.parametrize(("true", "together"), [(0.8, 1), (0.2, -1)])
def test_direction_of_the_dependence(true, together):
    source = torch.Generator().manual_seed(1)
    pool = pits(scores(40 * 400, 0.5, source)).reshape(40, 400, 3)
    found = dependence_given_margins(pits(1.5 * scores(400, true, source)), pool)
    assert found.p_value < 0.01
    assert (found.together, found.extremes) == (together, 0)


def test_extremes_are_no_correlation():
    source = torch.Generator().manual_seed(2)
    pool = pits(scores(40 * 800, 0.0, source)).reshape(40, 800, 3)
    spread = torch.rand(800, 1, generator=source) + 0.2
    found = dependence_given_margins(pits(spread * scores(800, 0.0, source)), pool)
    assert found.p_value < 0.01
    assert (found.together, found.extremes) == (0, 1)
