"""Distributions of NGBoost."""

import numpy as np
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal

from adapters.judging import judge, load
from prerank.adapters import Product, from_ngboost
from prerank.errors import PrerankError

distns = load("ngboost.distns")
ROWS = 400

# Parameters as NGBoost learns them, on its own scale, one line each.
FAMILIES = {
    "Normal": ("Normal", (0.3, -0.5)),
    "NormalFixedVar": ("NormalFixedVar", (0.3,)),
    "NormalFixedMean": ("NormalFixedMean", (0.3,)),
    "LogNormal": ("LogNormal", (0.3, -0.5)),
    "Laplace": ("Laplace", (0.3, -0.5)),
    "T": ("T", (0.3, -0.5, 1.5)),
    "TFixedDf": ("TFixedDf", (0.3, -0.5)),
    "TFixedDfFixedVar": ("TFixedDfFixedVar", (0.3,)),
    "Cauchy": ("Cauchy", (0.3, -0.5)),
    "Gamma": ("Gamma", (0.6, 0.2)),
    "Exponential": ("Exponential", (0.4,)),
    "Weibull": ("Weibull", (0.6, 0.2)),
    "HalfNormal": ("HalfNormal", (0.4,)),
    "Beta": ("Beta", (0.6, 0.9)),
    "Poisson": ("Poisson", (1.1,)),
}
by_family = pytest.mark.parametrize("family", FAMILIES)


def law(family, rows=ROWS, seed=0):
    """A law of NGBoost whose parameters vary between rows."""
    name, centre = FAMILIES[family]
    noise = np.random.default_rng(seed).normal(size=(len(centre), rows))
    return getattr(distns, name)(np.array(centre)[:, None] + 0.2 * noise)


def pair(rows=ROWS, correlation=0.8):
    """The bivariate normal of NGBoost, through the factor of its precision."""
    rng = np.random.default_rng(1)
    precision = np.linalg.inv([[1.0, correlation], [correlation, 1.0]])
    factor = np.linalg.cholesky(precision)
    lower = [np.log(factor[0, 0]), factor[1, 0], np.log(factor[1, 1])]
    lines = np.concatenate(
        [rng.normal(size=(2, rows)), np.repeat(np.array(lower)[:, None], rows, 1)]
    )
    return distns.MultivariateNormal(2)(lines)


@by_family
def test_the_law_is_that_of_scipy(family):
    """NGBoost holds a frozen distribution of scipy: density, distribution function and moments."""
    theirs = law(family)
    ours = from_ngboost(theirs)
    assert (ours.batch_shape, ours.event_shape) == ((ROWS,), (1,))
    frozen = theirs.dist
    y = np.asarray(frozen.ppf(np.random.default_rng(2).uniform(size=ROWS)))
    density = frozen.logpmf(y) if family == "Poisson" else frozen.logpdf(y)
    np.testing.assert_allclose(ours.log_prob(torch.from_numpy(y)[:, None]), density, rtol=1e-9)
    if family not in ("Cauchy", "TFixedDfFixedVar", "TFixedDf", "T"):  # with moments
        np.testing.assert_allclose(ours.mean[:, 0], frozen.mean(), rtol=1e-9)
        np.testing.assert_allclose(ours.variance[:, 0], frozen.var(), rtol=1e-9)


def test_the_bivariate_normal():
    theirs = pair()
    ours = from_ngboost(theirs)
    assert isinstance(ours, MultivariateNormal)
    y = np.random.default_rng(3).normal(size=(ROWS, 2))
    np.testing.assert_allclose(ours.log_prob(torch.from_numpy(y)), theirs.logpdf(y), rtol=1e-9)
    np.testing.assert_allclose(ours.mean, theirs.mean())
    np.testing.assert_allclose(ours.covariance_matrix, theirs.cov, rtol=1e-9)


def test_one_law_for_each_target():
    normals = from_ngboost([law("Normal", seed=s) for s in (0, 1)])
    assert isinstance(normals, Independent)  # with closed forms
    mixed = from_ngboost([law("Normal"), law("LogNormal"), law("Gamma")])
    assert isinstance(mixed, Product)
    assert mixed.event_shape == (3,)


@by_family
def test_right_laws_are_cleared_and_wrong_ones_blamed(family):
    laws = [law(family, rows=1000, seed=s) for s in (0, 1)]
    rng = np.random.default_rng(4)
    # Drawn by scipy.
    y = np.stack([np.asarray(each.dist.rvs(random_state=rng), float) for each in laws], -1)
    dist = from_ngboost(laws)
    judge(dist, y)
    double = 2 * y if family != "Beta" else y**2
    judge(dist, double, blamed="marginal hdr" if family != "Beta" else "marginal")


def test_families_that_a_version_lacks_are_passed_over(monkeypatch):
    """Version 0.5.6 has no Beta."""
    poisson, unknown = law("Poisson"), distns.LogitNormal(np.zeros((2, 5)))
    monkeypatch.delattr(distns, "Beta")
    assert from_ngboost(poisson).event_shape == (1,)
    with pytest.raises(PrerankError, match="is not known here"):
        from_ngboost(unknown)


@pytest.mark.filterwarnings("default")  # of NGBoost and what it is made of
def test_fitted_regressors():
    """One regressor for the pair is right; one for each target misses their dependence."""
    ngboost = load("ngboost")
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(3000, 1))
    noise = rng.normal(size=(3000, 2))
    noise[:, 1] = 0.8 * noise[:, 0] + 0.6 * noise[:, 1]
    y = np.where(x > 0, [1.0, -1.0], [0.0, 0.0]) + noise
    settings = {"n_estimators": 60, "learning_rate": 0.1, "verbose": False, "random_state": 0}
    train, test = slice(0, 2400), slice(2400, None)
    joint = ngboost.NGBRegressor(Dist=distns.MultivariateNormal(2), **settings)
    joint.fit(x[train], y[train])
    judge(from_ngboost(joint.pred_dist(x[test])), y[test])
    each = [ngboost.NGBRegressor(**settings).fit(x[train], y[train, d]) for d in range(2)]
    alone = from_ngboost([model.pred_dist(x[test]) for model in each])
    judge(alone, y[test], blamed="scale location copula", cleared="marginal")


BAD = {
    "a torch law": (lambda: from_ngboost(torch.distributions.Normal(0.0, 1.0)), "dist must be"),
    "unknown": (lambda: from_ngboost(distns.LogitNormal(np.zeros((2, 5)))), "is not known here"),
    "pair in a list": (lambda: from_ngboost([pair(), law("Normal")]), "alone, MultivariateNormal"),
    "nothing": (lambda: from_ngboost([]), "margins is empty"),
    "rows": (lambda: from_ngboost([law("Normal"), law("Normal", rows=3)]), "batch_shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
