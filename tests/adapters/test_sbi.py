"""Posteriors of sbi, on a problem whose posterior is known."""

import pytest
import torch
from torch.distributions import Distribution, MultivariateNormal

from adapters.judging import judge, load
from prerank import Ensemble, pit
from prerank.adapters import AmortisedPosterior, Mixture, from_sbi
from prerank.errors import PrerankError

sbi = load("sbi.inference")
posteriors = load("sbi.inference.posteriors")
parameters = load("sbi.inference.posteriors.posterior_parameters")
utils = load("sbi.utils")
NOISE, DIM = 0.5, 2

# Of sbi, lightning, tensorboard and others, which are not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

PRIORS = {
    "normal": lambda: MultivariateNormal(torch.zeros(DIM), torch.eye(DIM)),
    "box": lambda: utils.BoxUniform(-torch.ones(DIM), torch.ones(DIM)),
}


def simulate(prior, rows, seed):
    """Parameters, and both of them seen with noise that the two share in part."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        theta = prior.sample((rows,))
        own, common = torch.randn(rows, DIM), torch.randn(rows, 1)
        return theta, theta + NOISE * (0.6 * own + 0.8 * common)


def trained(kind, prior_name, seed=0):
    """A trained NPE or NLE, and its prior; torch's switches stay as they are."""
    checks, prior = Distribution._validate_args, PRIORS[prior_name]()
    theta, x = simulate(prior, 4000, seed=10)
    torch.manual_seed(seed)
    trainer = kind(prior, density_estimator="mdn", show_progress_bars=False)
    trainer.append_simulations(theta, x)
    settings = {"learning_rate": 0.002, "stop_after_epochs": 10, "max_num_epochs": 60}
    trainer.train(training_batch_size=100, **settings)
    Distribution.set_default_validate_args(checks)
    return trainer, prior


@pytest.fixture(scope="module", params=PRIORS)
def amortised(request):
    trainer, prior = trained(sbi.NPE, request.param)
    return trainer.build_posterior(), prior


def test_density_and_draws_are_those_of_sbi(amortised):
    posterior, prior = amortised
    theta, x = simulate(prior, 5, seed=20)
    dist = from_sbi(posterior, x)
    assert isinstance(dist, AmortisedPosterior)
    assert (dist.batch_shape, dist.event_shape) == ((5,), (DIM,))
    draws = dist.sample((2000,))
    assert draws.shape == (2000, 5, DIM)
    found = dist.log_prob(theta)
    for n in range(5):
        theirs = posterior.log_prob(theta[n], x=x[n])
        # Both estimate what leaks out of the prior, from 1,000 and 10,000 draws: with a share of
        # .5 inside, the standard error of the difference is .033.
        torch.testing.assert_close(found[n : n + 1], theirs, rtol=0, atol=0.13)
        drawn = posterior.sample((2000,), x=x[n], show_progress_bars=False)
        error = (drawn.var(0) / 1000).sqrt()
        assert bool(((draws[:, n].mean(0) - drawn.mean(0)).abs() < 4 * error).all())
    assert bool(torch.isfinite(found).all())


def test_the_density_integrates_to_one(amortised):
    posterior, prior = amortised
    _, x = simulate(prior, 4, seed=21)
    dist = from_sbi(posterior, x)
    bound = 5.0 if isinstance(prior, MultivariateNormal) else 1.2
    line = torch.linspace(-bound, bound, 301)
    grid = torch.cartesian_prod(line, line).unsqueeze(1).expand(-1, 4, -1)
    total = dist.log_prob(grid).exp().sum(0) * (line[1] - line[0]) ** 2
    # Four standard errors of the share inside, which 1,000 draws estimate, and the grid.
    torch.testing.assert_close(total, torch.ones(4), rtol=0, atol=0.15)
    outside = torch.full((4, DIM), 1.1)
    if bound < 5:
        assert bool((dist.log_prob(outside) == -torch.inf).all())


def test_the_right_posterior_is_cleared_and_wrong_ones_blamed(amortised):
    posterior, prior = amortised
    theta, x = simulate(prior, 400, seed=22)
    dist = from_sbi(posterior, x)
    judge(dist, theta)
    judge(dist, theta + 0.5, blamed="marginal location")
    # Each parameter in the place of the other: mean and variance across the two stay as they were.
    judge(dist, theta.flip(1), blamed="hdr copula", cleared="location scale")


