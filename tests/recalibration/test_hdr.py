"""HDR recalibration: it reaches the floor of a known truth, and is a law like any other."""

from functools import cache

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Kumaraswamy, MultivariateNormal, Uniform

from prerank import Ensemble, GaussianMixture, nll, null_pce
from prerank.errors import NotApplicableError
from prerank.recalibration import HDRRecalibrated, HDRRecalibrator
from prerank.recalibration.corrections import Correction
from recalibration.bases import errors, largest_pce, self_check, stretched
from truths import MultivariateT, gaussian_mixture, multivariate_normal

ROWS = 800  # to fit on, and fresh ones


def too_narrow(rows, seed):
    truth = gaussian_mixture(rows, dim=2, seed=seed)
    return stretched(truth, 0.6), truth.sample()


def too_wide(rows, seed):
    truth = gaussian_mixture(rows, dim=3, seed=seed)
    return stretched(truth, 1.7), truth.sample()


def very_narrow(rows, seed):
    truth = multivariate_normal(rows, dim=5, seed=seed)
    return MultivariateNormal(truth.loc, scale_tril=0.4 * truth.scale_tril), truth.sample()


def heavy_tails(rows, seed):
    guess = multivariate_normal(rows, dim=2, seed=seed)
    return guess, MultivariateT(guess.loc, guess.scale_tril, 3.0).sample()


def biased(rows, seed):
    guess = multivariate_normal(rows, dim=2, seed=seed)
    return guess, guess.sample() + 1.5


CASES = [too_narrow, too_wide, very_narrow, heavy_tails, biased]


@cache
def recalibrated(case):
    """PCE on fresh rows without and with the recalibrator, and what it gains in likelihood."""
    seed = CASES.index(case)
    torch.manual_seed(seed)
    recalibrator = HDRRecalibrator(n_samples=256, generator=seed)
    recalibrator.fit(*case(ROWS, seed=2 * seed + 1))
    guess, y = case(ROWS, seed=2 * seed + 2)
    law = recalibrator(guess)
    before, after = (float(errors(f, y, "hdr")) for f in (guess, law))
    return before, after, float((nll(guess, y) - nll(law, y)).mean())


@pytest.mark.parametrize("case", CASES)
def test_fresh_rows_are_calibrated(case):
    before, after, gain = recalibrated(case)
    bound = largest_pce(ROWS, ROWS)
    print(f"{case.__name__}: PCE {before:.4f} -> {after:.4f}, bound {bound:.4f}")
    # The forecast itself has not seen the other rows. Of heavy tails it is 0.061, with a standard
    # deviation of 0.01 at 800 rows, and the bound for right forecasts 0.034.
    assert before > np.quantile(null_pce(ROWS), 0.999)
    assert after < bound
    assert gain > 0


def test_fresh_rows_reach_the_floor():
    """The mean PCE of forecasts that were wrong in unlike ways is one that chance explains.

    A perfect recalibrator has the floor of n fresh rows. One that sends H through the empirical CDF
    of as many calibration rows has that of n / 2 (see `largest_pce`), and a smoother correction
    lies in between. The mean of the runs may miss these two by three of its standard errors.
    """
    found = [recalibrated(case)[1] for case in CASES]
    mean, best, worst = sum(found) / len(found), null_pce(ROWS), null_pce(ROWS // 2)
    low = best.mean() - 3 * best.std() / len(found) ** 0.5
    high = worst.mean() + 3 * worst.std() / len(found) ** 0.5
    print(f"mean PCE {mean:.4f}, between {low:.4f} and {high:.4f}, floor {best.mean():.4f}")
    assert low < mean < high


def test_density_integrates_to_one():
    torch.manual_seed(0)
    guess, y = too_narrow(1000, seed=1)
    law = HDRRecalibrator(generator=0).fit(guess, y)(too_narrow(50, seed=2)[0])
    side = torch.linspace(-12, 12, 241, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side).unsqueeze(1).expand(-1, 50, -1)
    mass = law.log_prob(grid).exp().sum(0) * (side[1] - side[0]) ** 2
    print(f"mass of a row: {mass.mean():.4f}, standard deviation {mass.std():.4f}")
    # The error of a row is that of the 512 points that normalise it, independent across rows.
    assert abs(float(mass.mean()) - 1) < 4 * float(mass.std()) / 50**0.5
    assert float(mass.std()) < 0.04  # of 200 rows: 0.019


@pytest.mark.parametrize("case", [too_narrow, heavy_tails, biased])
def test_order_of_densities_is_kept(case):
    guess, y = case(200, seed=1)
    law = HDRRecalibrator(generator=0).fit(guess, y)(guess)
    points = torch.cat([guess.sample((200,)), 4 * torch.randn(50, *y.shape, dtype=y.dtype)])
    order = guess.log_prob(points).argsort(0)
    new = law.log_prob(points).gather(0, order)
    assert bool((new.diff(dim=0) >= -1e-9).all())


def test_bounded_support_stays_bounded():
    torch.manual_seed(0)
    flat = Independent(Uniform(torch.zeros(200, 2), torch.ones(200, 2)), 1)
    assert HDRRecalibrator(generator=0).fit(flat, flat.sample())(flat).sample().amax() <= 1
    square = Independent(Kumaraswamy(2.0, torch.full((200, 2), 2.0)), 1)
    centred = 0.5 + 0.5 * (square.sample() - 0.5)
    law = HDRRecalibrator(generator=0).fit(square, centred)(square)
    assert law is not square
    draws = law.sample((50,))
    assert bool(((draws >= 0) & (draws <= 1)).all())
    assert bool(torch.isneginf(law.log_prob(torch.full((200, 2), 2.0))).all())


def test_a_law_without_density_is_refused():
    guess = multivariate_normal(50, dim=2, seed=1)
    with pytest.raises(NotApplicableError, match="MarginalRecalibrator"):
        HDRRecalibrator().fit(Ensemble(guess.sample((10,))), guess.sample())


def test_spikes_beside_wide_components_are_covered():
    # A forecast of discrete targets: nearly all of its weight on spikes, the rest far and wide.
    torch.manual_seed(0)
    rows, scales = 400, torch.tensor([1e-3, 1e-2, 1.0], dtype=torch.float64)
    logits = torch.tensor([3.0, 2.0, -2.0], dtype=torch.float64).expand(rows, -1)
    factor = (scales[:, None, None] * torch.eye(2, dtype=torch.float64)).expand(rows, -1, -1, -1)
    guess = GaussianMixture(logits, torch.randn(rows, 3, 2, dtype=torch.float64), factor)
    y = torch.where(torch.rand(rows, 1) < 0.7, guess.sample(), torch.randn(rows, 2).double())
    law = HDRRecalibrator(generator=0).fit(guess, y)(guess)
    mean, error = self_check(law, guess)
    assert abs(mean - 1) < 4 * error
    assert error < 0.03


def test_a_density_that_rests_on_few_points_is_told():
    guess = multivariate_normal(100, dim=5, seed=1)
    far = Correction(
        torch.tensor([-41.0, -40.0, -39.0], dtype=torch.float64),
        torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64),
    )
    with pytest.warns(UserWarning, match="rows the recalibrated density rests on fewer"):
        HDRRecalibrated(guess, far, n_samples=50, generator=0)


def test_rows_have_a_table_each():
    guess, y = too_narrow(100, seed=1)
    law = HDRRecalibrator(generator=0).fit(guess, y)(guess)
    assert law.expand((100,)) is law
    with pytest.raises(NotApplicableError, match="expand the forecast first"):
        law.expand((2, 100))
