"""Distributions of skpro."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent

from adapters.judging import evidence, judge, load
from prerank import Ensemble, GaussianMixture, diagnose
from prerank.adapters import Labelled, from_skpro
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


# --- observations, matched by label -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["exact", "empirical", "sampled"])
def test_observations_are_matched_by_label(kind):
    theirs = {"exact": law("Normal"), "empirical": empirical(), "sampled": logistic()}[kind]
    values = np.random.default_rng(0).normal(size=theirs.shape)
    y = pd.DataFrame(values, index=theirs.index, columns=theirs.columns)
    shuffled = y.sample(frac=1, random_state=0)[COLUMNS[::-1]]
    dist, observed = found = from_skpro(theirs, shuffled, generator=0)
    assert isinstance(found, Labelled)
    pd.testing.assert_frame_equal(observed, y)
    expected = from_skpro(theirs, generator=0)
    assert type(dist) is type(expected)
    torch.testing.assert_close(dist.mean, expected.mean)
    table = diagnose(dist, observed, preranks="marginal", generator=0).table
    assert list(table["component"]) == ["all", *COLUMNS]


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


# The same law: skpro goes by the labels of its samples, not by the order of their lines.
ORDERS = {
    "sample by sample": lambda lines: lines,
    "row by row": lambda lines: lines.sort_index(level=["row", "sample"]),
    "backwards": lambda lines: lines[::-1],
    "shuffled": lambda lines: lines.sample(frac=1, random_state=0),
}
PARTS = {
    "all": lambda dist: dist,
    "some rows": lambda dist: dist.iloc[[3, 1]],
    "other columns": lambda dist: dist.iloc[:, [1, 0]],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_samples_are_matched_by_label(order, part, weighted):
    first = empirical(np.random.default_rng(1).uniform(size=20 * ROWS) if weighted else None)
    weights = first.weights.sample(frac=1, random_state=1) if weighted else None
    theirs = PARTS[part](laws.Empirical(ORDERS[order](first.spl), weights=weights))
    found, expected = from_skpro(theirs), theirs.mean()[list(theirs.columns)]
    np.testing.assert_allclose(found.mean, expected)
    np.testing.assert_array_equal(found.samples[3], first.spl.loc[3].reindex_like(expected))


def test_rows_with_several_labels():
    index = pd.MultiIndex.from_product([range(5), ["b", "a"], [2, 1, 3]])
    values = np.random.default_rng(0).normal(size=(len(index), 2))
    theirs = laws.Empirical(pd.DataFrame(values, index=index, columns=COLUMNS))
    np.testing.assert_allclose(from_skpro(theirs).mean, theirs.mean())


def test_empirical_laws_are_diagnosed():
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([range(40), range(500)], names=["sample", "row"])
    centre = 3 * rng.normal(size=(500, 2))
    values = np.tile(centre, (40, 1)) + rng.normal(size=(len(index), 2))
    spl = pd.DataFrame(values, index=index, columns=COLUMNS).sample(frac=1, random_state=0)
    dist = from_skpro(laws.Empirical(spl, index=pd.RangeIndex(500), skip_init_sorted=True))
    y = centre + rng.normal(size=(500, 2))
    judge(dist, y)
    judge(dist, centre + 1.6 * (y - centre), blamed="marginal")


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
    # It takes the mean absolute residual for the standard deviation: too narrow for normal ones.
    mean = model.predict(X[1000:])
    narrower = mean + (2 / np.pi) ** 0.5 * (y[1000:] - mean)
    assert evidence(dist, narrower)["marginal"] > 0.001
    assert evidence(dist, narrower + 0.3)["marginal"] < 0.005
    assert evidence(dist, y[1000:])["marginal"] < 0.005


OBSERVED = pd.DataFrame(np.zeros((ROWS, 2)), columns=COLUMNS)


def uneven():
    """A law whose row 7 has lost a sample."""
    lines = empirical().spl.drop((3, 7))
    return laws.Empirical(lines)


BAD = {
    "a sample too few": (lambda: from_skpro(uneven()), "row 7 has only 19 of them"),
    "a sample twice": (
        lambda: from_skpro(laws.Empirical(pd.concat([empirical().spl] * 2))),
        "dist.spl has an index with duplicates",
    ),
    "rows without samples": (
        lambda: from_skpro(laws.Empirical(empirical().spl, index=pd.RangeIndex(5, ROWS + 2))),
        "2 rows that have no sample, such as 30",
    ),
    "y is a list": (lambda: from_skpro(law("Normal"), [1.0]), "y must be a pandas.DataFrame"),
    "y is a series": (lambda: from_skpro(law("Normal"), OBSERVED["height"]), r"y\.to_frame"),
    "other rows": (lambda: from_skpro(law("Normal"), OBSERVED[2:]), "rows of dist and y differ"),
    "other columns": (
        lambda: from_skpro(law("Normal"), OBSERVED.rename(columns={"height": "length"})),
        "columns of dist and y differ: 1 of 2 labels are only in dist .*'height'",
    ),
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
