"""Evaluation of a stack is the evaluation of each run with the public functions."""

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

from prerank import energy_score, nll, pce, pce_floor, pit
from prerank.datasets import AR1Regression
from prerank.models import MixtureNetwork, ModuleNetwork
from prerank.preranks import PAPER, parse
from prerank.training import evaluate

F64 = torch.float64
ROWS, DIM, RUNS = 150, 3, 3
NETWORK = MixtureNetwork(2, DIM, n_components=2, hidden=(8,))


def problem(network=NETWORK):
    theta = torch.stack([network.initial(seed) for seed in range(RUNS)]).to(F64)
    pairs = [AR1Regression(dim=DIM).sample(ROWS, generator=seed) for seed in range(RUNS)]
    x, y = (torch.stack(part) for part in zip(*pairs, strict=True))
    return theta, x, y


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, DIM)

    def forward(self, x):
        return Independent(Normal(self.linear(x), torch.ones(DIM, dtype=x.dtype)), 1)


@pytest.mark.parametrize("prerank", PAPER, ids=lambda prerank: prerank.label)
def test_equals_the_public_functions(prerank):
    theta, x, y = problem()
    found = evaluate(NETWORK, theta, x, y, (prerank,), n_samples=20, seed=4)
    assert found.floor == pce_floor(ROWS)
    assert found.energy.shape == found.nll.shape == found.pce[prerank.label].shape == (RUNS,)
    for m in range(RUNS):
        dist = NETWORK(theta[m : m + 1], x[m : m + 1])
        generator = torch.Generator().manual_seed(4)
        z = pit(dist, y[m : m + 1], prerank, n_samples=20, generator=generator)
        energy = energy_score(dist, y[m : m + 1], n_samples=20, generator=generator)
        torch.testing.assert_close(found.pce[prerank.label][m], pce(z).mean())
        torch.testing.assert_close(found.energy[m], energy.mean())
        torch.testing.assert_close(found.nll[m], nll(dist, y[m : m + 1]).mean())
    torch.testing.assert_close(
        found.excess(prerank.label), found.pce[prerank.label] - pce_floor(ROWS)
    )


@pytest.mark.parametrize("network", [NETWORK, ModuleNetwork(Gaussian)], ids=["mixture", "module"])
def test_a_stack_is_its_runs(network):
    theta, x, y = problem(network)
    terms = parse("marginal+scale+hdr+copula")
    together = evaluate(network, theta, x, y, terms, n_samples=20)
    assert list(together.pce) == ["marginal", "scale", "hdr", "copula"]
    for m in range(RUNS):
        s = slice(m, m + 1)
        alone = evaluate(network, theta[s], x[s], y[s], terms, n_samples=20)
        for label in together.pce:
            torch.testing.assert_close(together.pce[label][s], alone.pce[label])
        torch.testing.assert_close(together.energy[s], alone.energy)
        torch.testing.assert_close(together.nll[s], alone.nll)
        assert together.floor == alone.floor
    assert len(set(together.energy.tolist())) == RUNS


def test_seeds():
    theta, x, y = problem()
    one, again, other = (
        evaluate(NETWORK, theta, x, y, parse("hdr"), n_samples=20, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(one.energy, again.energy)
    assert torch.equal(one.pce["hdr"], again.pce["hdr"])
    assert not torch.equal(one.energy, other.energy)
    assert not torch.equal(one.pce["hdr"], other.pce["hdr"])
    assert torch.equal(one.nll, other.nll)


def test_runs_are_judged_on_common_random_numbers():
    theta, x, y = problem()
    same = evaluate(NETWORK, theta[[0, 0]], x[[0, 0]], y[[0, 0]], parse("hdr+copula"), n_samples=20)
    assert same.energy[0] == same.energy[1]
    for value in same.pce.values():
        assert value[0] == value[1]


def test_global_state_and_gradients():
    theta, x, y = problem()
    theta.requires_grad_()
    state = torch.get_rng_state()
    found = evaluate(NETWORK, theta, x, y, parse("hdr"), n_samples=20)
    assert torch.equal(torch.get_rng_state(), state)
    assert not found.energy.requires_grad
    assert not found.nll.requires_grad


def test_chunks_pool_their_rows(monkeypatch):
    """PITs are pooled, not averaged over chunks; closed forms have no noise."""
    theta, x, y = problem()
    whole = evaluate(NETWORK, theta, x, y, parse("marginal"), n_samples=20)
    monkeypatch.setattr("prerank.training.evaluation._CHUNK_VALUES", 20 * DIM * 11)
    parts = evaluate(NETWORK, theta, x, y, parse("marginal"), n_samples=20)
    torch.testing.assert_close(parts.pce["marginal"], whole.pce["marginal"], rtol=1e-12, atol=0)
    torch.testing.assert_close(parts.nll, whole.nll, rtol=1e-12, atol=0)
    # Other draws: equal within 6 standard errors of a mean over 150 rows of noise below 1.
    assert (parts.energy - whole.energy).abs().max() < 6 * 0.3 / ROWS**0.5


def test_a_calibrated_model_has_no_excess():
    """The truth itself as a module."""

    class Truth(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, x):
            law = AR1Regression(dim=DIM).conditional(x)
            factor = self.factor.to(x.dtype) * law.scale_tril
            return torch.distributions.MultivariateNormal(law.loc, scale_tril=factor)

    x, y = AR1Regression(dim=DIM).sample(3000, generator=1)
    terms = parse("marginal+hdr+copula")
    network = ModuleNetwork(Truth)
    theta = torch.tensor([[1.0], [1.5]])
    found = evaluate(network, theta, x.expand(2, -1, -1), y.expand(2, -1, -1), terms, n_samples=50)
    for term in terms:
        right, wrong = found.excess(term.label).tolist()
        # The PCE of n uniforms has a standard deviation of half its floor.
        assert right < 2 * found.floor
        assert wrong > 5 * found.floor
    assert found.energy[0] < found.energy[1]
    assert found.nll[0] < found.nll[1]
