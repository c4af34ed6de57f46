"""Mixture networks: valid by construction, the same alone and in a stack."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from prerank import GaussianMixture
from prerank.errors import InputError, InputTypeError
from prerank.models import MixtureNetwork

F64 = torch.float64
NETWORKS = {
    "default": MixtureNetwork(3, 4),
    "one component": MixtureNetwork(3, 4, n_components=1, hidden=(8,)),
    "one target": MixtureNetwork(3, 1, n_components=2, hidden=(8,)),
    "diagonal": MixtureNetwork(3, 4, covariance="diagonal", hidden=(8, 7)),
    "one of each": MixtureNetwork(1, 1, n_components=1, hidden=(2,)),
    "diagonal, one target": MixtureNetwork(3, 1, covariance="diagonal", hidden=(8,)),
    "linear": MixtureNetwork(3, 2, hidden=()),
    "deep": MixtureNetwork(3, 2, hidden=(4, 5, 6)),
    "wide floor": MixtureNetwork(3, 2, hidden=(8,), scale_floor=0.5),
}
by_network = pytest.mark.parametrize("name", NETWORKS)


def stacked(network, seeds=(0, 1, 2)):
    return torch.stack([network.initial(seed) for seed in seeds])


def inputs(network, runs, rows=20, scale=1.0):
    g = torch.Generator().manual_seed(0)
    return scale * torch.randn(runs, rows, network.n_inputs, generator=g, dtype=F64)


@by_network
def test_number_of_parameters(name):
    network = NETWORKS[name]
    k, d = network.n_components, network.n_targets
    below = d * (d - 1) // 2 if network.covariance == "full" else 0
    widths = [network.n_inputs, *network.hidden, k * (1 + 2 * d + below)]
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    assert network.n_parameters == sum(p.numel() for layer in layers for p in layer.parameters())
    assert network.initial(0).shape == (network.n_parameters,)


@by_network
@pytest.mark.parametrize(
    ("size", "dtype"), [(1.0, F64), (30.0, torch.float32), (1e4, F64), (1e4, torch.float32)]
)
def test_factors_are_valid_for_any_parameters(name, size, dtype):
    network = NETWORKS[name]
    theta = (size * stacked(network)).to(dtype)
    dist = network(theta, inputs(network, 3, scale=10.0).to(dtype))
    k, d = network.n_components, network.n_targets
    assert dist.batch_shape == (3, 20)
    assert dist.event_shape == (d,)
    assert dist.loc.shape == (3, 20, k, d)
    # The checks of the distribution itself: finite, lower triangular, positive diagonal.
    GaussianMixture(dist.logits, dist.loc, dist.scale_tril, validate_args=True)
    diagonal = dist.scale_tril.diagonal(dim1=-2, dim2=-1)
    assert diagonal.min() >= network.scale_floor * (1 - 1e-6)
    if network.covariance == "diagonal":
        assert torch.equal(dist.scale_tril, torch.diag_embed(diagonal))
    elif d > 1:
        assert dist.scale_tril.tril(-1).abs().amax() > 0
    assert dist.loc.dtype == dtype


@by_network
def test_a_stack_is_its_members(name):
    network = NETWORKS[name]
    theta, x = stacked(network), inputs(network, 3)
    together = network(theta, x)
    for m in range(3):
        alone = network(theta[m : m + 1], x[m : m + 1])
        for part in ("logits", "loc", "scale_tril"):
            torch.testing.assert_close(
                getattr(together, part)[m], getattr(alone, part)[0], rtol=1e-12, atol=1e-12
            )


@by_network
def test_gradients_stay_with_their_run(name):
    network = NETWORKS[name]
    theta, x = stacked(network).requires_grad_(), inputs(network, 3)
    y = torch.zeros(3, 20, network.n_targets, dtype=F64)
    value = network(theta, x).log_prob(y).mean(1)
    (gradient,) = torch.autograd.grad(value[1], theta, retain_graph=True)
    assert not gradient[[0, 2]].any()
    alone = theta[1:2].detach().requires_grad_()
    (single,) = torch.autograd.grad(network(alone, x[1:2]).log_prob(y[1:2]).mean(), alone)
    torch.testing.assert_close(gradient[1:2], single, rtol=1e-10, atol=1e-12)
    assert torch.isfinite(gradient).all()


def test_it_is_a_plain_network():
    """The same layers written with torch's own functions."""
    network = MixtureNetwork(3, 2, n_components=2, hidden=(5, 4), scale_floor=0.01)
    theta, x = network.initial(3), inputs(network, 1)[0]
    value, start = x, 0
    outputs = 2 * (1 + 2 + 2 + 1)
    for index, (a, b) in enumerate([(3, 5), (5, 4), (4, outputs)]):
        weight = theta[start : start + a * b].reshape(a, b)
        bias = theta[start + a * b : start + a * b + b]
        value = functional.linear(value if index == 0 else value.relu(), weight.mT, bias)
        start += a * b + b
    assert start == network.n_parameters
    dist = network(theta[None], x[None])
    logits, loc, diagonal, below = value.split([2, 4, 4, 2], dim=-1)
    torch.testing.assert_close(dist.logits[0], logits.log_softmax(-1))
    torch.testing.assert_close(dist.loc[0], loc.reshape(20, 2, 2))
    found = dist.scale_tril[0]
    spread = functional.softplus(diagonal).reshape(20, 2, 2) + 0.01
    torch.testing.assert_close(found.diagonal(dim1=-2, dim2=-1), spread)
    torch.testing.assert_close(found[..., 1, 0], below)
    assert not found[..., 0, 1].any()


