"""Each rival repairs the fault it is made for, and leaves a calibrated forecast within noise."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import head
from prerank import Ensemble, GaussianMixture, nll, pce, pit
from prerank.pits import project_pits
from prerank.preranks import parse
from recalibration.bases import errors, largest_pce, self_check
from rivals import fit_affine, fit_width, from_latent, latent, on_members, radius_score, rivals
from truths import gaussian_mixture

CALIBRATION, FRESH = 600, 400


def mixture(rows, seed, dim=2):
    """A truth with three components, its draws and one input."""
    truth = gaussian_mixture(rows, dim=dim, seed=seed)
    x = torch.randn(rows, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.manual_seed(seed)
    return truth, truth.sample(), x


def normal(rows, seed):
    """A standard normal forecast of two targets, noise and one input."""
    noise = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    zeros = torch.zeros(rows, 1, 2, dtype=torch.float64)
    factor = torch.eye(2, dtype=torch.float64).expand(rows, 1, 2, 2)
    return GaussianMixture(zeros[..., 0], zeros, factor), noise[:, :2], noise[:, 2:]


def opposed(dist, y, x):
    """Observations with the margins of independent ones and a correlation of -.8."""
    return torch.stack([y[:, 0], 0.6 * y[:, 1] - 0.8 * y[:, 0]], -1)


def repaired(name, case, fault):
    """Fit to rows with a fault; forecasts before and after, observations and inputs of others."""
    (dist, y, x), (new, y_new, x_new) = (case(n, s) for n, s in ((CALIBRATION, 1), (FRESH, 2)))
    fit = rivals(x, x_new)[name]
    return new, fit(dist, fault(dist, y, x), 0)(new), fault(new, y_new, x_new), x_new


@pytest.mark.parametrize("name", ["width", "latent", "local margins", "tilting", "samples, affine"])
def test_a_calibrated_forecast_stays_within_noise(name):
    _, after, y, _ = repaired(name, mixture, lambda dist, y, x: y)
    for found in project_pits(after, y, parse("marginal+location+scale+copula"), generator=7):
        assert float(pce(found.z).max()) < largest_pce(FRESH, CALIBRATION, 5), found.prerank
    if not isinstance(after, Ensemble):
        change = nll(after, y) - nll(mixture(FRESH, 2)[0], y)
        # At most 40 estimated numbers, each of which costs 1 / (2 m); and four standard errors.
        cost = 40 / (2 * CALIBRATION)
        assert float(change.mean()) <= cost + 4 * float(change.std()) / FRESH**0.5


def test_the_width_is_found():
    dist, y, _ = normal(CALIBRATION, 1)
    found = fit_width(dist, 1.5 * y, 0)(dist).scale_tril[0, 0, 0, 0]
    # The estimate from n D normal values has a relative error of 1 / sqrt(2 n D).
    assert abs(math.log(float(found) / 1.5)) < 4 / (4 * CALIBRATION) ** 0.5


def test_the_latent_space_is_that_of_a_flow():
    truth, y, _ = mixture(FRESH, 1, dim=3)
    z = latent(truth, y[None])
    torch.testing.assert_close(from_latent(truth, z)[0], y, rtol=0, atol=1e-6)
    # The change of variables: log f(y) = log phi(z) + log |dz / dy|, triangular.
    steps = 1e-5 * torch.eye(3, dtype=torch.float64).unsqueeze(1)
    ahead, behind = latent(truth, y + steps), latent(truth, y - steps)  # (D, N, D)
    slopes = torch.stack([(ahead - behind)[d, :, d] / 2e-5 for d in range(3)], -1)
    density = -0.5 * (z[0].square() + math.log(2 * math.pi)) + slopes.log()
    torch.testing.assert_close(density.sum(-1), truth.log_prob(y), rtol=0, atol=1e-4)
    # Far out nothing is lost to rounding.
    far = truth.mean + 30 * truth.variance.sqrt()
    assert bool(latent(truth, far[None]).isfinite().all())


def test_a_wrong_latent_radius_is_repaired():
    def fault(dist, y, x):
        return from_latent(dist, 1.6 * latent(dist, y[None]))[0]

    before, after, y, _ = repaired("latent", mixture, fault)
    w = radius_score(latent(before, y[None])[0])
    bound = largest_pce(FRESH, CALIBRATION)
    assert float(pce(torch.special.ndtr(w)[:, None])) > bound
    assert float(pce(torch.special.ndtr(after.correction.forward(w)[0])[:, None])) < bound
    # Normals of width s instead of 1 gain D ((s^2 - 1) / 2 - log s) at most.
    best = 2 * ((1.6**2 - 1) / 2 - math.log(1.6))
    gain = nll(before, y) - nll(after, y)
    assert 0.8 * best < float(gain.mean()) + 4 * float(gain.std()) / FRESH**0.5
    mean, error = self_check(after, before)
    assert abs(mean - 1) < 4 * error


def test_local_margins_repair_a_fault_that_depends_on_the_inputs():
    def fault(dist, y, x):
        return torch.where(x < 0, 0.5, 2.0) * y

    def conditional(dist, y, x):
        z = pit(dist, y, "marginal", generator=0)
        return max(float(pce(z[side]).max()) for side in ((x < 0)[:, 0], (x >= 0)[:, 0]))

    before, after, y, x = repaired("local margins", normal, fault)
    _, everywhere, _, _ = repaired("margins", normal, fault)
    bound = largest_pce(FRESH // 2, CALIBRATION // 2, 4)
    assert conditional(before, y, x) > bound
    assert conditional(everywhere, y, x) > bound  # one map for all rows cannot
    # Rows within 100 neighbours of the step are mixed: a tenth of them on either side.
    assert conditional(after, y, x) < bound + 0.02


def test_tilting_creates_a_dependence():
    before, after, y, _ = repaired("tilting", normal, opposed)
    bound = largest_pce(FRESH, CALIBRATION, 2)
    for prerank in ("location", "scale"):
        assert float(errors(before, y, prerank).max()) > bound
        assert float(errors(after, y, prerank).max()) < bound
    assert float(errors(after, y, "marginal").max()) < largest_pce(FRESH, CALIBRATION, 4)
    truth = MultivariateNormal(
        torch.zeros(2).double(), torch.tensor([[1, -0.8], [-0.8, 1]]).double()
    )
    gain, best = nll(before, y) - nll(after, y), nll(before, y) + truth.log_prob(y)
    assert 0.5 * float(best.mean()) < float(gain.mean()) < float(best.mean())
    mean, error = self_check(after, before)
    assert abs(mean - 1) < 4 * error + 0.02  # the total of a row rests on 100 draws


def test_affine_members_are_found():
    dist, y, _ = normal(CALIBRATION, 1)
    fit = on_members(fit_affine)
    new = fit(dist, 0.5 + 1.5 * y, 0)(dist).samples
    # Mean and width by the CRPS have some 1.1 times the error of the best estimates.
    assert float((new.mean((0, 1)) - 0.5).abs().max()) < 5 * 1.5 / CALIBRATION**0.5
    assert float((new.std((0, 1)) / 1.5 - 1).abs().max()) < 5 / (2 * CALIBRATION) ** 0.5


def test_the_schaake_shuffle_gives_members_the_dependence_of_the_past():
    _, after, y, _ = repaired("samples, schaake", normal, opposed)
    _, margins, _, _ = repaired("samples, margins", normal, opposed)
    bound = largest_pce(FRESH, CALIBRATION)
    assert float(errors(margins, y, "location")) > bound
    assert float(errors(after, y, "location")) < bound


def test_samples_have_no_likelihood_and_every_other_score():
    dist, y, _ = normal(100, 1)
    members = Ensemble(dist.sample((20,)))
    found = head.scores(members, y, nll(dist, y), 0)
    assert math.isnan(found["nll"])
    assert math.isfinite(found["energy"])
    assert {row["prerank"] for row in head.judge(members, y, 0)} >= {"marginal", "copula"}
