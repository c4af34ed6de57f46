"""Regressors of discrete and mixed targets: found, spread, rounded, saved and reported."""

import numpy as np
import pandas as pd
import pytest
import torch

from pictures import leave_blank
from prerank import FlowRegressor, GaussianMixture, MixtureRegressor, energy_score, load_model, pit
from prerank.calibration import pce
from prerank.distributions import Rounded, round_to
from prerank.errors import InputError
from prerank.estimators.model_page import fit_page

SMALL = {"hidden": (16,), "max_epochs": 60, "lr": 0.02, "device": "cpu", "random_state": 0}
TARGETS = ["calls", "rain", "wind"]
FOUND = ("calls: 8 values", "rain: atoms at 0")


def table(n, seed):
    """A count, an amount that is often 0 and a continuous target, with a common error."""
    random = np.random.default_rng(seed)
    x, common, own = (random.normal(size=n) for _ in range(3))
    calls = np.floor(np.exp(0.5 * x + 0.7 * common)).clip(max=7)
    rain = (x - 0.5 * common + 0.5 * own).clip(min=0)
    y = pd.DataFrame({"calls": calls, "rain": rain, "wind": common + own})
    return pd.DataFrame({"x": x}), y


X, Y = table(600, 0)
X_TEST, Y_TEST = table(2000, 1)


@pytest.fixture(scope="module")
def model():
    return MixtureRegressor(2, folds=0, **SMALL).fit(X, Y)


def test_forecasts_take_the_values_of_the_targets(model):
    assert model.rounding_.words(model.target_names_) == FOUND
    dist = model.predict_dist(X_TEST)
    assert isinstance(dist, Rounded)
    assert isinstance(dist.base, GaussianMixture)
    quantiles = model.predict_quantiles(X_TEST, [0.1, 0.5, 0.9])
    for drawn in (model.sample(X_TEST, 20, random_state=0), quantiles):
        assert set(np.unique(drawn[..., 0])) <= set(range(8))
        assert drawn[..., 1].min() == 0
    # Half of the draws lie up to the median; rows are independent, with 20 draws each.
    below = (model.sample(X_TEST, 20, random_state=0) <= quantiles[1]).mean((0, 1))
    assert (below > 0.49).all()
    np.testing.assert_allclose(model.predict(X_TEST), dist.mean.numpy())


def test_the_rounded_forecast_is_calibrated_and_not_worse(model):
    plain = MixtureRegressor(2, method="none", discrete=False, **SMALL).fit(X, Y)
    assert isinstance(plain.predict_dist(X_TEST), GaussianMixture)
    y = torch.tensor(Y_TEST.to_numpy())
    untreated = round_to(plain.predict_dist(X_TEST), Y)
    for treated in (model, model.without_penalty()):
        dists = treated.predict_dist(X_TEST), untreated
        errors = [float(pce(pit(dist, y, "marginal", generator=0)).mean()) for dist in dists]
        assert errors[0] < 0.02 < errors[1]
        scores = [float(energy_score(dist, y, generator=0).mean()) for dist in dists]
        assert scores[0] < scores[1]


def test_scores_and_diagnoses_are_those_of_the_values(model):
    unit = Y.to_numpy().std(0)
    scaled = model.diagnose(X_TEST, Y_TEST, preranks="marginal", generator=0)
    left, right = model.predict_dist(X_TEST).limits(torch.tensor(Y_TEST.to_numpy()))
    z = scaled.pits["marginal"]
    assert bool(((z >= left - 1e-9) & (z <= right + 1e-9)).all())
    assert scaled.remarks == ()
    assert model.diagnose(X_TEST, Y_TEST, n_null=20).skipped.keys() == {"hdr"}
    draws = model.sample(X_TEST, 50, random_state=0)
    error = np.linalg.norm((draws - Y_TEST.to_numpy()) / unit, axis=-1).mean()
    pairs = np.linalg.norm((draws[:25] - draws[25:]) / unit, axis=-1).mean()
    # The wind is in units of the rows that were trained on: a few percent apart.
    assert -model.score(X_TEST, Y_TEST) == pytest.approx(error - pairs / 2, rel=0.05)


def test_a_saved_model_rounds_alike(model, tmp_path):
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.rounding_.words(again.target_names_) == FOUND
    np.testing.assert_array_equal(again.predict(X_TEST), model.predict(X_TEST))
    assert again.score(X_TEST, Y_TEST) == model.score(X_TEST, Y_TEST)


def test_the_page_says_what_was_done(model, monkeypatch):
    leave_blank(monkeypatch)
    page, _ = fit_page(model, X_TEST[:200], Y_TEST[:200], title="calls")
    assert "; ".join(FOUND) in str(page)


def test_one_discrete_target_as_a_vector():
    model = MixtureRegressor(2, method="none", **SMALL).fit(X, Y.calls.to_numpy())
    assert set(np.unique(model.predict_quantiles(X_TEST))) <= set(range(8))
    assert model.predict_dist(X_TEST).probabilities(0).shape == (2000, 8)


def test_flows_are_rounded_too():
    pytest.importorskip("zuko")
    options = {**SMALL, "hidden": (8,), "max_epochs": 3}
    model = FlowRegressor(method="none", **options).fit(X[:200], Y[:200])
    assert isinstance(model.predict_dist(X[:50]), Rounded)
    assert set(np.unique(model.predict(X[:50])[:, 0])) <= set(range(8))
    assert np.isfinite(model.score(X[:50], Y[:50]))


@pytest.mark.parametrize("value", [True, "yes", None])
def test_other_words_are_refused(value):
    with pytest.raises(InputError, match="discrete must be 'auto' or False"):
        MixtureRegressor(2, discrete=value, **SMALL).fit(X, Y)
