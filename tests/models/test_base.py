"""Any torch module as a function of its parameters."""

import pytest
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

from prerank import GaussianMixture
from prerank.errors import InputError
from prerank.models import ModuleNetwork

F64 = torch.float64


class Gaussian(nn.Module):
    """Means from a small network and a common spread."""

    def __init__(self, hidden=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.log_scale = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        scale = self.log_scale.exp().expand(len(x), 2)
        return Independent(Normal(self.body(x), scale), 1)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2 + 4)

    def forward(self, x):
        logits, loc = self.linear(x).split([2, 4], -1)
        factor = torch.eye(2, dtype=x.dtype).expand(len(x), 2, 2, 2)
        return GaussianMixture(logits, loc.reshape(-1, 2, 2), factor)


class Full(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return MultivariateNormal(self.linear(x), torch.eye(2, dtype=x.dtype))


@pytest.mark.parametrize("build", [Gaussian, Mixture, Full])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_wraps_a_module(build, dtype):
    network = ModuleNetwork(build)
    assert not network.stackable
    assert network.n_parameters == sum(p.numel() for p in build().parameters())
    theta = network.initial(3).to(dtype)[None]
    x = torch.randn(1, 7, 3, dtype=dtype)
    found = network(theta, x)
    assert found.batch_shape == (1, 7)
    assert found.event_shape == (2,)
    module = build().to(dtype)
    nn.utils.vector_to_parameters(theta[0], module.parameters())
    y = torch.randn(7, 2, dtype=dtype)
    torch.testing.assert_close(found.log_prob(y[None])[0], module(x[0]).log_prob(y))


def test_initial_is_a_function_of_the_seed():
    network = ModuleNetwork(Gaussian)
    state = torch.get_rng_state()
    first = network.initial(3)
    torch.rand(4)
    again = ModuleNetwork(Gaussian).initial(3)
    assert torch.equal(first, again)
    assert not torch.equal(first, network.initial(4))
    torch.set_rng_state(state)
    network.initial(3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(3)
    assert torch.equal(first, nn.utils.parameters_to_vector(Gaussian().parameters()).detach())


def test_parameters_are_an_argument():
    network = ModuleNetwork(Gaussian)
    x = torch.randn(1, 7, 3)
    theta = network.initial(0)[None]
    before = network(theta, x).mean
    network(theta + 1, x)
    assert torch.equal(network(theta, x).mean, before)  # nothing is kept
    leaf = theta.clone().requires_grad_()
    value = network(leaf, x).log_prob(torch.zeros(1, 7, 2)).sum()
    (gradient,) = torch.autograd.grad(value, leaf)
    assert gradient.shape == theta.shape
    assert (gradient != 0).float().mean() > 0.9


def test_buffers_are_kept():
    class Shifted(Gaussian):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.tensor([10.0, -10.0]))

        def forward(self, x):
            base = super().forward(x).base_dist
            return Independent(Normal(base.loc + self.shift, base.scale), 1)

    plain, shifted = ModuleNetwork(Gaussian), ModuleNetwork(Shifted)
    assert plain.n_parameters == shifted.n_parameters
    theta, x = plain.initial(0)[None], torch.randn(1, 7, 3)
    difference = shifted(theta, x).mean - plain(theta, x).mean
    torch.testing.assert_close(difference, torch.tensor([10.0, -10.0]).expand(1, 7, 2))

    # They follow the parameters to another precision.
    double = shifted(theta.double(), x.double()).mean - plain(theta.double(), x.double()).mean
    torch.testing.assert_close(double, difference.double())


def test_a_distribution_may_ask_the_module_later():
    """It then still finds the parameters of its own call."""

    class Lazy(MultivariateNormal):
        def __init__(self, module, x):
            self.ask = lambda: module.linear(x)
            super().__init__(torch.zeros(*x.shape[:-1], 2), torch.eye(2))

        def expand(self, shape):
            return self

        def rsample(self, sample_shape=()):
            return self.ask().expand(*sample_shape, -1, -1)

    class Asked(Full):
        def forward(self, x):
            return Lazy(self, x)

    network, x = ModuleNetwork(Asked), torch.randn(7, 3)
    thetas = [network.initial(seed)[None].requires_grad_() for seed in (1, 2)]
    dists = [network(theta, x[None]) for theta in thetas]
    for theta, dist in zip(thetas, dists, strict=True):
        expected = x @ theta[0, :6].reshape(2, 3).mT + theta[0, 6:]
        torch.testing.assert_close(dist.rsample(), expected)
        (gradient,) = torch.autograd.grad(dist.rsample().sum(), theta)
        assert (gradient != 0).all()


def test_tied_parameters_stay_tied():
    class Tied(Full):
        def __init__(self):
            super().__init__()
            self.again = self.linear

        def forward(self, x):
            return MultivariateNormal(self.linear(x) + self.again(x), torch.eye(2))

    network, x = ModuleNetwork(Tied), torch.randn(1, 7, 3)
    assert network.n_parameters == 8
    theta = network.initial(1)[None]
    torch.testing.assert_close(network(theta, x).mean, 2 * ModuleNetwork(Full)(theta, x).mean)


def test_build_may_be_any_function():
    network = ModuleNetwork(lambda: Gaussian(hidden=9))
    assert network.n_parameters == 3 * 9 + 9 + 9 * 2 + 2 + 2


def test_a_stack_is_refused():
    network = ModuleNetwork(Gaussian)
    theta = torch.stack([network.initial(0), network.initial(1)])
    with pytest.raises(InputError, match="one run at a time, got 2"):
        network(theta, torch.zeros(2, 7, 3))


@pytest.mark.parametrize("build", [3, "linear", None])
def test_build_must_be_callable(build):
    with pytest.raises(InputError, match="callable"):
        ModuleNetwork(build)


@pytest.mark.parametrize("made", [None, 3, torch.zeros(2)])
def test_build_must_make_a_module(made):
    with pytest.raises(InputError, match=r"nn\.Module"):
        ModuleNetwork(lambda: made)


class Dropping(Gaussian):
    def __init__(self):
        super().__init__()
        self.body.append(nn.Dropout(0.5))


def test_modules_are_in_training_mode_only_while_gradients_are_computed():
    network = ModuleNetwork(Dropping)
    theta, x = network.initial(0)[None], torch.ones(1, 50, 3)
    with torch.no_grad():
        first, second = (network(theta, x).mean for _ in range(2))
    assert torch.equal(first, second)
    assert (network(theta.requires_grad_(), x).mean == 0).any()


def test_running_statistics_are_refused():
    def build():
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    with pytest.raises(InputError, match=r"running statistics.*LayerNorm"):
        ModuleNetwork(build)


def test_the_text_of_a_network_is_the_same_everywhere():
    assert repr(ModuleNetwork(Gaussian)) == repr(ModuleNetwork(Gaussian))
    assert "0x" not in repr(ModuleNetwork(Gaussian))
