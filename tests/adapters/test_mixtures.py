"""Mixtures of predictions and products of margins: exact laws, whatever they are made of."""

import pytest
import torch
from torch.distributions import (
    Categorical,
    Exponential,
    Gamma,
    Independent,
    Laplace,
    LogNormal,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
)

from adapters.judging import correlated, judge
from prerank import Ensemble, GaussianMixture, nll, pit
from prerank.adapters import Mixture, Product, mixture, product
from prerank.adapters.mixtures import as_gaussian_mixture
from prerank.errors import PrerankError
from truths import gaussian_mixture, independent_normal, multivariate_normal, random_factor

ROWS, DIM = 7, 3


def low_rank(*batch, dim, seed=0):
    g = torch.Generator().manual_seed(seed)
    loc, factor = (torch.randn(*batch, dim, *s, generator=g).double() for s in ((), (2,)))
    return LowRankMultivariateNormal(loc, factor, torch.full((*batch, dim), 0.3).double())


def same_family(*batch, dim, seed=0):
    g = torch.Generator().manual_seed(seed)
    loc = torch.randn(*batch, 4, dim, generator=g).double()
    parts = MultivariateNormal(loc, scale_tril=random_factor(*batch, 4, dim, generator=g))
    return MixtureSameFamily(
        Categorical(logits=torch.randn(*batch, 4, generator=g).double()), parts
    )


def log_normal(*batch, dim, seed=0):
    loc = independent_normal(*batch, dim=dim, seed=seed).base_dist.loc
    return Independent(LogNormal(loc, torch.full_like(loc, 0.5)), 1)


GAUSSIAN = {
    "independent": independent_normal,
    "multivariate": multivariate_normal,
    "low rank": low_rank,
    "mixture": gaussian_mixture,
    "same family": same_family,
}
KINDS = {**GAUSSIAN, "log-normal": log_normal}
by_kind = pytest.mark.parametrize("kind", KINDS)


@by_kind
@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_the_density_is_the_weighted_sum(kind, weights):
    parts = [KINDS[kind](ROWS, dim=DIM, seed=seed) for seed in (1, 2)]
    both = mixture(parts, weights=weights)
    assert isinstance(both, GaussianMixture if kind in GAUSSIAN else Mixture)
    assert (both.batch_shape, both.event_shape) == ((ROWS,), (DIM,))
    y = parts[0].sample((5,))
    share = torch.tensor([0.5, 0.5] if weights is None else [0.75, 0.25]).double()
    expected = sum(w * part.log_prob(y).exp() for w, part in zip(share, parts, strict=True))
    torch.testing.assert_close(both.log_prob(y), expected.log())
    means = sum(w * part.mean for w, part in zip(share, parts, strict=True))
    torch.testing.assert_close(both.mean, means)
    squares = [part.variance + part.mean.square() for part in parts]
    second = sum(w * square for w, square in zip(share, squares, strict=True))
    torch.testing.assert_close(both.variance, second - means.square())


def test_different_gaussians_are_one_mixture():
    parts = [kind(ROWS, dim=DIM) for kind in GAUSSIAN.values()]
    both = mixture(parts)
    assert both.loc.shape == (ROWS, 1 + 1 + 1 + 3 + 4, DIM)
    y = torch.randn(ROWS, DIM, dtype=torch.float64)
    expected = torch.stack([part.log_prob(y) for part in parts]).logsumexp(0)
    torch.testing.assert_close(both.log_prob(y), expected - torch.tensor(5.0).double().log())


# Mixtures of Gaussian kinds are one law, whose density the tests above compare for each kind.
@pytest.mark.parametrize("kinds", [[*GAUSSIAN], ["log-normal"] * 2], ids=str)
def test_draws_follow_the_density(kinds):
    """The PIT of a target is uniform when it is drawn from the mixture itself."""
    parts = [KINDS[kind](1, dim=DIM, seed=s + 1).expand((2000,)) for s, kind in enumerate(kinds)]
    both = mixture(parts, weights=[0.3, *[0.7 / (len(parts) - 1)] * (len(parts) - 1)])
    judge(both, both.sample())


def test_components_are_chosen_for_each_row():
    parts = [Independent(Laplace(torch.full((4000, 2), m), 0.1), 1) for m in (0.0, 10.0)]
    high = mixture(parts, weights=[0.25, 0.75]).sample((3,)).mean(-1) > 5
    assert high.shape == (3, 4000)
    # Standard error sqrt(.25 * .75 / 12000) = .004; draws of one row are independent of each other.
    assert abs(high.double().mean() - 0.75) < 0.016
    agree = (high[0] == high[1]).double().mean()  # .625 of 4000, standard error .0077
    assert abs(agree - 0.625) < 0.031


def test_gradients_pass_through_gaussian_mixtures():
    locs = [torch.zeros(ROWS, DIM, requires_grad=True) for _ in range(2)]
    both = mixture([Independent(Normal(loc, 1.0), 1) for loc in locs])
    nll(both, torch.ones(ROWS, DIM)).mean().backward()
    assert all(bool((loc.grad < 0).all()) for loc in locs)


