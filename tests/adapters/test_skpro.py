"""Distributions of skpro."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent

from adapters.judging import evidence, judge, load
from prerank import Ensemble, GaussianMixture, diagnose
from prerank.adapters import from_skpro
from prerank.errors import PrerankError

laws = load("skpro.distributions")
ROWS = 30
COLUMNS = ["height", "weight"]

FAMILIES = {
    "Normal": {"mu": 0.3, "sigma": 0.6},
    "LogNormal": {"mu": 0.3, "sigma": 0.6},
    "Laplace": {"mu": 0.3, "scale": 0.6},
    "TDistribution": {"mu": 0.3, "sigma": 0.6, "df": 4.0},
    "Uniform": {"lower": -0.5, "upper": 0.7},
    "Gamma": {"alpha": 1.8, "beta": 1.2},
    "Exponential": {"rate": 1.4},
    "Weibull": {"scale": 1.8, "k": 1.2},
    "HalfNormal": {"sigma": 1.4},
    "Beta": {"alpha": 1.8, "beta": 2.4},
    "Poisson": {"mu": 3.0},
}
by_family = pytest.mark.parametrize("family", FAMILIES)


def law(family, rows=ROWS, seed=0):
    """A law of skpro whose first parameter varies between entries."""
    rng = np.random.default_rng(seed)
    names = list(FAMILIES[family])
    parameters = {**FAMILIES[family]}
    parameters[names[0]] = parameters[names[0]] * (1 + 0.2 * rng.uniform(size=(rows, 2)))
    return getattr(laws, family)(**parameters, index=pd.RangeIndex(rows), columns=pd.Index(COLUMNS))


def drawn(dist, seed):
    """One draw of each entry, by skpro's own quantile function."""
    rng = np.random.default_rng(seed)
    p = pd.DataFrame(rng.uniform(size=dist.shape), index=dist.index, columns=dist.columns)
    return dist.ppf(p)


@by_family
def test_the_law_is_that_of_skpro(family):
    theirs = law(family)
    ours = from_skpro(theirs)
    assert isinstance(ours, Independent)
    assert (ours.batch_shape, ours.event_shape) == ((ROWS,), (2,))
    y = drawn(theirs, 1)
    density = theirs.log_pmf(y) if family == "Poisson" else theirs.log_pdf(y)
    point = torch.from_numpy(y.to_numpy(copy=True))
    np.testing.assert_allclose(ours.base_dist.log_prob(point), density, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.log_prob(point), density.sum(axis=1), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.mean, theirs.mean(), rtol=1e-8)
    np.testing.assert_allclose(ours.variance, theirs.var(), rtol=1e-7)  # some are in float32


@by_family
def test_right_laws_are_cleared_and_wrong_ones_blamed(family):
    theirs = law(family, rows=1000)
    dist = from_skpro(theirs)
    y = drawn(theirs, 2).astype(float)
    judge(dist, y)
    wrong = y**2 if family == "Beta" else 2 * y
    judge(dist, wrong, blamed="marginal")


def test_columns_name_the_components():
    theirs = law("Normal")
    found = diagnose(from_skpro(theirs), drawn(theirs, 0), preranks="marginal", generator=0)
    assert list(found.table["component"]) == ["all", *COLUMNS]


# --- mixtures, samples and laws that are not known ----------------------------------------------


def mixed(*, together, rows=ROWS):
    frame = {"index": pd.RangeIndex(rows), "columns": pd.Index(COLUMNS)}
    low, high = laws.Normal(mu=-2.0, sigma=1.0, **frame), laws.Normal(mu=2.0, sigma=0.5, **frame)
    parts = [("low", low), ("high", high)]
    return laws.Mixture(parts, weights=[1, 3], indep_cols=not together, indep_rows=not together)


@pytest.mark.parametrize("together", [True, False])
def test_a_mixture_has_the_margins_of_skpro(together):
    theirs = mixed(together=together)
    ours = from_skpro(theirs)
    assert isinstance(ours, GaussianMixture) == together
    np.testing.assert_allclose(ours.mean, theirs.mean())
    # Of one column alone, whose law is the same either way.
    values = np.random.default_rng(0).normal(scale=2, size=(ROWS, 2))
    y = pd.DataFrame(values, index=theirs.index, columns=theirs.columns)
    single = from_skpro(theirs.iloc[:, [0]])
    point = torch.from_numpy(values[:, :1].copy())
    np.testing.assert_allclose(single.log_prob(point).exp(), theirs.pdf(y).iloc[:, 0], rtol=1e-8)


