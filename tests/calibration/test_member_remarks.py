"""Samples that repeat each other or follow each other are remarked on, and others are not."""

import pytest
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


EXCHANGEABLE = {
    "heavy tails": lambda x: torch.tan(1.5707 * torch.erf(x)),
    "rows of very different spread": lambda x: x * draws(x.shape[1], 1, seed=9).mul(3).exp(),
    "rare events": lambda x: (x > 2).float(),
    "equal targets": lambda x: x[..., :1].expand(x.shape),
}


@pytest.mark.parametrize("kind", EXCHANGEABLE)
def test_exchangeable_members_of_any_distribution_have_no_remark(kind):
    """2,000 to 5,000 pairs in each of 20 ensembles, of which none is more extreme by chance."""
    for seed in range(20):
        for size, rows in ((3, 30), (20, 40), (70, 100)):
            x = EXCHANGEABLE[kind](draws(size + 1, rows, 2, seed=seed))
            assert kinds(x[1:].clone(), x[0].clone()) == []


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


def interleaved(half):
    return torch.stack([half, -half], 1).flatten(0, 1)


def halves(half):
    return torch.cat([half, -half])


@pytest.mark.parametrize("order", [interleaved, halves])
@pytest.mark.parametrize("size", [2, 10, 100])
def test_antithetic_members_are_remarked_on(order, size):
    """Pairs of opposite members, next to each other or half an ensemble apart."""
    members, y = 3 + order(draws(size, 100, 2)), draws(100, 2, seed=1)
    (remark,) = member_remarks(prerank.Ensemble(members), y)
    assert remark.startswith("opposite samples: ")
    assert "keep one of each pair" in remark
    assert (
        kinds(members[: size if order is halves else None : 1 if order is halves else 2], y) == []
    )


def test_calibrated_forecasts_of_antithetic_members_fail_with_a_remark():
    """More than half of the data sets fail, and all have the remark; half of the members pass."""
    failing = 0
    for seed in range(10):
        half, y = draws(10, 300, 2, seed=seed), draws(300, 2, seed=100 + seed)
        found = prerank.diagnose(prerank.Ensemble(halves(half)), y, generator=seed, n_null=200)
        failing += bool(found.verdict().failing)
        assert any(remark.startswith("opposite samples") for remark in found.remarks)
    # 62 % of many data sets fail: 2 or fewer of 10 would have a probability of 1 %.
    assert failing >= 3


def test_interleaved_chains_are_remarked_on():
    """Eight chains whose states take turns: neighbours are independent, every eighth is not."""
    states = [draws(8, 200, 2)]
    for seed in range(1, 7):
        states.append(0.8 * states[-1] + 0.6 * draws(8, 200, 2, seed=seed))
    (remark,) = member_remarks(prerank.Ensemble(torch.cat(states)), draws(200, 2, seed=50))
    assert remark.startswith("correlated samples: samples ")