def test_supports_may_differ():
    """Below zero the log-normal has no density, and the normal has all of it."""
    normal = Independent(Normal(torch.zeros(ROWS, 2), torch.ones(2)), 1)
    positive = Independent(LogNormal(torch.zeros(ROWS, 2), torch.ones(2)), 1)
    both = mixture([normal, positive])
    below, half = -torch.ones(ROWS, 2), torch.tensor(2.0).log()
    torch.testing.assert_close(both.log_prob(below), normal.log_prob(below) - half)
    assert bool((mixture([positive, positive]).log_prob(below) == -torch.inf).all())
    assert float(pit(mixture([positive, positive]), below, "hdr", generator=0).max()) < 0.01


def test_ensembles_are_pooled():
    few, many = Ensemble(torch.randn(10, ROWS, DIM)), Ensemble(torch.randn(30, ROWS, DIM))
    plain = mixture([few, few])
    assert plain.weights is None
    assert len(plain.samples) == 20
    weighted = mixture([few, many])  # each counts half, so do its members together
    torch.testing.assert_close(weighted.weights[:10].sum(0), torch.full((ROWS,), 0.5))
    torch.testing.assert_close(weighted.mean, (few.mean + many.mean) / 2)


def test_what_is_no_gaussian_mixture_stays():
    dist = log_normal(ROWS, dim=DIM)
    assert as_gaussian_mixture(dist) is dist
    nested = MixtureSameFamily(
        Categorical(logits=torch.zeros(ROWS, 2)),
        Independent(Laplace(torch.zeros(ROWS, 2, DIM), torch.ones(DIM)), 1),
    )
    assert as_gaussian_mixture(nested) is nested


def test_expand():
    both = mixture([log_normal(1, dim=DIM, seed=s) for s in (1, 2)])
    assert both.expand((4, ROWS)).sample((2,)).shape == (2, 4, ROWS, DIM)


BAD_MIXTURES = {
    "empty": (lambda: mixture([]), "dists is empty"),
    "no distribution": (lambda: mixture([torch.zeros(3, 2)]), "must be a torch.distributions"),
    "shapes": (
        lambda: mixture([independent_normal(3, dim=2), independent_normal(4, dim=2)]),
        r"batch_shape \(3,\).*also \(4,\)",
    ),
    "scalar": (lambda: mixture([Normal(torch.zeros(3), 1.0)]), "wrap it in Independent"),
    "weights": (
        lambda: mixture([independent_normal(3, dim=2)] * 2, weights=[1.0]),
        r"weights has shape \(1,\), but there are 2",
    ),
    "negative": (
        lambda: mixture([independent_normal(3, dim=2)] * 2, weights=[2.0, -1.0]),
        "weights must be non-negative",
    ),
    "not finite": (
        lambda: mixture([independent_normal(3, dim=2)] * 2, weights=[float("nan"), 1.0]),
        "weights holds 1 NaN",
    ),
    "samples and laws": (
        lambda: mixture([independent_normal(3, dim=2), Ensemble(torch.zeros(5, 3, 2))]),
        "both Ensembles and other distributions",
    ),
    "no margins": (lambda: product([]), "margins is empty"),
    "no margin": (lambda: product([1.0]), "margins must be"),
    "vectors": (lambda: product([independent_normal(3, dim=2)]), "law of one number"),
    "rows": (
        lambda: product([Normal(torch.zeros(3), 1.0), Normal(torch.zeros(4), 1.0)]),
        r"batch_shape \(3,\), but also \(4,\)",
    ),
}


@pytest.mark.parametrize("case", BAD_MIXTURES)
def test_bad_input(case):
    call, message = BAD_MIXTURES[case]
    with pytest.raises(PrerankError, match=message):
        call()


# --- products --------------------------------------------------------------------------------


def margins(rows):
    loc = torch.linspace(-1, 1, rows, dtype=torch.float64)
    return [Normal(loc, 1.0), Gamma(2 + loc, loc.exp()), Exponential(loc.exp())]


def test_a_product_is_exact():
    parts = margins(ROWS)
    joint = product(parts)
    assert isinstance(joint, Product)
    y = joint.sample((4,))
    assert y.shape == (4, ROWS, 3)
    expected = sum(part.log_prob(y[..., d]) for d, part in enumerate(parts))
    torch.testing.assert_close(joint.log_prob(y), expected)
    torch.testing.assert_close(joint.mean, torch.stack([part.mean for part in parts], -1))
    torch.testing.assert_close(joint.covariance_matrix.diagonal(dim1=-2, dim2=-1), joint.variance)
    assert joint.has_rsample
    assert joint.rsample((2,)).shape == (2, ROWS, 3)
    assert joint.expand((2, ROWS)).event_shape == (3,)
    inside = joint.support.check(torch.tensor([[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]).double())
    assert inside.tolist() == [True, False]


def test_normals_keep_their_closed_forms():
    joint = product([Normal(torch.zeros(5), 1.0), Normal(torch.ones(5), torch.full((5,), 2.0))])
    assert isinstance(joint, Independent)
    torch.testing.assert_close(joint.stddev[0], torch.tensor([1.0, 2.0]))


def test_a_product_is_diagnosed():
    joint = product(margins(1500))
    judge(joint, joint.sample())
    wide = joint.mean + 1.5 * (joint.sample() - joint.mean)
    judge(joint, wide, blamed="marginal hdr")


def test_the_missing_dependence_of_a_product_is_found():
    y = correlated(1500)
    normals = product([Normal(torch.zeros(1500).double(), 1.0) for _ in range(2)])
    judge(normals, y, blamed="scale location copula", cleared="marginal")