def test_the_parts_of_a_mixture_are_chosen_together_or_apart():
    y = {t: from_skpro(mixed(together=t, rows=1500)).sample() for t in (True, False)}
    # Two columns agree always, or with probability 1/16 + 9/16 = .625 (standard error .0125).
    agree = {t: float(((v[:, 0] > 0.2) == (v[:, 1] > 0.2)).double().mean()) for t, v in y.items()}
    assert agree[True] > 0.95
    assert abs(agree[False] - 0.625) < 0.05
    for together in (True, False):
        dist = from_skpro(mixed(together=together, rows=1500))
        judge(dist, y[together])
        judge(dist, y[not together], blamed="location copula", cleared="marginal")


def empirical(weights=None):
    index = pd.MultiIndex.from_product([range(20), range(ROWS)], names=["sample", "row"])
    values = np.random.default_rng(0).normal(size=(len(index), 2))
    spl = pd.DataFrame(values, index=index, columns=COLUMNS)
    return laws.Empirical(spl, weights=None if weights is None else pd.Series(weights, index=index))


def test_an_empirical_law_keeps_its_samples():
    theirs = empirical()
    ours = from_skpro(theirs)
    assert isinstance(ours, Ensemble)
    assert ours.weights is None
    np.testing.assert_array_equal(ours.samples[3], theirs.spl.loc[3])
    np.testing.assert_allclose(ours.mean, theirs.mean())
    weights = np.random.default_rng(1).uniform(size=20 * ROWS)
    np.testing.assert_allclose(from_skpro(empirical(weights)).mean, empirical(weights).mean())


def logistic(rows=ROWS):
    return laws.Logistic(
        mu=np.zeros((rows, 2)), scale=1.0, index=pd.RangeIndex(rows), columns=pd.Index(COLUMNS)
    )


def test_unknown_laws_are_sampled():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two, other = (from_skpro(logistic(), n_samples=50, generator=g) for g in (0, 0, 1))
    assert isinstance(one, Ensemble)
    assert one.samples.shape == (50, ROWS, 2)
    assert torch.equal(one.samples, two.samples)
    assert not torch.equal(one.samples, other.samples)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    # Entry by entry, in the order of rows and columns.
    shifted = laws.Logistic(
        mu=np.arange(2.0 * ROWS).reshape(ROWS, 2) * 100,
        scale=1.0,
        index=pd.RangeIndex(ROWS),
        columns=pd.Index(COLUMNS),
    )
    found = from_skpro(shifted, generator=0).mean
    assert bool((found - torch.arange(2.0 * ROWS).reshape(ROWS, 2) * 100).abs().max() < 2)


def test_sampled_laws_are_diagnosed():
    dist = from_skpro(logistic(1000), generator=0)
    y = drawn(logistic(1000), 3)
    judge(dist, y)
    judge(dist, 1.5 * y, blamed="marginal scale")


# --- a regressor --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")  # of skpro
def test_a_fitted_regressor():
    residual = load("skpro.regression.residual")
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1500, 2)), columns=["a", "b"])
    noise = 0.7 * rng.normal(size=(1500, 1))
    y = pd.DataFrame(X[["a"]].to_numpy() + noise, columns=["height"])
    model = residual.ResidualDouble(LinearRegression()).fit(X[:1000], y[:1000])
    dist = from_skpro(model.predict_proba(X[1000:]))
    assert dist.batch_shape == (500,)
    assert evidence(dist, y[1000:])["marginal"] > 0.001
    assert evidence(dist, y[1000:] + 0.3)["marginal"] < 0.005


BAD = {
    "a torch law": (lambda: from_skpro(torch.distributions.Normal(0.0, 1.0)), "dist must be"),
    "scalar": (lambda: from_skpro(laws.Normal(mu=0.0, sigma=1.0)), "needs an index and columns"),
    "n_samples": (lambda: from_skpro(logistic(), n_samples=1), "n_samples must be at least 2"),
    "unknown part": (
        lambda: from_skpro(laws.Mixture([law("Normal"), logistic()])),
        "a part Logistic",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