def test_entries_below_the_diagonal_go_row_by_row():
    network = MixtureNetwork(1, 3, n_components=1, hidden=())
    theta = torch.zeros(1, network.n_parameters, dtype=F64)
    theta[0, -3:] = torch.tensor([1.0, 2.0, 3.0], dtype=F64)  # the last biases
    factor = network(theta, torch.zeros(1, 1, 1, dtype=F64)).scale_tril[0, 0, 0]
    assert factor.tril(-1).tolist() == [[0, 0, 0], [1, 0, 0], [2, 3, 0]]


@by_network
def test_initial_parameters_are_a_function_of_the_seed(name):
    network = NETWORKS[name]
    state = torch.get_rng_state()
    first = network.initial(7)
    torch.rand(10)
    assert torch.equal(dataclasses.replace(network).initial(7), first)
    assert not torch.equal(network.initial(8), first)
    assert first.dtype == F64
    torch.set_rng_state(state)
    network.initial(9)
    assert torch.equal(torch.get_rng_state(), state)


def test_initial_parameters_are_uniform():
    network = MixtureNetwork(16, 2, n_components=1, hidden=(100,))
    first = network.initial(0)[: 17 * 100]
    assert first.abs().max() <= 0.25
    # Uniform on +-1/4: standard deviation 0.25 / sqrt(3), its standard error below 2 %.
    assert abs(first.std() / (0.25 / 3**0.5) - 1) < 0.08
    assert abs(first.mean()) < 5 * 0.25 / (3 * len(first)) ** 0.5
    last = network.initial(0)[17 * 100 :]
    assert last.abs().max() <= 0.1


def test_stackable():
    assert MixtureNetwork(1, 1).stackable


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_inputs": 0}, InputError),
        ({"n_targets": 0}, InputError),
        ({"n_components": 0}, InputError),
        ({"n_components": 2.0}, InputTypeError),
        ({"hidden": (8, 0)}, InputError),
        ({"hidden": (8.5,)}, InputTypeError),
        ({"covariance": "tied"}, InputError),
        ({"scale_floor": 0.0}, InputError),
        ({"scale_floor": float("nan")}, InputError),
    ],
    ids=str,
)
def test_settings_are_checked(options, error):
    (name,) = options
    with pytest.raises(error, match=name):
        MixtureNetwork(**{"n_inputs": 2, "n_targets": 2, **options})
