"""A predictor that is right looks right: uniform PITs for every pre-rank, however they are made."""

import zlib
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch.distributions import Distribution

from prerank import Ensemble, null_pce, pce, pit
from prerank.preranks import Copula, PreRank
from truths import PRERANKS, TRUTHS

N, DIM, WIDE = 10_000, 4, 14
ROUTES = {"law": None, "10 samples": 10, "100 samples": 100}
# At most D components each: an upper bound of the number of tests, for Bonferroni. pca(0.8) may
# keep fewer than D, and ensembles have no density for hdr.
COMPONENTS = sum(DIM if p.label in ("marginal", "pca", "pca(0.8)") else 1 for p in PRERANKS)
TESTS = len(TRUTHS) * len(ROUTES) * (COMPONENTS + 1)

pytestmark = pytest.mark.slow


@lru_cache(maxsize=1)
def critical_value() -> float:
    """The 1 - 0.01 / m quantile of the null: of 400,000 replicates about 16 lie beyond."""
    # The seed of the null follows n_null, so slightly different numbers give fresh replicates.
    null = np.concatenate([null_pce(N, n_null=100_000 + i) for i in range(4)])
    return float(np.quantile(null, 1 - 0.01 / TESTS))


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
        errors = pce(pit(dist, y, prerank, generator=generator))
        for j, error in enumerate(errors.tolist()):
            ratios[f"{prerank.label}[{j}]"] = error / critical_value()
    worst = max(ratios, key=ratios.__getitem__)
    print(f"{title}: {len(ratios)} of {TESTS} tests, largest ratio {ratios[worst]:.3f} ({worst})")
    return ratios[worst]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("truth", TRUTHS)
def test_pits_of_the_truth_are_uniform(truth, route):
    dist, y = predict(truth, route, DIM)
    preranks = [p for p in PRERANKS if not (p.needs_log_prob and isinstance(dist, Ensemble))]
    assert largest_ratio(dist, y, preranks, f"{truth}, {route}, D = {DIM}") < 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("truth", TRUTHS)
def test_copula_of_the_truth_is_uniform_in_many_dimensions(truth, route):
    dist, y = predict(truth, route, WIDE)
    assert largest_ratio(dist, y, [Copula()], f"{truth}, {route}, D = {WIDE}") < 1


def test_critical_value_lies_between_the_floor_and_a_slight_bias():
    # The limit of sqrt(n) PCE is the area under a Brownian bridge, mean 0.313; its 5e-5 quantile
    # lies near 1.15, so the tests above have power against an error of 0.015.
    assert 0.0095 < critical_value() < 0.0135
