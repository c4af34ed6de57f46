"""The hdr error has a barrier in the correlation; a trained base, location or scale avoid it."""

import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank

TRUTH = 0.5


def covariance(r):
    return (1 - r) * torch.eye(3, dtype=torch.float64) + r


def observed(n):
    noise = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return noise @ torch.linalg.cholesky(covariance(torch.tensor(TRUTH))).T


def hdr_error(r):
    """PCE of hdr: the density of a normal forecast is ordered by a chi-squared variable."""
    y = observed(40_000)
    distance = (y @ torch.linalg.inv(covariance(torch.tensor(r))) * y).sum(-1)
    z = torch.special.gammaincc(torch.tensor(1.5, dtype=torch.float64), distance / 2)
    return float(prerank.pce(z.unsqueeze(-1)))


def slope(preranks, r):
    """Derivative of the penalty in the correlation: where it is negative, training increases r."""
    at = torch.tensor(r, dtype=torch.float64, requires_grad=True)
    y = observed(4000)
    dist = MultivariateNormal(torch.zeros_like(y), covariance(at))
    prerank.CalibrationPenalty(preranks)(dist, y, generator=0).backward()
    return float(at.grad)


def test_hdr_has_a_barrier_between_independence_and_the_truth():
    # Standard errors are about .0007 (.136 / sqrt(n)).
    assert hdr_error(0.0) < hdr_error(0.2) - 0.008
    assert hdr_error(TRUTH) < 0.003
    for preranks in ("hdr", "marginal+hdr"):
        assert slope(preranks, 0.05) > 0  # away from the truth


def test_a_trained_base_is_beyond_the_barrier():
    for r in (0.35, 0.42):
        assert slope("marginal+hdr", r) < 0


@pytest.mark.parametrize("preranks", ["marginal+hdr+location", "marginal+hdr+scale"])
def test_location_or_scale_removes_it(preranks):
    for r in (0.0, 0.05, 0.2, 0.4):
        assert slope(preranks, r) < 0
