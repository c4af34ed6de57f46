"""Prediction intervals and regions of regressors: units, names, guarantees, loaded models."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

from prerank import MixtureRegressor, PrerankError, load_model
from prerank.datasets import AR1Regression

SMALL = {"n_components": 2, "hidden": (8,), "max_epochs": 3, "device": "cpu", "random_state": 0}
X, Y = (part.numpy() for part in AR1Regression(dim=2).sample(1700, generator=0))
Y = Y * [1.0, 100.0] + [0.0, -500.0]
TABLE = pd.DataFrame(Y, columns=["rain", "wind"])
FIT, CAL, TEST = slice(0, 200), slice(200, 700), slice(700, 1700)
KNOWN = X[CAL], TABLE[CAL]
ERROR = (0.09 / 500 + 0.09 / 1000) ** 0.5  # of a coverage of .9


@pytest.fixture(scope="module")
def model():
    """Hardly trained: what it promises, it does not keep."""
    return MixtureRegressor(folds=0, **SMALL).fit(X[FIT], TABLE[FIT])


def inside(limits):
    return (limits[..., 0] <= Y[TEST]) & (Y[TEST] <= limits[..., 1])


def test_intervals_are_quantiles(model):
    limits = model.predict_interval(X[TEST], 0.8)
    assert limits.shape == (1000, 2, 2)
    quantiles = model.predict_quantiles(X[TEST], [0.1, 0.9])
    np.testing.assert_allclose(limits, np.moveaxis(quantiles, 0, -1))


def test_calibration_rows_give_the_level(model):
    limits = model.predict_interval(X[TEST], calibration=KNOWN)
    assert (abs(inside(limits).mean(0) - 0.9) < 4 * ERROR).all()
    joint = model.predict_interval(X[TEST], joint=True, calibration=KNOWN, random_state=0)
    assert abs(inside(joint).all(-1).mean() - 0.9) < 4 * ERROR
    for shape in ("density", "box"):
        region = model.predict_region(X[TEST], calibration=KNOWN, shape=shape, random_state=0)
        assert abs(float(region.contains(Y[TEST]).double().mean()) - 0.9) < 4 * ERROR
    np.testing.assert_allclose(region.volume(), np.prod(joint[..., 1] - joint[..., 0], -1))


def test_columns_are_matched_by_name(model):
    region = model.predict_region(X[TEST], calibration=KNOWN, random_state=0)
    turned = (X[CAL], TABLE[["wind", "rain"]][CAL])
    again = model.predict_region(X[TEST], calibration=turned, random_state=0)
    y = TABLE[TEST]
    assert torch.equal(region.contains(y[["wind", "rain"]]), again.contains(y.to_numpy()))
    shown = region.plot(3, targets=("wind", "rain"), y=y[["wind", "rain"]])
    assert shown.ax_.get_xlabel() == "wind"
    assert shown.observation.tolist() == pytest.approx(Y[TEST][3].tolist())
    plt.close("all")
    with pytest.raises(PrerankError, match="snow"):
        region.contains(y.rename(columns={"rain": "snow"}))


def test_a_loaded_model_has_the_same_regions(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    for shape in ("density", "box"):
        first, second = (
            m.predict_region(X[TEST], calibration=KNOWN, shape=shape, random_state=0)
            for m in (model, loaded)
        )
        torch.testing.assert_close(first.threshold, second.threshold)
        assert torch.equal(first.contains(Y[TEST]), second.contains(Y[TEST]))


def test_one_target_may_be_a_vector():
    flat = MixtureRegressor(method="none", **SMALL).fit(X[FIT], Y[FIT, 0])
    known = X[CAL], Y[CAL, 0]
    for options in ({}, {"joint": True}, {"calibration": known}):
        assert flat.predict_interval(X[:5], **options).shape == (5, 2)
    region = flat.predict_region(X[:5], calibration=known, random_state=0)
    assert region.contains(Y[:5, 0]).shape == (5,)
    assert region.plot(1, y=Y[:5, 0]).observation.tolist() == [Y[1, 0]]
    plt.close("all")


def test_discrete_targets_have_regions_of_values():
    random = np.random.default_rng(0)
    x = random.normal(size=(900, 1))
    common = random.normal(size=900)
    y = np.column_stack([np.floor(np.exp(0.5 * x[:, 0] + common)).clip(max=6), x[:, 0] + common])
    model = MixtureRegressor(folds=0, **SMALL).fit(x[:300], y[:300])
    known = x[300:600], y[300:600]
    region = model.predict_region(x[600:], calibration=known, random_state=0)
    error = (0.09 / 300 + 0.09 / 300) ** 0.5
    assert abs(float(region.contains(y[600:]).double().mean()) - 0.9) < 4 * error
    limits = model.predict_interval(x[600:], joint=True, calibration=known, random_state=0)
    assert set(np.unique(limits[:, 0])) <= set(range(7))
    covered = ((limits[..., 0] <= y[600:]) & (y[600:] <= limits[..., 1])).all(-1)
    assert covered.mean() > 0.9 - 4 * error


def test_bad_calibration_is_named(model):
    for bad, words in (
        (X[CAL], "pair"),
        ((X[CAL], Y[TEST]), "500 rows"),
        ((X[:3], Y[:3]), "3 rows"),
    ):
        with pytest.raises(PrerankError, match=words):
            model.predict_region(X[:5], calibration=bad)
    with pytest.raises(PrerankError, match="level"):
        model.predict_interval(X[:5], 1.5)
