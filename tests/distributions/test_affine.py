"""Predictions in other units."""

import pytest
import torch
from torch.distributions import (
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    TransformedDistribution,
)

from prerank import Ensemble, GaussianMixture
from prerank.distributions import affine
from truths import (
    discrete,
    gaussian_mixture,
    independent_normal,
    multivariate_normal,
    student_copula,
)

DIM = 3
LOC = torch.tensor([10.0, -2.0, 0.5], dtype=torch.float64)
SCALE = torch.tensor([100.0, 0.01, 3.0], dtype=torch.float64)
N = 20_000


def independent_student(*batch, dim, seed=0):
    """Not a normal inside: the fallback of `Independent`."""
    g = torch.Generator().manual_seed(seed)
    loc = torch.randn(*batch, dim, generator=g, dtype=torch.float64)
    return Independent(torch.distributions.StudentT(torch.tensor(8.0).double(), loc, 0.5), 1)


FAMILIES = {
    "mixture": (gaussian_mixture, GaussianMixture),
    "multivariate normal": (multivariate_normal, MultivariateNormal),
    "independent normal": (independent_normal, Independent),
    "independent student": (independent_student, TransformedDistribution),
    "student copula": (student_copula, TransformedDistribution),
    "discrete": (discrete, TransformedDistribution),
}
MOMENTS = ["mixture", "multivariate normal", "independent normal"]
DENSITIES = [name for name in FAMILIES if name != "discrete"]


def points(*batch):
    return torch.rand(
        4, *batch, DIM, generator=torch.Generator().manual_seed(9), dtype=torch.float64
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [(5,), (2, 5)])
def test_type_and_shape(family, batch):
    build, expected = FAMILIES[family]
    moved = affine(build(*batch, dim=DIM), LOC, SCALE)
    assert type(moved) is expected
    assert moved.batch_shape == batch
    assert moved.event_shape == (DIM,)


@pytest.mark.parametrize("family", DENSITIES)
@pytest.mark.parametrize("batch", [(5,), (2, 5)])
def test_change_of_variables(family, batch):
    dist = FAMILIES[family][0](*batch, dim=DIM)
    y = points(*batch)
    moved = affine(dist, LOC, SCALE).log_prob(LOC + SCALE * y)
    torch.testing.assert_close(moved, dist.log_prob(y) - SCALE.log().sum(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", MOMENTS)
def test_moments(family):
    dist = FAMILIES[family][0](5, dim=DIM)
    moved = affine(dist, LOC, SCALE)
    torch.testing.assert_close(moved.mean, LOC + SCALE * dist.mean)
    torch.testing.assert_close(moved.variance, SCALE**2 * dist.variance)
    if family != "independent normal":
        expected = SCALE.unsqueeze(-1) * SCALE * dist.covariance_matrix
        torch.testing.assert_close(moved.covariance_matrix, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_law(family):
    dist = FAMILIES[family][0](2, dim=DIM)
    back = (affine(dist, LOC, SCALE).sample((N,)) - LOC) / SCALE
    direct = dist.sample((N,))
    pairs = [(a, b) for a in range(DIM) for b in range(a)]
    # Bounded summaries, single and joint, of two independent sets of draws: 5 standard errors
    # of the difference.
    for function in (
        torch.tanh,
        lambda y: torch.stack([torch.cos(y[..., a] - y[..., b]) for a, b in pairs], -1),
    ):
        first, second = function(back), function(direct)
        error = (first.var(0) / N + second.var(0) / N).sqrt()
        assert ((first.mean(0) - second.mean(0)).abs() < 5 * error).all()


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 3.0)])
def test_ensembles_move_their_members(weights):
    samples = torch.randn(3, 5, DIM, dtype=torch.float64)
    dist = Ensemble(samples, weights)
    moved = affine(dist, LOC, SCALE)
    assert type(moved) is Ensemble
    assert torch.equal(moved.samples, LOC + SCALE * samples)
    if weights is None:
        assert moved.weights is None
    else:
        torch.testing.assert_close(moved.weights, dist.weights)


@pytest.mark.parametrize("family", DENSITIES)
def test_one_shift_per_row(family):
    dist = FAMILIES[family][0](5, dim=DIM)
    loc = torch.randn(5, DIM, dtype=torch.float64)
    y = points(5)
    moved = affine(dist, loc, SCALE).log_prob(loc + SCALE * y)
    torch.testing.assert_close(moved, dist.log_prob(y) - SCALE.log().sum(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_change_is_no_change(family):
    dist = FAMILIES[family][0](5, dim=DIM)
    same = affine(dist, torch.zeros(DIM).double(), torch.ones(DIM).double())
    torch.manual_seed(1)
    expected = dist.sample((3,))
    torch.manual_seed(1)
    torch.testing.assert_close(same.sample((3,)), expected, rtol=1e-12, atol=1e-12)


def test_low_rank_normals_keep_their_type():
    g = torch.Generator().manual_seed(0)
    dist = LowRankMultivariateNormal(
        torch.randn(5, 3, generator=g), torch.randn(5, 3, 1, generator=g), torch.ones(5, 3)
    )
    loc, scale = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 2.0, 4.0])
    moved = affine(dist, loc, scale)
    assert isinstance(moved, LowRankMultivariateNormal)
    torch.testing.assert_close(moved.mean, loc + scale * dist.mean)
    outer = scale.unsqueeze(-1) * scale
    torch.testing.assert_close(moved.covariance_matrix, outer * dist.covariance_matrix)
