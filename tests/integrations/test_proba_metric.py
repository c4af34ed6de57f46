"""A metric of skpro: the error of all rows, of right, wrong and repaired predictions."""

import doctest
import importlib
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from adapters.judging import load
from prerank import PrerankError, calibrate, pce, pce_floor, pit
from prerank.adapters import from_skpro
from prerank.integrations import skpro_metric

laws, base = load("skpro.distributions"), load("skpro.metrics.base")

# Of the library, which is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")
ROWS, COLUMNS = 2000, ["height", "weight"]


NOISE = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = pd.DataFrame(NOISE @ [[1.0, 0.6], [0.0, 0.8]], columns=COLUMNS)


def normal(rows=Y.index, sigma=1.0):
    """Independent targets, of the right width: right on their own."""
    return laws.Normal(mu=np.zeros((len(rows), 2)), sigma=sigma, index=rows, columns=Y.columns)


def sampled(dist, index):
    """Draws of a distribution of torch, as skpro has them."""
    torch.manual_seed(0)
    draws = dist.sample((50,))
    lines = pd.MultiIndex.from_product([range(50), index])
    spl = pd.DataFrame(draws.reshape(-1, 2).numpy(), lines, COLUMNS)
    return laws.Empirical(spl, index=index, columns=pd.Index(COLUMNS))


def test_it_is_a_metric_and_the_error_of_all_rows():
    metric = skpro_metric("marginal")
    assert isinstance(metric, base.BaseDistrMetric)
    assert metric.get_tag("lower_is_better")
    expected = float(pce(pit(from_skpro(normal()), Y, "marginal")).mean())  # in closed form
    assert metric(Y, normal()) == expected
    # By their labels.
    assert metric(Y.sample(frac=1, random_state=0)[COLUMNS[::-1]], normal()) == expected
    for other in (metric.clone(), pickle.loads(pickle.dumps(metric))):
        assert other(Y, normal()) == expected
    draws = skpro_metric("scale", seed=1)
    assert draws(Y, normal()) == draws(Y, normal()) != skpro_metric("scale", seed=2)(Y, normal())


def test_right_wrong_and_repaired():
    margins, joint = skpro_metric("marginal"), skpro_metric("scale")
    early, late = Y[: ROWS // 2], Y[ROWS // 2 :]
    # Calibrated predictions have a mean of .0098, and 3 times that once in a thousand times.
    small = 3 * pce_floor(len(late))
    assert margins(late, normal(late.index)) < small < 0.05
    assert joint(late, normal(late.index)) > 0.05  # independent targets
    wrong = normal(late.index, 0.5)
    assert margins(late, wrong) > 0.05
    head = calibrate(from_skpro(normal(early.index, 0.5)), early)
    repaired = sampled(head(from_skpro(wrong)), late.index)
    assert margins(late, repaired) < small
    assert joint(late, repaired) < small


def test_skpro_evaluates_and_searches_by_it():
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import KFold

    evaluate = load("skpro.benchmarking.evaluate").evaluate
    search = load("skpro.model_selection").GridSearchCV
    model = load("skpro.regression.residual").ResidualDouble(LinearRegression())
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(400, 2)), columns=["a", "b"])
    y = X[["a"]].set_axis(["height"], axis=1) + Y[["height"]][:400]
    given = {"cv": KFold(2), "scoring": skpro_metric("marginal")}
    table = evaluate(estimator=model, X=X, y=y, **given)
    assert table["test_JointCalibrationError"].between(0, 0.5).all()
    found = search(model, param_grid={"residual_trafo": ["absolute", "squared"]}, **given).fit(X, y)
    assert found.best_params_ == {"residual_trafo": "squared"}  # absolute ones make it narrow


def test_rows_have_no_value_of_their_own():
    with pytest.raises(PrerankError, match="all rows together"):
        skpro_metric("marginal").evaluate_by_index(Y, normal())


BAD = {
    "pre-rank": ({"prerank": "nothing"}, "nothing"),
    "seed": ({"prerank": "marginal", "seed": -1}, "seed must be at least 0"),
    "levels": ({"prerank": "marginal", "levels": 1}, "levels must be at least 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    options, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        skpro_metric(**options)


def test_the_example():
    module = importlib.import_module("prerank.integrations.proba_metric")
    assert doctest.testmod(module) == (0, 6)
