"""Samples that repeat each other or follow each other are remarked on, and others are not."""

import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.calibration import member_remarks


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def kinds(samples, y):
    return [remark.split(":")[0] for remark in member_remarks(prerank.Ensemble(samples), y)]


def test_independent_members_have_no_remark():
    for seed in range(20):
        assert kinds(draws(20, 100, 2, seed=seed), draws(100, 2, seed=100 + seed)) == []
    dist = MultivariateNormal(torch.zeros(9, 2), torch.eye(2))
    assert member_remarks(dist, draws(9, 2)) == ()
    assert kinds(torch.zeros(5, 9, 2), torch.zeros(9, 2)) == []
    assert kinds(draws(2, 9, 2), draws(9, 2)) == []


def test_discrete_members_may_repeat():
    counts = draws(20, 300, 2).round()
    assert kinds(counts, draws(300, 2, seed=1).round()) == []


def test_members_with_traits_of_their_own_have_no_remark():
    # The same bias of member s in every row, as in an ensemble of models.
    for seed in range(20):
        traits = draws(20, 1, 1, seed=seed)
        assert kinds(draws(20, 300, 2) + 2 * traits, draws(300, 2, seed=1)) == []


def test_resampled_members_are_remarked_on():
    weights = draws(50, 200, seed=3).exp()
    index = torch.multinomial(weights.T, 50, replacement=True, generator=torch.manual_seed(0)).T
    samples = draws(50, 200, 2).gather(0, index.unsqueeze(-1).expand(50, 200, 2))
    assert kinds(samples, draws(200, 2, seed=1)) == ["repeated samples"]


def test_chains_are_remarked_on():
    steps, chain = draws(50, 200, 2), []
    for step in steps:
        chain.append(step if not chain else 0.7 * chain[-1] + 0.51**0.5 * step)
    samples, y = torch.stack(chain), draws(200, 2, seed=1)
    assert kinds(samples, y) == ["correlated samples"]
    found = prerank.diagnose(prerank.Ensemble(samples), y, preranks="marginal", n_null=200)
    assert any("Markov chain" in line for line in found.verdict().advice)
