"""The flow behind the face of the regressors: what it shares with mixtures, and its own."""

import json
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.distributions import AffineTransform, IndependentTransform

import prerank
from prerank import FlowRegressor, MixtureRegressor, energy_score, load_model
from prerank.datasets import AR1Regression
from prerank.errors import InputError, PrerankError
from prerank.estimators.model_page import fit_page
from prerank.estimators.regressors import _points
from prerank.models import FlowDistribution
from prerank.recalibration import Change, Copies

ROWS, DIM = 120, 3
X, Y = (part.numpy() for part in AR1Regression(dim=DIM).sample(ROWS, generator=0))
Y = Y * [1.0, 100.0, 0.01] + [0.0, -500.0, 7.0]


def regressor(**options):
    small = {"bins": 4, "hidden": (8,), "n_samples": 8, "max_epochs": 2, "batch_size": 32}
    common = {"method": "network", "device": "cpu", "random_state": 0}
    return FlowRegressor(**{**small, **common, **options})


@pytest.fixture(scope="module")
def model():
    return regressor(max_epochs=3, lr=0.02).fit(X, Y)


# The score alone: mixtures, whose training is the same, have these checks with the penalty.
@parametrize_with_checks([regressor(max_epochs=1, strength=0.0)])
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_is_public():
    assert prerank.FlowRegressor is FlowRegressor
    assert "FlowRegressor" in prerank.__all__


def test_regressors_share_their_options():
    flow, mixture = FlowRegressor().get_params(), MixtureRegressor().get_params()
    assert set(mixture) - set(flow) == {"n_components"}
    assert set(flow) - set(mixture) == {"bins", "n_samples"}
    shared = set(flow) & set(mixture) - {"hidden"}
    assert {name: flow[name] for name in shared} == {name: mixture[name] for name in shared}
    assert clone(regressor(strength="auto")).get_params() == regressor(strength="auto").get_params()


def test_unfitted():
    for use in (
        lambda m: m.predict(X),
        lambda m: m.predict_dist(X),
        lambda m: m.predict_quantiles(X),
        lambda m: m.sample(X),
        lambda m: m.score(X, Y),
        lambda m: m.diagnose(X, Y),
    ):
        with pytest.raises(NotFittedError):
            use(regressor())


# --- shapes, units, summaries ----------------------------------------------------------------


def test_shapes(model):
    assert isinstance(model.predict_dist(X[:5]), FlowDistribution)
    assert model.predict(X[:5]).shape == (5, DIM)
    assert model.predict_quantiles(X[:5]).shape == (3, 5, DIM)
    assert model.sample(X[:5], 7).shape == (7, 5, DIM)
    for found in (model.predict(X), model.predict_quantiles(X), model.sample(X, 3)):
        assert found.dtype == np.float64


def test_a_vector_gives_vectors():
    model = regressor(preranks="marginal", max_epochs=1).fit(X, Y[:, 0])
    assert model.predict(X).shape == (ROWS,)
    assert model.predict_quantiles(X, [0.1, 0.9]).shape == (2, ROWS)
    assert model.sample(X, 5, random_state=0).shape == (5, ROWS)
    assert model.predict_dist(X).event_shape == (1,)
    assert np.isfinite(model.score(X, Y[:, 0]))


def test_quantiles_of_one_target_are_exact(model):
    """The first target's map is one of numbers, so its quantiles are images of a normal's."""
    dist = model.predict_dist(X)
    levels = [0.01, 0.3, 0.5, 0.95]
    found = torch.from_numpy(model.predict_quantiles(X, levels))
    inner = (found - dist.loc) / dist.scale
    z = torch.special.ndtr(dist.transform(inner)[..., 0])
    # Between neighbours of 1,024 points.
    assert (z - torch.tensor(levels)[:, None]).abs().max() < 1e-3
    assert (np.diff(found.numpy(), axis=0) > 0).all()
    for wrong in ([0.0, 0.5], [1.0], [float("nan")]):
        with pytest.raises(InputError, match="quantile"):
            model.predict_quantiles(X, wrong)


