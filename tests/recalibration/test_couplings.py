"""Ensembles whose margins are recalibrated one by one and joined by ranks."""

import math

import pytest
import torch
from scipy.stats import spearmanr
from torch.distributions import Exponential, Independent, Normal, Uniform

from prerank import Ensemble
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.recalibration import EnsembleCopulaCoupling, SchaakeShuffle, couple
from recalibration.bases import errors, largest_pce
from truths import multivariate_normal

CALIBRATION, FRESH, MEMBERS = 800, 500, 40
COUPLINGS = {"ecc": EnsembleCopulaCoupling, "schaake": SchaakeShuffle}

every_coupling = pytest.mark.parametrize("kind", COUPLINGS)


def test_the_published_example():
    # Clark et al. (2004), figure 2: ten members and past days at three stations.
    members = [
        [15.3, 11.2, 8.8, 11.9, 7.5, 9.7, 8.3, 12.5, 10.3, 10.1],
        [9.3, 6.3, 7.9, 7.5, 13.5, 11.8, 8.6, 17.7, 7.2, 12.2],
        [17.6, 15.6, 13.5, 14.2, 18.3, 15.9, 14.5, 23.9, 12.4, 16.3],
    ]
    past = [
        [10.7, 9.3, 6.8, 11.3, 12.2, 13.6, 8.9, 9.9, 11.8, 12.9],
        [10.9, 9.1, 7.2, 10.7, 13.1, 14.2, 9.4, 9.2, 11.9, 12.5],
        [13.5, 13.7, 9.3, 15.6, 17.8, 19.3, 12.1, 11.8, 15.2, 16.9],
    ]
    shuffled = [
        [10.1, 8.8, 7.5, 10.3, 11.9, 15.3, 8.3, 9.7, 11.2, 12.5],
        [9.3, 7.2, 6.3, 8.6, 13.5, 17.7, 7.9, 7.5, 11.8, 12.2],
        [14.5, 15.6, 12.4, 16.3, 18.3, 23.9, 14.2, 13.5, 15.9, 17.6],
    ]
    found = couple(Ensemble(torch.tensor(members).mT.unsqueeze(1)), torch.tensor(past).mT)
    assert torch.equal(found.samples[:, 0], torch.tensor(shuffled).mT)


@pytest.mark.parametrize("draws", ["quantiles", "random"])
def test_margins_are_the_given_ones_and_ranks_those_of_the_template(draws):
    generator = torch.Generator().manual_seed(0)
    template = torch.randn(30, 20, 3, generator=generator, dtype=torch.float64).exp()
    loc, scale = torch.randn(2, 20, 3, generator=generator, dtype=torch.float64)
    margins = Independent(Normal(loc, scale.exp()), 1)
    found = couple(margins, template, draws=draws, generator=0).samples
    assert torch.equal(found.argsort(0), template.argsort(0))
    levels = margins.base_dist.cdf(found).sort(0).values
    if draws == "quantiles":
        expected = torch.arange(1, 31).double().reshape(-1, 1, 1) / 31
        torch.testing.assert_close(levels, expected.expand_as(levels), rtol=0, atol=1e-8)
    else:  # Kolmogorov's, at the level .001
        flat = levels.flatten().sort().values
        even = (torch.arange(len(flat)) + 0.5) / len(flat)
        assert float((flat - even).abs().max()) < 1.95 / len(flat) ** 0.5


@pytest.mark.parametrize("margin", [Exponential, lambda rate: Uniform(-rate, rate)])
def test_drawn_margins_stay_in_their_support(margin):
    size, rate = 1000, torch.ones(5, 2, dtype=torch.float64)  # levels beyond all 512 draws
    margins = Independent(margin(rate), 1)
    template = torch.randn(size, 2, generator=torch.Generator().manual_seed(0))
    found = couple(margins, template, generator=0).samples
    assert bool(margins.support.check(found).all())
    levels = margins.base_dist.cdf(found).sort(0).values
    even = torch.arange(1, size + 1).double().reshape(-1, 1, 1) / (size + 1)
    assert float((levels - even).abs().max()) < 1.95 / 512**0.5  # Kolmogorov's, at the level .001


def test_ties_of_the_template_are_broken_at_random():
    rows = 4000
    members = Ensemble(torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1).expand(3, rows, 2))
    template = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
    found = couple(members, template, generator=0).samples
    assert bool((found[2] == 3).all())  # the largest is not tied
    assert bool((found[:, :, 1] == torch.tensor([[1.0], [2.0], [3.0]])).all())
    swapped = float((found[0, :, 0] == 2).double().mean())
    assert abs(swapped - 0.5) < 4 * 0.5 / rows**0.5


