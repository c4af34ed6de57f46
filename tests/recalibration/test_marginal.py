"""Recalibration of margins: it repairs them, and nothing else."""

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Uniform

from prerank import Ensemble, diagnose
from prerank.recalibration import HDRRecalibrator, MarginalRecalibrator
from recalibration.bases import BASES, errors, largest_pce, stretched
from truths import MultivariateT, gaussian_mixture, multivariate_normal

CALIBRATION, FRESH = 1200, 600


def too_narrow(rows, seed):
    truth = gaussian_mixture(rows, dim=2, seed=seed)
    return stretched(truth, 0.5), truth.sample()


def too_wide(rows, seed):
    truth = gaussian_mixture(rows, dim=3, seed=seed)
    return stretched(truth, 2.0), truth.sample()


def heavy_tails(rows, seed):
    guess = multivariate_normal(rows, dim=2, seed=seed)
    return guess, MultivariateT(guess.loc, 1.5 * guess.scale_tril, 3.0).sample()


def biased_and_skewed(rows, seed):
    guess = multivariate_normal(rows, dim=2, seed=seed)
    scores = torch.randn(rows, 2, dtype=torch.float64)
    return guess, guess.loc + guess.variance.sqrt() * torch.expm1(scores)


def ensemble(rows, seed):
    truth = multivariate_normal(rows, dim=2, seed=seed)
    guess = MultivariateNormal(truth.loc + 0.3, scale_tril=1.5 * truth.scale_tril)
    return Ensemble(guess.sample((100,))), truth.sample()


CASES = [too_narrow, too_wide, heavy_tails, biased_and_skewed, ensemble]


@pytest.mark.parametrize("case", CASES)
def test_fresh_rows_reach_the_floor(case):
    torch.manual_seed(0)
    recalibrator = MarginalRecalibrator(generator=0).fit(*case(CALIBRATION, seed=1))
    guess, y = case(FRESH, seed=2)
    law = recalibrator(guess)
    before, after = errors(guess, y, "marginal"), errors(law, y, "marginal")
    bound = largest_pce(FRESH, CALIBRATION, y.shape[1])
    print(f"{case.__name__}: PCE {before.max():.4f} -> {after.max():.4f}, bound {bound:.4f}")
    assert float(before.max()) > bound
    assert float(after.max()) < bound


def test_a_wrong_copula_stays_wrong():
    def case(rows, seed):
        torch.manual_seed(seed)
        loc = torch.randn(rows, 3, dtype=torch.float64)
        covariance = 0.2 * torch.eye(3, dtype=torch.float64) + 0.8
        truth = MultivariateNormal(loc, covariance)
        guess = MultivariateNormal(loc, 0.25 * torch.eye(3, dtype=torch.float64))
        return guess, truth.sample()

    margins = MarginalRecalibrator(generator=0).fit(*case(CALIBRATION, 1))
    guess, y = case(FRESH, 2)
    law = margins(guess)
    assert float(errors(law, y, "marginal").max()) < largest_pce(FRESH, CALIBRATION, 3)
    # With margins of variance 1 and no dependence, the copula is that of independence.
    for prerank in ("location", "scale"):
        assert float(errors(law, y, prerank)) > largest_pce(FRESH, CALIBRATION)


@pytest.mark.parametrize("base", BASES)
def test_map_is_inverted_and_has_the_derivative_of_autograd(base):
    # With these a change of variables is exact: the density integrates to one as the old one does.
    torch.manual_seed(0)
    guess = BASES[base](100, dim=2, seed=1)
    y = guess.sample((3,)).median(0).values  # too wide
    (change,) = MarginalRecalibrator(generator=0).fit(guess, y)(guess).transforms
    draws = guess.sample((20,)).requires_grad_()
    moved = change(draws)
    (slopes,) = torch.autograd.grad(moved.sum(), draws)  # target by target
    found = change.log_abs_det_jacobian(draws, moved).detach()
    assert torch.allclose(change.inv(moved.detach()), draws.detach(), atol=1e-6)
    assert torch.allclose(slopes.log().sum(-1), found, atol=1e-5)
    # The copula is kept: draws of a row and target keep their order.
    assert torch.equal(draws.argsort(0), moved.argsort(0))


def test_new_margins_are_the_corrected_ones():
    torch.manual_seed(0)
    guess, y = too_wide(1000, seed=1)
    recalibrator = MarginalRecalibrator(generator=0).fit(guess, y)
    law = recalibrator(guess)
    w = law.transforms[0].table.score(law.sample())[0]
    for d, correction in enumerate(recalibrator.corrections_):
        z = torch.special.ndtr(correction.forward(w[:, d].contiguous())[0])
        distance = (z.sort().values - (torch.arange(1000) + 0.5) / 1000).abs().max()
        assert float(distance) < 1.95 / 1000**0.5  # Kolmogorov's, at the level .001


def test_margins_then_regions():
    def case(rows, seed):
        guess, y = heavy_tails(rows, seed)
        return MultivariateNormal(guess.loc, scale_tril=0.6 * guess.scale_tril), y

    torch.manual_seed(0)
    guess, y = case(600, 1)
    margins = MarginalRecalibrator(generator=0).fit(guess, y)
    regions = HDRRecalibrator(generator=0, n_samples=128).fit(margins(guess), y)
    guess, y = case(400, 2)
    law = regions(margins(guess))
    assert float(errors(law, y, "hdr")) < largest_pce(400, 600)
    before, after = (float(errors(f, y, "marginal").max()) for f in (guess, law))
    assert after < 0.5 * before  # regions may move margins again


def test_ensembles_keep_ranks_and_weights():
    torch.manual_seed(0)
    guess, y = ensemble(500, seed=1)
    weighted = Ensemble(guess.samples, torch.rand(100, dtype=torch.float64))
    for forecast in (guess, weighted):
        law = MarginalRecalibrator(generator=0).fit(forecast, y)(forecast)
        assert isinstance(law, Ensemble)
        assert torch.equal(forecast.samples.argsort(0), law.samples.argsort(0))
        assert float(law.variance.mean()) < 0.7 * float(forecast.variance.mean())  # 1 / 2.25
    assert torch.equal(law.weights, weighted.weights)


def test_tied_members_stay_tied():
    guess, y = ensemble(300, seed=1)
    rain = Ensemble(guess.samples.clamp_min(0))
    law = MarginalRecalibrator(generator=0).fit(rain, y.clamp_min(0))(rain)
    for d in range(2):
        column = rain.samples[:, 0, d]
        tied = law.samples[column == 0, 0, d]
        assert bool((tied == tied[0]).all())


def test_bounded_forecasts_keep_a_density():
    # Beyond the ends of the table no draw of the forecast is left: density 0, not an error.
    generator = torch.Generator().manual_seed(0)
    rows = 600
    uniform = Independent(Uniform(torch.zeros(rows, 2), torch.ones(rows, 2)), 1)
    observed = torch.rand(2, rows, 2, generator=generator).square()
    new = MarginalRecalibrator(generator=0).fit(uniform, observed[0])(uniform)
    density = new.log_prob(observed[1])
    assert not density.isnan().any()
    assert (density > -torch.inf).double().mean() > 0.9
    p = diagnose(new, observed[1], preranks="marginal", generator=0).table.p_holm[0]
    assert p > 0.01