def test_quantiles_are_those_of_the_samples_and_predict_is_the_median(model):
    drawn = model.sample(X, 4000, random_state=1)
    levels = [0.1, 0.5, 0.9]
    quantiles = model.predict_quantiles(X, levels)
    np.testing.assert_array_equal(model.predict(X), quantiles[1])
    for level, quantile in zip(levels, quantiles, strict=True):
        share = (drawn <= quantile).mean(0)
        # Binomial: 5 standard errors of at most .008, and one hundredth of even points.
        assert abs(share - level).max() < 0.05
        assert abs(share.mean(0) - level).max() < 0.005


def test_samples_have_seeds(model):
    one, again, other = (model.sample(X, 3, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert model.sample(X, 1, random_state=0).shape == (1, ROWS, DIM)


def test_original_units(model):
    loc, scale = model.y_scaler_.loc[0, 0], model.y_scaler_.scale[0, 0]
    (inputs,) = model.x_scaler_(torch.from_numpy(X), clip=True)
    inner = model.network_.distribution(model.theta_[0].double(), inputs)
    y = torch.from_numpy(Y)
    expected = inner.log_prob((y - loc) / scale) - scale.log().sum()
    torch.testing.assert_close(model.predict_dist(X).log_prob(y), expected)
    score = -energy_score(inner, (y - loc) / scale, generator=0).mean().item()
    assert model.score(X, Y) == pytest.approx(score, rel=1e-9)
    assert model.predict_dist(X).sample((500,)).std(0).mean(0).numpy() == pytest.approx(
        Y.std(0), rel=0.6
    )


def test_diagnose(model):
    table = model.diagnose(X, Y).table
    pd.testing.assert_frame_equal(table, model.diagnose(X, Y).table)
    assert {"marginal", "hdr", "copula"} <= set(table["prerank"])


def test_names_and_text():
    x = pd.DataFrame({"size": X[:, 0], "group": np.where(X[:, 1] > 0, "high", "low")})
    y = pd.DataFrame(Y, columns=["u", "v", "w"])
    model = regressor(max_epochs=1).fit(x, y)
    assert model.target_names_ == ("u", "v", "w")
    assert {"u", "v", "w"} <= set(model.diagnose(x, y, preranks="marginal").table["component"])
    assert model.score(x, y[["w", "u", "v"]]) == model.score(x, y)
    page, _ = fit_page(model, x, y, title="flow")
    assert page.settings["bins of a spline"] == "4"


# --- strength --------------------------------------------------------------------------------


def skewed(rows, seed):
    """Targets far from any normal."""
    x, y = (part.numpy() for part in AR1Regression(dim=2).sample(rows, generator=seed))
    return x, np.exp(1.2 * y)


def test_the_penalty_comes_after_the_score_alone():
    x, y = skewed(120, 1)
    options = {"max_epochs": 2, "lr": 0.003}
    free, held = (regressor(strength=s, **options).fit(x, y) for s in (0.0, 30.0))
    assert (free.strength_, held.strength_) == (0.0, 30.0)
    assert torch.equal(held.without_penalty().theta_, free.theta_)
    assert not torch.equal(held.theta_, free.theta_)


def test_auto():
    x, y = skewed(100, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # both outcomes will do here
        model = regressor(strength="auto", preranks="marginal", max_epochs=1).fit(x, y)
    assert model.strength_ == (model.selection_.strength or 0.0)
    skipped = {skipped.strength for skipped in model.selection_.skipped}
    assert {*model.selection_.table["strength"]} | skipped >= {0.0, 10.0, 30.0, 100.0}


def test_runs_are_a_matter_of_the_seed_alone():
    found, few = [], X[:20]
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        fitted = regressor(max_epochs=1).fit(X, Y)
        found.append(fitted.predict(few))
        fitted.score(X, Y)
        fitted.diagnose(X, Y)
        assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(*found)
    other = regressor(max_epochs=1, random_state=1).fit(X, Y)
    assert not np.array_equal(other.predict(few), found[0])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bins": 1}, "bins"),
        ({"n_samples": 1}, "n_samples"),
        ({"hidden": (8, 0)}, "hidden"),
        ({"hidden": 8}, "hidden"),
        ({"scale_floor": 0.0}, "scale_floor"),
        ({"strength": -1.0}, "strength"),
        ({"preranks": "marginale"}, "marginal"),
        ({"lr": 0.0}, "lr"),
        ({"lr": 1e30}, "no finite objective.*lower lr"),
    ],
    ids=str,
)
def test_parameters_are_checked(options, match):
    with pytest.raises(PrerankError, match=match):
        regressor(**options).fit(X, Y)


HARD = {
    "constant target": (X, np.column_stack([Y[:, 0], np.full(ROWS, 3.0)])),
    "constant input": (np.column_stack([X, np.full(ROWS, 0.1)]), Y),
    "duplicated targets": (X, np.column_stack([Y[:, 0], Y[:, 0]])),
    "one unusual target": (X, np.vstack([1e12 * Y[:1], Y[1:]])),
    "ten rows": (X[:10], Y[:10]),
    "discrete targets": (X, np.column_stack([Y[:, 0] > 0, np.round(Y[:, 0])]).astype(float)),
    "large numbers": (1e30 * X, 1e30 * Y),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_data_gives_finite_predictions(name):
    x, y = HARD[name]
    model = regressor(max_epochs=1, lr=0.02).fit(x, y)
    # `predict` is one of the quantiles.
    for found in (model.predict_quantiles(x), model.sample(x, 5)):
        assert np.isfinite(found).all()
    assert np.isfinite(model.score(x, y))


# --- persistence -----------------------------------------------------------------------------


def test_save_and_load(tmp_path, model):
    model.save(tmp_path)
    suffixes = {file.suffix for file in tmp_path.iterdir() if file.name != ".lock"}
    assert suffixes == {".json", ".safetensors"}
    copy = load_model(tmp_path)
    assert isinstance(copy, FlowRegressor)
    assert copy.get_params() == model.get_params()
    few = X[:20]
    np.testing.assert_array_equal(copy.predict(few), model.predict(few))
    np.testing.assert_array_equal(copy.predict_quantiles(few), model.predict_quantiles(few))
    assert copy.score(X, Y) == model.score(X, Y)
    pd.testing.assert_frame_equal(copy.diagnose(X, Y).table, model.diagnose(X, Y).table)
    refitted = clone(copy).fit(X, Y)
    np.testing.assert_array_equal(refitted.predict(few), model.predict(few))


def test_a_model_that_is_loaded_without_zuko_says_what_to_install(tmp_path, model, monkeypatch):
    model.save(tmp_path)
    monkeypatch.setitem(sys.modules, "zuko.transforms", None)
    for use in (lambda: load_model(tmp_path), lambda: regressor().fit(X, Y)):
        with pytest.raises(InputError, match=r"^a flow needs zuko: .*'prerank\[flows\]'"):
            use()


def test_a_model_of_another_kind_is_refused(tmp_path, model):
    model.save(tmp_path)
    settings = json.loads((tmp_path / "model.json").read_text())
    assert settings["class"] == "FlowRegressor"
    settings["class"] = "MixtureRegressor"
    (tmp_path / "model.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="does not match the hash"):
        load_model(tmp_path)


def test_pickle(model):
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))


def test_points_of_a_calibrated_flow_have_the_share_that_stays():
    """A head that keeps nearly all of the forecast does not widen its quantiles."""
    double = IndependentTransform(AffineTransform(0.0, 2.0), 1)
    base = FlowDistribution(double, 3, torch.zeros(2), torch.ones(2))
    change = Change.identity(2, 4, stack=(), like=torch.zeros(()))
    wide = change._replace(width=torch.tensor(3.0).log())
    spreads = [
        _points(Copies(base, wide._replace(kept=torch.tensor(kept)))).std(0) / base.points().std(0)
        for kept in (-20.0, 20.0)
    ]
    torch.testing.assert_close(spreads[0], torch.full_like(spreads[0], 3.0), rtol=0.1, atol=0)
    torch.testing.assert_close(spreads[1], torch.ones_like(spreads[1]), rtol=1e-3, atol=0)