def gaussians(rows, seed, correlation=0.0, width=1.0, shift=0.0):
    """Members and observations with the same distribution in all rows, up to width and shift."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(MEMBERS + 1, rows, 2, generator=generator, dtype=torch.float64)
    second = correlation * noise[..., :1] + (1 - correlation**2) ** 0.5 * noise[..., 1:]
    joint = torch.cat([noise[..., :1], second], -1)
    return joint[1:] * width + shift, joint[0]


@every_coupling
def test_biased_and_too_wide_margins_are_repaired(kind):
    members, y = gaussians(CALIBRATION, 1, 0.7, width=1.6, shift=0.5)
    fitted = COUPLINGS[kind](generator=0).fit(Ensemble(members), y)
    members, y = gaussians(FRESH, 2, 0.7, width=1.6, shift=0.5)
    bound = largest_pce(FRESH, CALIBRATION, 3)
    for prerank in ("marginal", "location"):  # of the sum too: the ranks are right in both
        assert float(errors(Ensemble(members), y, prerank).max()) > bound
        assert float(errors(fitted(Ensemble(members)), y, prerank).max()) < bound


def test_the_coupling_decides_whose_dependence_is_kept():
    _, y = gaussians(CALIBRATION, 1, correlation=0.8)
    members, _ = gaussians(CALIBRATION, 2)  # independent, with the right margins
    raw = Ensemble(members)
    kept = EnsembleCopulaCoupling(generator=0).fit(raw, y)(raw).samples
    assert torch.equal(kept.argsort(0), members.argsort(0))
    random = EnsembleCopulaCoupling("random", generator=0).fit(raw, y)(raw).samples
    assert torch.equal(random.argsort(0), members.argsort(0))
    # Levels of their own in every row: the mean over S members has a variance of 1 / S.
    gap = (random - members).mean(0)
    assert abs(float(gap.std()) - MEMBERS**-0.5) < 4 * MEMBERS**-0.5 / (4 * CALIBRATION) ** 0.5
    shuffled = SchaakeShuffle(generator=0).fit(raw, y)(raw).samples
    torch.testing.assert_close(shuffled.sort(0).values, kept.sort(0).values)
    found = torch.tensor([spearmanr(row).statistic for row in shuffled.movedim(0, 1)])
    # Of a Gaussian copula; the estimate from S pairs is lower by about 3 (rho - tau) / (S + 1).
    tau, rho = (f(math.asin(r)) for f, r in ((lambda a: 2 * a / math.pi, 0.8), (rho_of, 0.4)))
    expected = rho - 3 * (rho - tau) / (MEMBERS + 1)
    # All templates come from the same past: its own estimate has the larger error,
    # at most (1 - rho^2)^(1/2) / n^(1/2), and four of these.
    assert abs(float(found.mean()) - expected) < 4 * (1 - rho**2) ** 0.5 / CALIBRATION**0.5


def rho_of(angle):
    return 6 / math.pi * angle


def test_margins_may_be_left_as_they_are():
    members, y = gaussians(CALIBRATION, 1, 0.7, width=1.6)
    raw = Ensemble(members)
    new = SchaakeShuffle(margins=False, generator=0).fit(raw, y)(raw).samples
    assert torch.equal(new.sort(0).values, members.sort(0).values)
    shuffled = SchaakeShuffle(generator=0).fit(raw, y)(raw).samples
    assert not torch.equal(shuffled.sort(0).values, members.sort(0).values)


@every_coupling
def test_same_seed_same_members(kind):
    members, y = gaussians(100, 1, width=2.0)
    first, second = (COUPLINGS[kind](generator=3).fit(Ensemble(members), y) for _ in range(2))
    new = Ensemble(members[:, :7].float())
    assert torch.equal(first(new).samples, second(new).samples)
    assert first(new).samples.dtype == torch.float32
    assert first(new).batch_shape == (7,)


MEMBERS_50, Y = gaussians(50, 1)
RAW = Ensemble(MEMBERS_50)


@every_coupling
def test_forecasts_that_are_no_plain_ensemble_are_named(kind):
    weighted = Ensemble(MEMBERS_50, torch.ones(MEMBERS))
    for dist, found in (
        (multivariate_normal(50), "MultivariateNormal"),
        (weighted, "with weights"),
    ):
        with pytest.raises(NotApplicableError, match=found):
            COUPLINGS[kind]().fit(dist, Y)
        with pytest.raises(NotApplicableError, match=found):
            COUPLINGS[kind](generator=0).fit(RAW, Y)(dist)


BAD = {
    "few past rows": (
        lambda: SchaakeShuffle().fit(Ensemble(MEMBERS_50[:, :30]), Y[:30]),
        InputError,
        "30 rows and dist 40 members",
    ),
    "more members later": (
        lambda: SchaakeShuffle().fit(RAW, Y)(Ensemble(torch.randn(60, 5, 2))),
        InputError,
        "60 members.*50 past",
    ),
    "draws": (lambda: EnsembleCopulaCoupling("median"), InputError, "draws must be one of"),
    "shape": (lambda: couple(RAW, torch.randn(40, 49, 2)), ShapeError, "template has shape"),
    "stack": (lambda: couple(RAW.expand((3, 50)), MEMBERS_50), ShapeError, r"\(3, 50\)"),
    "not finite": (lambda: couple(RAW, MEMBERS_50 / 0), InputError, "template holds"),
    "rows": (lambda: SchaakeShuffle().fit(Ensemble(MEMBERS_50[:5, :10]), Y[:10]), InputError, "20"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_use_is_named(bad):
    call, error, match = BAD[bad]
    with pytest.raises(error, match=match):
        call()
