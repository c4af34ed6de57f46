"""Forecasts of several networks as one."""

import math

import pytest
import torch
from torch.distributions import AffineTransform, IndependentTransform

from prerank.distributions import GaussianMixture, affine
from prerank.errors import InputError
from prerank.models import FlowDistribution, FlowMixture, MixtureNetwork
from prerank.models.members import forecast_each, pooled

NETWORK = MixtureNetwork(2, 3, n_components=2, hidden=(8,))
IDENTITY = IndependentTransform(AffineTransform(0.0, 1.0), 1)


def test_the_density_is_the_mean_of_the_members():
    theta = torch.stack([NETWORK.initial(seed) for seed in range(3)])
    x, y = torch.randn(3, 7, 2).double(), torch.randn(7, 3).double()
    units = torch.randn(3, 1, 3).double(), torch.rand(3, 1, 3).double() + 0.5
    each = forecast_each(NETWORK, theta, x, *units)
    for m, one in enumerate(each):
        own = NETWORK(theta[m : m + 1], x[m : m + 1])
        loc, scale = (unit[m, 0] for unit in units)
        expected = own.log_prob((y - loc) / scale)[0] - scale.log().sum()
        torch.testing.assert_close(one.log_prob(y), expected)
    mean = torch.stack([one.log_prob(y).exp() for one in each]).mean(0)
    torch.testing.assert_close(pooled(each).log_prob(y).exp(), mean)


def test_rows_of_different_forecasts_are_put_in_order():
    def forecast(rows):
        loc = torch.tensor(rows).reshape(-1, 1, 1).double()
        return GaussianMixture(torch.zeros(len(rows), 1), loc, torch.ones(len(rows), 1, 1, 1))

    parts = [[0, 3], [1, 2], [2, 3], [0, 1]]
    found = pooled([forecast(rows) for rows in parts], [torch.tensor(rows) for rows in parts])
    assert found.loc[..., 0].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


def flows(*places):
    return [
        FlowDistribution(IDENTITY, 4, torch.tensor([place, 0.0]), torch.ones(2)) for place in places
    ]


def test_a_mixture_of_flows():
    dist = FlowMixture(flows(-3.0, 3.0))
    y = torch.randn(5, 4, 2)
    normal = [-0.5 * ((y - torch.tensor([c, 0.0])) ** 2).sum(-1) for c in (-3.0, 3.0)]
    expected = torch.stack(normal).logsumexp(0) - math.log(2) - math.log(2 * math.pi)
    torch.testing.assert_close(dist.log_prob(y), expected)
    # Means of 20,000 draws: standard errors sqrt(10 / 20,000) = .022 and .007.
    draws = dist.sample((5000,), generator=0).reshape(-1, 2)
    assert draws.mean(0).tolist() == pytest.approx([0, 0], abs=0.09)
    assert draws.var(0).tolist() == pytest.approx([10, 1], rel=0.05)
    # Points are spread evenly: their moments are nearly exact.
    assert dist.covariance_matrix[0].diagonal().tolist() == pytest.approx([10, 1], rel=0.02)
    assert dist.quantiles([0.25, 0.75])[:, 0, 0].tolist() == pytest.approx([-3, 3], abs=0.05)
    moved = affine(dist, torch.ones(2), torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(
        moved.log_prob(1 + y * torch.tensor([2.0, 1.0])), expected - math.log(2)
    )
    assert dist.expand((3, 4)).sample((2,)).shape == (2, 3, 4, 2)


def test_flows_of_different_rows_are_refused():
    with pytest.raises(InputError, match="same rows"):
        pooled(flows(0.0, 1.0), [torch.arange(4), torch.arange(4) + 1])