def test_a_seed_fixes_the_draws_and_densities_draw_nothing(amortised):
    posterior, prior = amortised
    theta, x = simulate(prior, 20, seed=23)
    one, two = (pit(from_sbi(posterior, x), theta, "hdr", generator=0) for _ in range(2))
    assert torch.equal(one, two)
    state = torch.get_rng_state()
    from_sbi(posterior, x).log_prob(theta)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_number_of_draws_for_the_normalisation_is_passed_on(amortised):
    posterior, prior = amortised
    _, x = simulate(prior, 3, seed=23)
    assert from_sbi(posterior, x).n_correction == 1000
    assert from_sbi(posterior, x, n_correction=50).n_correction == 50
    both = from_sbi(posteriors.EnsemblePosterior([posterior] * 2), x, n_correction=50)
    assert [part.n_correction for part in both.components] == [50, 50]
    with pytest.raises(PrerankError, match="n_correction must be at least 1"):
        from_sbi(posterior, x, n_correction=0)


def told_the_shape(posterior):
    """Observations of another width are refused at the call, and the right width is named."""
    for width in (1, DIM + 1):
        with pytest.raises(PrerankError, match=r"x has shape \(5, .*: give x \(N, 2\)"):
            from_sbi(posterior, torch.zeros(5, width), n_samples=2)


def test_observations_of_another_width_are_told_at_the_call(amortised):
    told_the_shape(amortised[0])
    told_the_shape(posteriors.EnsemblePosterior([amortised[0]] * 2))


KINDS = {"likelihood": "NLE", "ratio": "NRE", "flow matching": "FMPE"}


@pytest.mark.parametrize("kind", KINDS)
def test_posteriors_without_a_density_tell_their_shape(kind):
    checks, prior = Distribution._validate_args, PRIORS["normal"]()
    trainer = getattr(sbi, KINDS[kind])(prior, show_progress_bars=False)
    trainer.append_simulations(*simulate(prior, 100, seed=27)).train(max_num_epochs=1)
    Distribution.set_default_validate_args(checks)
    told_the_shape(trainer.build_posterior())


def test_numbers_of_observations_are_split(amortised, monkeypatch):
    posterior, prior = amortised
    monkeypatch.setattr("prerank.adapters.sbi._DRAWS", 50)
    _, x = simulate(prior, 23, seed=24)
    draws = from_sbi(posterior, x.double().numpy()).sample((10,))
    assert draws.shape == (10, 23, DIM)
    centre = draws.mean(0)
    assert float(torch.corrcoef(torch.stack([centre[:, 0], x[:, 0]]))[0, 1]) > 0.5


def test_an_ensemble_of_posteriors_is_their_mixture():
    parts = []
    for seed in (0, 1):
        trainer, prior = trained(sbi.NPE, "normal", seed=seed)
        parts.append(trainer.build_posterior())
    both = posteriors.EnsemblePosterior(parts, weights=[0.25, 0.75])
    theta, x = simulate(prior, 300, seed=25)
    dist = from_sbi(both, x)
    assert isinstance(dist, Mixture)
    for n in range(3):
        theirs = both.log_prob(theta[n], x=x[n])
        torch.testing.assert_close(dist.log_prob(theta)[n : n + 1], theirs, rtol=1e-4, atol=1e-4)
    judge(dist, theta)


def test_posteriors_without_a_density_are_sampled():
    """NLE learns the likelihood; here draws of its posterior are resampled from the prior."""
    trainer, prior = trained(sbi.NLE, "normal")
    resampling = parameters.ImportanceSamplingPosteriorParameters(
        method="sir", oversampling_factor=64
    )
    posterior = trainer.build_posterior(posterior_parameters=resampling)
    theta, x = simulate(prior, 200, seed=26)
    dist = from_sbi(posterior, x, n_samples=30, generator=0)
    assert isinstance(dist, Ensemble)
    assert dist.samples.shape == (30, 200, DIM)
    judge(dist, theta)
    judge(dist, 0.5 + theta, blamed="marginal location")
    # It takes one observation at a time, so the first rows are the same without the others.
    with torch.no_grad():
        again = from_sbi(posterior, x[:5], n_samples=30, generator=0)
    assert torch.equal(dist.samples[:, :5], again.samples)


BAD = {
    "a prior": (lambda: from_sbi(PRIORS["normal"](), torch.zeros(3, 2)), "posterior must be"),
    "no rows": (lambda: from_sbi(PRIORS["normal"](), torch.zeros(2)), r"x must have shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
