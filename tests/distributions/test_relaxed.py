"""RelaxedMixture: the published sampler, which does not follow the mixture."""

import pytest
import torch
from scipy import stats

from prerank import GaussianMixture
from prerank.distributions import RelaxedMixture
from prerank.errors import InputError
from truths import gaussian_mixture


def two_modes(rows=1):
    """Modes at -5 and 5 with standard deviation 1."""
    return GaussianMixture(
        torch.zeros(2, dtype=torch.float64),
        torch.tensor([[-5.0], [5.0]], dtype=torch.float64),
        torch.ones(2, 1, 1, dtype=torch.float64),
    ).expand((rows,))


def test_shapes_follow_the_mixture():
    relaxed = RelaxedMixture(gaussian_mixture(2, 5, dim=3))
    assert relaxed.batch_shape == (2, 5)
    assert relaxed.event_shape == (3,)
    assert relaxed.rsample((4,)).shape == (4, 2, 5, 3)
    assert relaxed.sample().shape == (2, 5, 3)
    assert relaxed.expand((3, 2, 5)).sample((4,)).shape == (4, 3, 2, 5, 3)


def test_narrower_than_the_mixture():
    n = 20_000
    mixture = two_modes()
    drawn = RelaxedMixture(mixture).sample((n,), generator=0).flatten()
    variance = drawn.square().mean() - drawn.mean() ** 2
    error = (drawn - drawn.mean()).square().std() / n**0.5
    # For two equal components at temperature 1 the share a is uniform on [0, 1] (a logistic
    # variable through its own CDF): Var = 100 Var(a) + E[a^2 + (1-a)^2] = 100/12 + 2/3 = 9,
    # against 26 for the mixture. 5 standard errors.
    assert (variance - 9).abs() < 5 * error
    assert (mixture.variance - 26).abs().max() < 1e-12


def test_low_temperature_approaches_the_mixture():
    n = 4_000
    mixture = gaussian_mixture(1, dim=1, components=3, seed=5)
    exact = mixture.project(torch.ones(1, 1, dtype=torch.float64))
    distances = []
    for temperature in (1.0, 0.3, 1e-4):
        drawn = RelaxedMixture(mixture, temperature).sample((n,), generator=0)
        u = exact.cdf(drawn).flatten()
        distances.append(stats.kstest(u.numpy(), "uniform").statistic)
    assert distances[0] > distances[1] > distances[2]
    # The 99.9 % point of the Kolmogorov distribution is 1.95 / sqrt(n).
    assert distances[2] < 1.95 / n**0.5 < distances[0]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_gradients_are_those_of_the_blend(temperature):
    dist = gaussian_mixture(2, dim=2, components=3)

    def function(logits, loc, scale_tril):
        mixture = GaussianMixture(logits, loc, scale_tril.tril(), validate_args=False)
        return RelaxedMixture(mixture, temperature).rsample((2,), generator=0)

    inputs = [p.clone().requires_grad_() for p in (dist.logits, dist.loc, dist.scale_tril)]
    assert torch.autograd.gradcheck(function, inputs)
    (gradient, *_) = torch.autograd.grad(function(*inputs).sum(), inputs)
    assert gradient.abs().sum() > 0


def test_sample_is_rsample_without_gradient():
    mixture = gaussian_mixture(2)
    given = (mixture.logits.requires_grad_(), mixture.loc, mixture.scale_tril)
    relaxed = RelaxedMixture(GaussianMixture(*given))
    before = torch.get_rng_state()
    plain, drawn = relaxed.sample((3,), generator=1), relaxed.rsample((3,), generator=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert not plain.requires_grad
    assert drawn.requires_grad
    assert torch.equal(plain, drawn.detach())


def test_log_prob_is_that_of_the_mixture():
    mixture = gaussian_mixture(4, dim=3)
    y = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(RelaxedMixture(mixture).log_prob(y), mixture.log_prob(y))


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan")])
def test_bad_temperature(temperature):
    with pytest.raises(InputError, match="temperature"):
        RelaxedMixture(two_modes(), temperature)
