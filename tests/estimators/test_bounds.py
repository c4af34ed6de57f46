"""Targets with bounds: nothing beyond them, exact numbers, and what rows on a bound mean."""

import numpy as np
import pandas as pd
import pytest
import torch

from pictures import leave_blank
from prerank import FlowRegressor, MixtureRegressor, PrerankError, load_model, pit
from prerank.calibration import pce
from prerank.distributions import Bounded, Rounded, draw
from prerank.errors import InputError
from prerank.estimators.model_page import fit_page

SMALL = {"hidden": (16,), "max_epochs": 40, "lr": 0.02, "device": "cpu", "random_state": 0}
BOUNDS = {"humid": (0, 100), "share": (0, 1), "rain": (0, None)}


def table(n, seed):
    """Humidity with rows at 100, a share with none at a bound, an amount, and a free target."""
    random = np.random.default_rng(seed)
    x, common, *own = random.normal(size=(5, n))
    humid = (80 + 12 * (x + 0.5 * common + own[0])).clip(1, 100)
    share = 1 / (1 + np.exp(-(x + common)))
    rain = np.exp(0.5 * x + 0.5 * own[1])
    wind = common + 0.1 * x
    y = pd.DataFrame({"humid": humid, "share": share, "rain": rain, "wind": wind})
    return pd.DataFrame({"x": x}), y


X, Y = table(600, 0)
X_TEST, Y_TEST = table(2000, 1)


@pytest.fixture(scope="module")
def model():
    return MixtureRegressor(2, folds=0, bounds=BOUNDS, **SMALL).fit(X, Y)


def within(values):
    low, high = [0, 0, 0, -np.inf], [100, 1, np.inf, np.inf]
    values = np.asarray(values)
    return bool(((values >= low) & (values <= high)).all())


def test_nothing_lies_beyond_a_bound(model):
    dist = model.predict_dist(X_TEST)
    assert isinstance(dist, Rounded)  # for the rows at 100
    assert isinstance(dist.base, Bounded)
    extremes = [1e-9, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-9]
    assert within(np.moveaxis(model.predict_quantiles(X_TEST, extremes), 0, 0))
    assert within(model.sample(X_TEST, 100, random_state=0))
    assert within(model.predict(X_TEST))
    assert within(np.moveaxis(model.predict_interval(X_TEST, 0.999, joint=True), -1, 0))
    free = MixtureRegressor(2, folds=0, **SMALL).fit(X, Y)
    assert not within(free.sample(X_TEST, 100, random_state=0))  # what the test can find


def test_the_forecast_is_calibrated_and_its_moments_are_those_of_draws(model):
    dist, y = model.predict_dist(X_TEST), torch.tensor(Y_TEST.to_numpy())
    z = pit(dist, y, "marginal", generator=0)
    # On the line and within bounds the PITs of continuous targets are the same numbers.
    on_line = pit(dist.base.base, dist.base.points(y), "marginal", generator=0)
    torch.testing.assert_close(z[:, 1:], on_line[:, 1:], rtol=1e-9, atol=1e-9)
    # 2,000 rows of a calibrated forecast have a PCE of .007; networks of 600 rows have some more.
    assert (pce(z) < 0.06).all()
    draws = draw(dist, 4000, generator=0).points
    # Means of 4,000 draws: 5 standard errors in any of 8,000 numbers.
    error = dist.variance.sqrt() / 4000**0.5
    assert bool(((draws.mean(0) - dist.mean).abs() < 5.5 * error).all())
    at_bound = (draws[..., 0] == 100).double().mean()
    assert abs(float(at_bound) - float((Y_TEST.humid == 100).mean())) < 0.03


