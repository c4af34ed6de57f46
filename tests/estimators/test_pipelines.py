"""Pipelines, transformed targets and searches of scikit-learn around a regressor."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from prerank import Ensemble, MixtureRegressor, PrerankError, diagnose, energy_score, nll
from prerank.datasets import AR1Regression
from prerank.errors import ShapeError
from prerank.estimators import (
    joint_predictor,
    neg_calibration_error,
    neg_energy_score,
    neg_nll,
)
from prerank.report import PITHistogramDisplay, ReliabilityDisplay

X, Y = (part.numpy() for part in AR1Regression(dim=2).sample(900, generator=0))
Y = Y * [1.0, 100.0] + [0.0, -500.0]
FIT, TEST = slice(0, 300), slice(300, 900)
MODEL = MixtureRegressor(
    2, method="none", hidden=(8,), max_epochs=8, discrete=False, device="cpu", random_state=0
)


def transformed(transformer=None, **options):
    return TransformedTargetRegressor(MODEL, transformer=transformer, **options)


@pytest.fixture(scope="module")
def nested():
    """A search around a pipeline around transformed targets around a regressor."""
    inner = make_pipeline(StandardScaler(), "passthrough", transformed(StandardScaler()))
    grid = {"transformedtargetregressor__regressor__n_components": [1, 2]}
    return GridSearchCV(inner, grid, cv=2, scoring=neg_energy_score).fit(X[FIT], Y[FIT])


def test_a_distribution_through_all_of_them(nested):
    dist = joint_predictor(nested).predict_dist(X[TEST])
    # The means are those that scikit-learn itself transforms back.
    np.testing.assert_allclose(dist.mean, nested.predict(X[TEST]), rtol=1e-9, atol=1e-9)
    assert type(dist).__name__ == "GaussianMixture"
    bare = joint_predictor(MODEL.fit(X[FIT], Y[FIT])).predict_dist(X[TEST])
    # Networks with one unit of the targets, and with another: the same but for rounding.
    assert abs(float((nll(dist, Y[TEST]) - nll(bare, Y[TEST])).mean())) < 0.3


@pytest.mark.parametrize("scaler", [MinMaxScaler(), RobustScaler()])
def test_scalers_keep_the_family(scaler):
    model = transformed(scaler).fit(X[FIT], Y[FIT])
    dist = joint_predictor(model).predict_dist(X[TEST])
    assert type(dist).__name__ == "GaussianMixture"
    np.testing.assert_allclose(dist.mean, model.predict(X[TEST]), rtol=1e-9, atol=1e-9)


def test_other_transformers_give_samples():
    positive = np.exp(Y * [1.0, 0.01])
    model = transformed(func=np.log, inverse_func=np.exp).fit(X[FIT], positive[FIT])
    predictor = joint_predictor(model)
    dist = predictor.predict_dist(X[TEST])
    assert dist.samples.shape == (1000, 600, 2)
    assert bool((dist.samples > 0).all())
    ends = predictor.predict_interval(X[TEST], 0.9)
    # Quantiles commute with exp; of 1,000 draws the level is off by .007, 5 times that at most.
    exact = model.regressor_.predict_dist(X[TEST])
    for k, level in enumerate((0.05, 0.95)):
        z = torch.from_numpy(np.log(ends[..., k]))
        reached = exact.project(torch.eye(2, dtype=torch.float64)).cdf(z)
        assert float((reached - level).abs().max()) < 5 * (level * (1 - level) / 1000) ** 0.5 + 1e-3
    named = pd.DataFrame(positive[TEST], columns=["a", "b"])
    table = predictor.diagnose(X[TEST], named, preranks="marginal+scale").table
    assert {"a", "b"} < set(table.component)
    logs = model.regressor_.diagnose(
        X[TEST], np.log(positive[TEST]), preranks="marginal+scale"
    ).table
    np.testing.assert_allclose(table.pce, logs.pce)
    assert neg_energy_score(model, X[TEST], positive[TEST]) < 0
    with pytest.raises(PrerankError, match="density"):
        neg_nll(model, X[TEST], positive[TEST])


def test_targets_that_are_mixed_lose_their_names():
    model = transformed(PCA()).fit(X[FIT], Y[FIT])
    y = pd.DataFrame(Y[TEST], columns=["a", "b"])
    found = joint_predictor(model).diagnose(X[TEST], y, preranks="marginal")
    assert "a" not in set(found.table.component)
    region = joint_predictor(model).predict_region(X[TEST], shape="box", random_state=0)
    assert region.contains(Y[TEST]).shape == (600,)


def test_intervals_with_calibration_rows_in_the_units_of_the_pipeline(nested):
    known = X[300:600], Y[300:600]
    ends = joint_predictor(nested).predict_interval(X[600:], calibration=known)
    inside = (ends[..., 0] <= Y[600:]) & (Y[600:] <= ends[..., 1])
    # Coverage of .9 with 300 calibration rows and 300 others: standard error (2 * .09 / 300)^.5.
    assert (abs(inside.mean(0) - 0.9) < 4 * (0.18 / 300) ** 0.5).all()
    pipeline = make_pipeline(StandardScaler(), MODEL).fit(X[FIT], Y[FIT])
    mine = joint_predictor(pipeline).predict_interval(X[600:], calibration=known)
    step = pipeline[0].transform
    theirs = pipeline[1].predict_interval(step(X[600:]), calibration=(step(known[0]), known[1]))
    np.testing.assert_array_equal(mine, theirs)
    region = joint_predictor(pipeline).predict_region(X[600:], calibration=known, random_state=0)
    assert abs(float(region.contains(Y[600:]).double().mean()) - 0.9) < 4 * (0.18 / 300) ** 0.5


def test_one_target_may_be_a_vector():
    model = transformed(StandardScaler()).fit(X[FIT], Y[FIT, 1])
    predictor = joint_predictor(model)
    assert predictor.predict_interval(X[TEST]).shape == (600, 2)
    assert predictor.diagnose(X[TEST], Y[TEST, 1], preranks="marginal").n == 600
    assert np.isfinite([f(model, X[TEST], Y[TEST, 1]) for f in (neg_energy_score, neg_nll)]).all()


def test_scorers_are_the_scores():
    y = pd.DataFrame(Y, columns=["a", "b"])
    model = MODEL.fit(X[FIT], y[FIT])
    turned = y[["b", "a"]][TEST]
    dist = model.predict_dist(X[TEST])
    expected = float(nll(dist, Y[TEST]).mean())
    assert neg_nll(model, X[TEST], turned) == pytest.approx(-expected)
    spread = Y[TEST].std(0)
    samples = dist.sample((100,), generator=1).numpy() / spread
    rough = float(energy_score(Ensemble(samples), Y[TEST] / spread).mean())
    # Two sets of 100 draws, whose mean scores over 600 rows differ by less than 2 %.
    assert neg_energy_score(model, X[TEST], turned) == pytest.approx(-rough, rel=0.02)
    found = diagnose(dist, Y[TEST], preranks="marginal", scale=model._units[1])
    assert neg_calibration_error(model, X[TEST], y[TEST], preranks="marginal") == pytest.approx(
        -found.by_prerank["marginal"].excess, abs=1e-6
    )


def test_scorers_refuse_targets_of_another_shape():
    model = MODEL.fit(X[FIT], Y[FIT])
    for scorer in (neg_energy_score, neg_nll):
        for y in (Y[TEST].T, Y[TEST][:-1], Y[TEST, 0]):
            with pytest.raises(ShapeError, match=r"y must be \(\d+, 2\) for these X"):
                scorer(model, X[TEST], y)


def test_scorers_in_searches():
    scores = cross_val_score(
        MODEL, X[FIT], Y[FIT], cv=2, scoring=partial(neg_calibration_error, preranks="marginal")
    )
    assert np.isfinite(scores).all()
    search = GridSearchCV(
        MODEL,
        {"max_epochs": [1, 8]},
        cv=2,
        scoring={"energy": neg_energy_score, "nll": neg_nll},
        refit="nll",
    ).fit(X[FIT], Y[FIT])
    assert search.best_params_ == {"max_epochs": 8}  # after one epoch next to nothing is learnt


@pytest.mark.parametrize("kind", [ReliabilityDisplay, PITHistogramDisplay])
def test_displays_of_estimators(nested, kind):
    y = pd.DataFrame(Y, columns=["a", "b"])
    shown = kind.from_estimator(nested, X[TEST], y[TEST])
    assert shown.names == ("a", "b")
    figure, ax = plt.subplots()
    hdr = kind.from_estimator(nested, X[TEST], Y[TEST], "hdr", ax=ax)
    assert (hdr.names, hdr.figure_) == (("hdr",), figure)
    with pytest.raises(PrerankError, match="one pre-rank, got 2"):
        kind.from_estimator(nested, X[TEST], Y[TEST], "hdr+scale")
    plt.close("all")


def test_what_predicts_no_distribution_is_named():
    for estimator in (LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())):
        with pytest.raises(PrerankError, match=r"with predict_dist, .* got LinearRegression"):
            joint_predictor(estimator)
    with pytest.raises(PrerankError, match="refit=True"):
        joint_predictor(GridSearchCV(MODEL, {"members": [1]}))
