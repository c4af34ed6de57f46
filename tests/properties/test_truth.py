"""A predictor that is right looks right: uniform PITs for every pre-rank, however they are made."""

import math
import zlib

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import Distribution

from prerank import Ensemble, null_pce, pce, pit
from prerank.distributions import Rounded
from prerank.preranks import Copula, PreRank
from truths import PRERANKS, TRUTHS

N, DIM, WIDE = 20_000, 4, 14
DRAWS = 20  # of a law, per row: ranks among any number of draws are uniform
ROUTES = {"law": None, "10 samples": 10, "40 samples": 40}
# At most D components each: an upper bound of the number of tests, for Bonferroni. pca(0.8) may
# keep fewer than D, and ensembles and rounded laws have no density for hdr.
COMPONENTS = sum(DIM if p.label in ("marginal", "pca", "pca(0.8)") else 1 for p in PRERANKS)
TESTS = len(TRUTHS) * len(ROUTES) * (COMPONENTS + 1)

pytestmark = pytest.mark.slow


def critical_value(level: float = 0.001 / TESTS, n: int = N) -> float:
    """The 1 - level quantile of the PCE of n uniforms.

    sqrt(n) PCE tends to the area A under the absolute value of a Brownian bridge. Large areas come
    from bridges on one side, whose area is normal with variance 1/12:
    P(A > x) ~ 2 (1 - Phi(x sqrt(12))).
    """
    return float(norm.isf(level / 2)) / math.sqrt(12 * n)


def predict(truth: str, route: str, dim: int) -> tuple[Distribution, object]:
    """A law or an ensemble drawn from it, and observations that follow that law."""
    law = TRUTHS[truth](N, dim=dim, seed=1)
    y = law.sample()  # from torch's global generator, which the fixture of all tests seeds
    size = ROUTES[route]
    return (law if size is None else Ensemble(law.sample((size,)))), y


def largest_ratio(dist: Distribution, y: object, preranks: list[PreRank], title: str) -> float:
    """Largest PCE over its critical value; the details are printed."""
    # One stream for all pre-ranks and another for each case: the same uniforms would make the
    # tests of tied values copies of each other.
    generator = torch.Generator().manual_seed(zlib.crc32(title.encode()))
    ratios = {}
    for prerank in preranks:
        errors = pce(pit(dist, y, prerank, n_samples=DRAWS, generator=generator))
        for j, error in enumerate(errors.tolist()):
            ratios[f"{prerank.label}[{j}]"] = error / critical_value()
    worst = max(ratios, key=ratios.__getitem__)
    print(f"{title}: {len(ratios)} of {TESTS} tests, largest ratio {ratios[worst]:.3f} ({worst})")
    return ratios[worst]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("truth", TRUTHS)
def test_pits_of_the_truth_are_uniform(truth, route):
    dist, y = predict(truth, route, DIM)
    without_density = isinstance(dist, Ensemble | Rounded)
    preranks = [p for p in PRERANKS if not (p.needs_log_prob and without_density)]
    assert largest_ratio(dist, y, preranks, f"{truth}, {route}, D = {DIM}") < 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("truth", TRUTHS)
def test_copula_of_the_truth_is_uniform_in_many_dimensions(truth, route):
    dist, y = predict(truth, route, WIDE)
    assert largest_ratio(dist, y, [Copula()], f"{truth}, {route}, D = {WIDE}") < 1


def test_critical_value_is_that_of_the_null():
    # The standard error of 50 replicates beyond the quantile is 14 % of them, which moves it by
    # 14 % / (12 x^2) = 1.3 % at x = 0.95. Three of these.
    assert np.quantile(null_pce(N), 0.999) == pytest.approx(critical_value(0.001), rel=0.04)
    # So the tests above have power against an error of 0.01.
    assert 0.008 < critical_value() < 0.01