def test_without_rows_on_a_bound_there_is_a_density():
    y = Y[["share", "rain", "wind"]]
    bounds = {"share": (0, 1), "rain": (0, None)}
    model = MixtureRegressor(2, method="none", bounds=bounds, **SMALL).fit(X, y)
    dist = model.predict_dist(X_TEST)
    assert isinstance(dist, Bounded)
    observed = torch.tensor(Y_TEST[["share", "rain", "wind"]].to_numpy())
    free = MixtureRegressor(2, method="none", **SMALL).fit(X, y).predict_dist(X_TEST)
    # The truth has bounds: a forecast that knows them has the better likelihood.
    assert float((dist.log_prob(observed) - free.log_prob(observed)).mean()) > 0
    table = model.diagnose(X_TEST, Y_TEST[y.columns[::-1]]).table
    assert "hdr" in set(table.prerank)
    assert {"share", "rain", "wind"} < set(table.component)


def test_a_saved_model_keeps_its_bounds(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.get_params()["bounds"] == {
        "humid": (0, 100),
        "share": (0, 1),
        "rain": (0, None),
    }
    assert loaded.rounding_.links == model.rounding_.links
    np.testing.assert_array_equal(loaded.predict(X_TEST), model.predict(X_TEST))
    np.testing.assert_array_equal(
        *(m.sample(X_TEST[:9], 5, random_state=1) for m in (model, loaded))
    )
    torch.testing.assert_close(loaded.target_scales_, model.target_scales_)


def test_scores_diagnoses_and_regions(model):
    assert np.isfinite(model.score(X_TEST, Y_TEST))
    assert "hdr" in model.diagnose(X_TEST[:200], Y_TEST[:200]).skipped
    region = model.predict_region(X_TEST[:200], shape="box", random_state=0)
    assert 0.75 < float(region.contains(Y_TEST[:200]).double().mean()) <= 1
    assert within(np.moveaxis(region.limits.numpy(), -1, 0))


def test_the_page_names_the_bounds(model, monkeypatch):
    leave_blank(monkeypatch)
    page, _ = fit_page(model, X_TEST[:100], Y_TEST[:100], title="weather")
    assert page.settings["bounds"] == "humid 0 to 100; share 0 to 1; rain from 0"


def test_flows_have_bounds_too():
    pytest.importorskip("zuko")
    y = Y[["share", "rain"]]
    bounds = {"share": (0, 1), "rain": (0, None)}
    flow = FlowRegressor(4, hidden=(8,), max_epochs=2, method="none", bounds=bounds, device="cpu")
    flow.fit(X, y)
    assert isinstance(flow.predict_dist(X), Bounded)
    for values in (flow.predict(X), flow.predict_quantiles(X), flow.sample(X, 9, random_state=0)):
        assert values.min() >= 0
        assert values[..., 0].max() <= 1


def test_one_target_as_a_vector():
    model = MixtureRegressor(2, method="none", bounds={"rain": (0, None)}, **SMALL)
    model.fit(X, Y["rain"])
    assert model.predict(X).shape == (600,)
    assert model.predict_interval(X, 0.999).min() >= 0


@pytest.mark.parametrize(
    ("bounds", "match"),
    [
        ({"snow": (0, 1)}, "names 'snow', but the targets are humid, share, rain, wind"),
        (
            {"humid": (0, 50)},
            r"'humid' has \d+ values outside its bounds 0 to 50, the first in row",
        ),
        ({"humid": (0, 0)}, "two increasing numbers"),
        ({"humid": (None, None)}, "two increasing numbers"),
        ({"humid": (0, float("nan"))}, "two increasing numbers"),
        ({"humid": 3}, "bounds must be"),
        ({"humid": (0, 10**400)}, "bounds must be"),
        ([(0, 1)], "bounds must be"),
    ],
)
def test_bounds_that_cannot_be_kept_are_named(bounds, match):
    with pytest.raises(PrerankError, match=match):
        MixtureRegressor(2, method="none", bounds=bounds, **SMALL).fit(X, Y)


def test_rows_on_a_bound_need_an_atom():
    model = MixtureRegressor(2, method="none", bounds=BOUNDS, discrete=False, **SMALL)
    with pytest.raises(InputError, match=r"rows on its bound 100, .* leave discrete at 'auto'"):
        model.fit(X, Y)
