"""The scikit-learn face: contract, units, persistence, and what it does with bad input."""

import functools
import hashlib
import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from prerank import energy_score, pce, pce_floor, pit
from prerank.datasets import AR1Regression
from prerank.distributions import GaussianMixture, affine
from prerank.errors import InputError, PrerankError
from prerank.estimators import MixtureRegressor, load_model
from prerank.estimators.model_folder import settings_digest
from prerank.files import read_tensors, write_tensors
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PCA
from prerank.training import Objective, Trial, choose_strength, train

ROWS, DIM = 120, 3
X, Y = (part.numpy() for part in AR1Regression(dim=DIM).sample(ROWS, generator=0))
Y = Y * [1.0, 100.0, 0.01] + [0.0, -500.0, 7.0]


def regressor(**options):
    """A regressor with a penalty; `test_methods` has those with a head."""
    small = {"n_components": 2, "hidden": (8,), "max_epochs": 1, "batch_size": 32}
    common = {"method": "network", "device": "cpu", "random_state": 0}
    return MixtureRegressor(**{**small, **common, **options})


@functools.cache
def plain(**options):
    """A model of the plain arrays that several tests look at, and none changes."""
    return regressor(**options).fit(X, Y)


def trained():
    return regressor(max_epochs=10, lr=0.02)


@pytest.fixture(scope="module")
def model():
    return trained().fit(X, Y)


# The warning comes once per process, in the check with read-only memory maps.
@parametrize_with_checks([regressor()])
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


# --- with scikit-learn's own tools -----------------------------------------------------------


def test_pipeline():
    pipeline = make_pipeline(StandardScaler(), regressor()).fit(X, Y)
    assert pipeline.predict(X).shape == (ROWS, DIM)
    # The network standardises by itself: a scaler before it changes rounding only.
    np.testing.assert_allclose(pipeline.predict(X), plain().predict(X), rtol=1e-3, atol=1e-3)


def test_grid_search():
    search = GridSearchCV(
        regressor(), {"strength": [0.0, 3.0], "n_components": [1, 2]}, cv=2, error_score="raise"
    )
    search.fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) == 4
    assert search.best_estimator_.predict(X).shape == (ROWS, DIM)


def test_clone_and_parameters():
    model = regressor(preranks="copula", strength="auto", budget=0.2)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert "MixtureRegressor" in repr(model)


def test_unfitted():
    for use in (
        lambda m: m.predict(X),
        lambda m: m.predict_dist(X),
        lambda m: m.score(X, Y),
        lambda m: m.diagnose(X, Y),
        lambda m: m.sample(X),
        lambda m: m.predict_quantiles(X),
    ):
        with pytest.raises(NotFittedError):
            use(regressor())


# --- shapes, names, units --------------------------------------------------------------------


def test_a_vector_gives_vectors():
    model = regressor(preranks="marginal").fit(X, Y[:, 0])
    assert model.predict(X).shape == (ROWS,)
    assert model.predict_quantiles(X, [0.1, 0.9]).shape == (2, ROWS)
    assert model.sample(X, 5, random_state=0).shape == (5, ROWS)
    assert model.predict_dist(X).event_shape == (1,)
    assert np.isfinite(model.score(X, Y[:, 0]))
    column = regressor(preranks="marginal").fit(X, Y[:, :1])
    assert column.predict(X).shape == (ROWS, 1)
    np.testing.assert_array_equal(column.predict(X)[:, 0], model.predict(X))


def test_shapes(model):
    assert model.predict(X[:5]).shape == (5, DIM)
    assert model.predict(X[:1]).shape == (1, DIM)
    assert model.predict_dist(X[:5]).batch_shape == (5,)
    assert model.predict_quantiles(X[:5]).shape == (3, 5, DIM)
    assert model.sample(X[:5], 7).shape == (7, 5, DIM)
    assert model.n_outputs_ == DIM
    assert model.n_features_in_ == 2


def test_names_of_the_targets():
    names = ["wage", "hours", "age"]
    model = regressor().fit(X, pd.DataFrame(Y, columns=names))
    assert model.target_names_ == tuple(names)
    table = model.diagnose(X, Y, preranks="marginal").table
    assert set(names) <= set(table["component"])
    assert plain().target_names_ == ("y0", "y1", "y2")


@pytest.mark.parametrize(("name", "expected"), [("wage", "wage"), (7, "7"), (None, "y0")])
def test_name_of_a_single_target(tmp_path, name, expected):
    series = pd.Series(Y[:, 0], name=name)
    model = regressor(preranks="marginal").fit(X, series)
    assert model.target_names_ == (expected,)
    assert model.predict(X).shape == (ROWS,)
    model.save(tmp_path)
    assert load_model(tmp_path).target_names_ == (expected,)


def test_everything_is_float64(model):
    dist = model.predict_dist(X)
    assert {p.dtype for p in (dist.logits, dist.loc, dist.scale_tril)} == {torch.float64}
    for found in (model.predict(X), model.predict_quantiles(X), model.sample(X, 3)):
        assert found.dtype == np.float64
    # Inputs of another type make no difference.
    np.testing.assert_allclose(model.predict(X.astype(np.float32)), model.predict(X), rtol=1e-3)


def test_predict_is_the_mean_of_the_distribution(model):
    np.testing.assert_allclose(model.predict(X), model.predict_dist(X).mean.numpy(), rtol=1e-12)
    drawn = model.sample(X, 4000, random_state=1)
    error = model.predict_dist(X).variance.sqrt().numpy() / 4000**0.5
    # 360 means, 5 standard errors.
    assert (abs(drawn.mean(0) - model.predict(X)) < 5 * error).all()


def test_it_learns_in_the_units_of_the_targets():
    problem = AR1Regression(dim=2, spread=0.5)
    (x, y), (new_x, new_y) = (problem.sample(600, generator=seed) for seed in (0, 1))
    factor = torch.tensor([100.0, 0.01])
    fitted = regressor(n_components=1, hidden=(16,), preranks="marginal", max_epochs=20, lr=0.02)
    fitted.fit(x.numpy(), (factor * y).numpy())
    law = problem.conditional(new_x)
    rest = (fitted.predict(new_x.numpy()) - (factor * law.loc).numpy()) / factor.numpy()
    # Of the variance of the means, 1/2, nine tenths are found; the spread to within a fifth.
    assert (rest.var(0) < 0.05).all()
    spread = fitted.predict_dist(new_x.numpy()).variance.sqrt() / (factor * law.variance.sqrt())
    assert ((spread.mean(0) > 0.8) & (spread.mean(0) < 1.25)).all()
    z = ((factor * new_y).numpy() - fitted.predict(new_x.numpy())) / factor.numpy()
    assert (z.var(0) < 0.6 * new_y.var(0).numpy()).all()


def standardised(model, x, y):
    """The network's own output and the targets in its units."""
    loc, scale = model.y_scaler_.loc[0, 0], model.y_scaler_.scale[0, 0]
    inputs = model.x_scaler_(torch.from_numpy(x), clip=True).float()
    with torch.no_grad():
        dist = model.network_(model.theta_, inputs)
    dist = GaussianMixture(*(p[0].double() for p in (dist.logits, dist.loc, dist.scale_tril)))
    return dist, (torch.from_numpy(y) - loc) / scale, scale


def test_original_units(model):
    dist, y, scale = standardised(model, X, Y)
    found = model.predict_dist(X).log_prob(torch.from_numpy(Y))
    torch.testing.assert_close(found, dist.log_prob(y) - scale.log().sum(), rtol=1e-9, atol=1e-9)
    # The targets differ in size by four orders of magnitude, and so do the predictions.
    assert model.predict_dist(X).variance.mean(0).sqrt().numpy() == pytest.approx(Y.std(0), rel=0.6)


def test_score_is_minus_the_energy_score_in_standardised_units(model):
    dist, y, _ = standardised(model, X, Y)
    expected = -energy_score(dist, y, generator=0).mean().item()
    assert model.score(X, Y) == pytest.approx(expected, rel=1e-9)
    # The same from the public distribution.
    loc, scale = model.y_scaler_.loc[0, 0], model.y_scaler_.scale[0, 0]
    back = affine(model.predict_dist(X), -loc / scale, 1 / scale)
    assert model.score(X, Y) == pytest.approx(
        -energy_score(back, y, generator=0).mean().item(), rel=1e-6
    )
    weights = np.arange(ROWS, dtype=float)
    rows = energy_score(dist, y, generator=0).numpy()
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(
        -np.average(rows, weights=weights), rel=1e-9
    )
    assert model.score(X, Y) > model.score(X, Y + 5 * Y.std(0))


def test_quantiles(model):
    levels = [0.01, 0.05, 0.5, 0.9, 0.999]
    found = model.predict_quantiles(X, levels)
    assert (np.diff(found, axis=0) > 0).all()
    margins = model.predict_dist(X).project(torch.eye(DIM, dtype=torch.float64))
    cdf = margins.cdf(torch.from_numpy(found)).numpy()
    np.testing.assert_allclose(
        cdf, np.broadcast_to(np.reshape(levels, (-1, 1, 1)), cdf.shape), atol=1e-9
    )
    np.testing.assert_array_equal(model.predict_quantiles(X, levels[::-1]), found[::-1])
    for wrong in ([0.0, 0.5], [1.0], [-1.0], [float("nan")]):
        with pytest.raises(InputError, match="quantile"):
            model.predict_quantiles(X, wrong)


def test_samples_have_seeds(model):
    one, again, other = (model.sample(X, 3, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_diagnose(model):
    table = model.diagnose(X, Y).table
    again = model.diagnose(X, Y).table
    pd.testing.assert_frame_equal(table, again)
    assert {"marginal", "hdr", "copula"} <= set(table["prerank"])
    # In standardised units: rescaling a target, with a model that was fitted to it, changes
    # nothing but rounding.
    factor = np.array([1.0, 1000.0, 0.001])
    moved = trained().fit(X, Y * factor).diagnose(X, Y * factor).table
    np.testing.assert_allclose(moved["pce"], table["pce"], atol=0.02)
    assert len(model.diagnose(X, Y, preranks="hdr").table) < len(table)


# --- strength --------------------------------------------------------------------------------


def test_the_strength_matters():
    free, held = (regressor(strength=s, max_epochs=3).fit(X, Y) for s in (0, 5.0))
    assert (free.strength_, held.strength_) == (0.0, 5.0)
    assert free.selection_ is None
    assert not np.allclose(free.predict(X), held.predict(X), rtol=1e-3)


@pytest.fixture
def parts(monkeypatch):
    """What the estimator asks `train` for, and what it gets."""
    calls = []

    def noted(network, data, runs, **options):
        result = train(network, data, runs, **options)
        objective = options.get("objective") or Objective()
        calls.append({**options, "runs": runs, "penalty": objective.penalty, "result": result})
        return result

    monkeypatch.setattr("prerank.training.calibrated.train", noted)
    return calls


def test_the_penalty_comes_after_the_score_alone(parts):
    x, y = skewed()
    options = {"preranks": "marginal", "n_components": 1}
    options |= {"max_epochs": 4, "patience": 2, "lr": 0.01}
    held = regressor(strength=30.0, **options).fit(x, y)
    first, second = parts
    assert first["penalty"] is None
    assert first.get("start") is None
    assert [(run.split, run.strength) for run in first["runs"]] == [(0, 0.0)]
    assert isinstance(second["penalty"], CalibrationPenalty)
    assert [(run.split, run.strength) for run in second["runs"]] == [(0, 30.0)]
    assert second["runs"][0].seed == first["runs"][0].seed
    assert torch.equal(second["start"], first["result"].theta)
    assert torch.equal(held.theta_, second["result"].theta)
    for part in parts:  # `train` gives the second part more patience
        chosen = part["settings"]
        assert (chosen.max_epochs, chosen.patience, chosen.lr) == (4, 2, 0.01)
        assert chosen.fine_tune
        assert chosen.holdout_offset
    # The limit is that of each part.
    assert first["result"].epochs.tolist() == second["result"].epochs.tolist() == [4]
    # A strength of 0 is the first part alone.
    parts.clear()
    free = regressor(strength=0.0, **options).fit(x, y)
    assert torch.equal(free.theta_, second["start"])
    assert not torch.equal(free.theta_, held.theta_)
    assert [int(part["result"].epochs.sum()) for part in parts] == [4]


def test_auto_trains_the_score_alone_once(parts):
    x, y = skewed()
    options = {"n_components": 1, "preranks": "marginal", "max_epochs": 2, "lr": 0.01}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = regressor(strength="auto", budget=0.3, **options).fit(x, y)
    first, *later = parts
    assert first["penalty"] is None
    assert [(run.split, run.strength) for run in first["runs"]] == [(s, 0.0) for s in range(3)]
    seed, base = first["runs"][0].seed, first["result"].theta
    tried = {}
    for part in later:
        splits = [run.split for run in part["runs"]]
        assert {run.seed for run in part["runs"]} == {seed}
        assert torch.equal(part["start"], base[splits])
        for run in part["runs"]:
            tried.setdefault(run.strength, []).append(run.split)
    assert list(tried)[:3] == [10.0, 30.0, 100.0]
    everywhere = [strength for strength, splits in tried.items() if splits == [0, 1, 2]]
    assert [0.0, *sorted(everywhere)] == list(model.selection_.table["strength"])
    others = {strength for strength, splits in tried.items() if splits == [0]}
    assert others | set(everywhere) == set(tried)
    assert others <= {skipped.strength for skipped in model.selection_.skipped}


def skewed():
    """Targets that one normal cannot fit."""
    x, y = (part.numpy() for part in AR1Regression(dim=2).sample(300, generator=1))
    return x, np.exp(1.2 * y)


def test_auto_finds_a_strength_within_the_budget(tmp_path):
    x, y = skewed()
    options = {"n_components": 1, "preranks": "marginal", "max_epochs": 10, "lr": 0.02}
    options["nll_budget"] = None
    model = regressor(strength="auto", budget=0.3, **options).fit(x, y)
    table = model.selection_.table
    assert model.strength_ == model.selection_.strength > 0
    (chosen,) = table[table["chosen"]].to_dict("records")
    assert chosen["strength"] == model.strength_
    assert chosen["energy_ratio"] + 2 * chosen["ratio_se"] <= 1.3
    assert chosen["excess_gain"] > chosen["gain_se"]
    assert chosen["excess"] < table["excess"][0] / 2
    named = {*table["strength"], *(skipped.strength for skipped in model.selection_.skipped)}
    assert named >= {0.0, 10.0, 30.0, 100.0}
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").selection_ == model.selection_
    # The model is the one of that strength, trained on the first of the three splits.
    direct = regressor(strength=model.strength_, **options).fit(x, y)
    np.testing.assert_allclose(model.predict(x), direct.predict(x), rtol=0.02, atol=0.02)


def test_auto_says_when_nothing_helps():
    def constant(y):
        return 0 * y[..., 0]

    # A constant tells nothing about the prediction: there is no error to lower.
    with pytest.warns(
        UserWarning, match=r"no evidence of an error .*strength_ = 0.*selection_\.table"
    ):
        model = regressor(preranks=constant, strength="auto").fit(X, Y)
    assert model.strength_ == 0.0
    assert model.selection_.strength is None
    assert model.selection_.table.strength.tolist() == [0.0]  # none was tried
    free = plain(strength=0.0)
    np.testing.assert_allclose(model.predict(X), free.predict(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"strength": -1.0}, "strength"),
        ({"strength": float("nan")}, "strength"),
        ({"strength": "always"}, "always"),
        ({"strength": "auto", "budget": -0.1}, "budget"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"hidden": (8, 0)}, "hidden"),
        ({"preranks": "marginale"}, "marginal"),
        ({"preranks": "dependency(3)"}, "lag"),
        ({"preranks": "band_depth"}, "band_depth"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"patience": 0}, "patience"),
        ({"batch_size": 0}, "batch_size"),
        ({"lr": 0.0}, "lr"),
    ],
    ids=str,
)
def test_parameters_are_checked(options, match):
    with pytest.raises(PrerankError, match=match):
        regressor(**options).fit(X, Y)


ABSENT = [] if torch.cuda.is_available() else ["cuda", "cuda:0", torch.device("cuda")]


@pytest.mark.parametrize("device", ["quantum", "", "meta", "cuda:999", 1.5, *ABSENT], ids=repr)
def test_devices_are_checked(device):
    with pytest.raises(InputError, match=r"device=.* cannot be used .*'cpu'"):
        regressor(device=device).fit(X, Y)


@pytest.mark.parametrize("device", [torch.device("cpu"), None], ids=str)
def test_devices(device):
    assert regressor(device=device).fit(X, Y).predict(X).shape == (ROWS, DIM)


# --- randomness ------------------------------------------------------------------------------


def test_random_state():
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        found.append(regressor().fit(X, Y).predict(X))
    np.testing.assert_array_equal(*found)
    assert not np.array_equal(plain(random_state=1).predict(X), found[0])
    one, two = (
        regressor(random_state=np.random.RandomState(5)).fit(X, Y).predict(X) for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_global_states_are_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model = regressor().fit(X, Y)
    model.predict(X)
    model.diagnose(X, Y)
    model.score(X, Y)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_fitting_again_forgets():
    model = regressor().fit(X, Y)
    again = model.fit(X[:, :1], Y[:, 0])
    assert again is model
    assert model.predict(X[:, :1]).shape == (ROWS,)
    np.testing.assert_array_equal(
        model.predict(X[:, :1]), regressor().fit(X[:, :1], Y[:, 0]).predict(X[:, :1])
    )


# --- persistence -----------------------------------------------------------------------------


def text_table():
    """A table with a number, a truth value and text."""
    levels = np.where(X[:, 0] > 0.3, "high", np.where(X[:, 1] > 0, "middle", "low"))
    return pd.DataFrame({"size": X[:, 0], "new": X[:, 1] > 0, "group": levels})


TABLE = text_table()


@functools.cache
def of_table():
    """A model of the table with text, which no test changes."""
    return regressor().fit(TABLE, Y)


def test_pickle(model):
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert copy.get_params() == model.get_params()


KINDS = {
    "matrix": plain,
    "vector": lambda: regressor(preranks="marginal").fit(X, Y[:, 0]),
    "names": lambda: regressor().fit(
        pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame(Y, columns=["u", "v", "w"])
    ),
    "text": of_table,
    "pre-ranks": lambda: regressor(preranks=["marginal", PCA(2)]).fit(X, Y),
    "generator": lambda: regressor(random_state=np.random.RandomState(0)).fit(X, Y),
}


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(tmp_path, kind):
    model = KINDS[kind]()
    model.save(tmp_path / "model")
    lock, *parts = sorted((tmp_path / "model").iterdir())
    assert lock.name == ".lock"
    assert sorted(part.suffix for part in parts) == [".json", ".safetensors"]
    copy = load_model(tmp_path / "model")
    assert isinstance(copy, MixtureRegressor)
    inputs = {"names": pd.DataFrame(X, columns=["a", "b"]), "text": TABLE}.get(kind, X)
    targets = Y[:, 0] if kind == "vector" else Y
    np.testing.assert_array_equal(copy.predict(inputs), model.predict(inputs))
    np.testing.assert_array_equal(copy.predict_quantiles(inputs), model.predict_quantiles(inputs))
    assert copy.score(inputs, targets) == model.score(inputs, targets)
    assert copy.target_names_ == model.target_names_
    assert copy.strength_ == model.strength_
    assert copy.n_features_in_ == model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        assert list(copy.feature_names_in_) == list(model.feature_names_in_)
    pd.testing.assert_frame_equal(
        copy.diagnose(inputs, targets).table, model.diagnose(inputs, targets).table
    )
    # A loaded model can be saved, and fitted, again.
    copy.save(tmp_path / "again")
    np.testing.assert_array_equal(
        load_model(tmp_path / "again").predict(inputs), model.predict(inputs)
    )
    if kind != "generator":
        again = clone(copy).fit(
            inputs, pd.DataFrame(Y, columns=["u", "v", "w"]) if kind == "names" else targets
        )
        np.testing.assert_array_equal(again.predict(inputs), model.predict(inputs))


def test_the_trace_of_the_selection_is_saved(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # both outcomes will do here
        model = regressor(preranks="marginal", strength="auto").fit(X, Y)
    model.save(tmp_path)
    copy = load_model(tmp_path)
    pd.testing.assert_frame_equal(copy.selection_.table, model.selection_.table)
    assert copy.selection_ == model.selection_


def test_a_trace_that_is_not_finite_is_saved(tmp_path, model):
    base = Trial(0.0, np.array([0.05, 0.06]), np.array([1.0, 1.1]))
    lost = Trial(1.0, np.array([np.nan, 0.0]), np.array([np.inf, 1.0]))
    chosen = pickle.loads(pickle.dumps(model))
    chosen.selection_ = choose_strength([base, lost])
    chosen.save(tmp_path)
    found = load_model(tmp_path).selection_
    pd.testing.assert_frame_equal(found.table, chosen.selection_.table)
    assert found.trace[1].energy == np.inf


def test_saving_over_a_model_replaces_it(tmp_path):
    one, two = plain(), plain(random_state=1)
    one.save(tmp_path)
    two.save(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).predict(X), two.predict(X))


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        regressor().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_code_is_not_saved(tmp_path):
    def largest(y):
        return y.amax(-1)

    model = regressor(preranks=["marginal", largest]).fit(X, Y)
    with pytest.raises(InputError, match="'largest' is code"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def change(folder, **values):
    path = folder / "model.json"
    settings = json.loads(path.read_text())
    for name, value in values.items():
        if value is KeyError:
            del settings[name]
        else:
            settings[name] = value
    path.write_text(json.dumps(settings))


def flip(folder):
    (path,) = folder.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def forge(folder, **values):
    """Change settings and their hash with them."""
    change(folder, sha256=KeyError, **values)
    settings = json.loads((folder / "model.json").read_text())
    change(folder, sha256=settings_digest(settings))


def retype(folder, **changes):
    """Change tensors, and all hashes with them."""
    (path,) = folder.glob("*.safetensors")
    tensors, meta = read_tensors(path)
    for name, altered in changes.items():
        tensors[name.replace("_", ".")] = altered(tensors[name.replace("_", ".")]).contiguous()
    write_tensors(path, tensors, meta)
    forge(folder, weights_sha256=hashlib.sha256(path.read_bytes()).hexdigest())


DAMAGE = {
    "format": (lambda f: change(f, format=3), "model format 3"),
    "no format": (lambda f: change(f, format=KeyError), "model format None"),
    "a list": (lambda f: (f / "model.json").write_text("[1]"), "model format None"),
    "setting": (lambda f: change(f, strength=99.0), "does not match the hash in it"),
    "class": (lambda f: forge(f, **{"class": "Other"}), "Other"),
    "no network": (lambda f: forge(f, network=KeyError), "not a complete model"),
    "another network": (
        lambda f: forge(f, network={"n_inputs": 2, "n_targets": 3, "hidden": [9]}),
        "not a complete model",
    ),
    "endless targets": (lambda f: forge(f, n_outputs=math.inf), "not a complete model"),
    "unknown parameter": (lambda f: forge(f, parameters={"hidden": [], "depth": 3}), "complete"),
    "hash": (lambda f: change(f, weights_sha256="0" * 64), "does not match the hash"),
    "no hash": (lambda f: change(f, weights_sha256=KeyError), "does not match the hash"),
    "one bit": (flip, "does not match the hash"),
    "no weights": (lambda f: next(f.glob("*.safetensors")).unlink(), "incomplete"),
    "weights elsewhere": (lambda f: forge(f, weights="../model.safetensors"), "incomplete"),
    "weights that are whole numbers": (lambda f: retype(f, theta=torch.Tensor.long), "int64"),
    "weights that are NaN": (lambda f: retype(f, theta=lambda t: t * math.nan), "not finite"),
    "a scaler too wide": (
        lambda f: retype(f, x_loc=lambda t: t.repeat(1, 1, 2)),
        "x.loc has shape",
    ),
    "a scaler of zero": (lambda f: retype(f, y_scale=torch.zeros_like), "not positive"),
    "names that are lists": (lambda f: forge(f, target_names=[["a"]] * DIM), "not a list of texts"),
    "a name twice": (lambda f: forge(f, target_names=["a"] * DIM), "twice"),
    "levels of no column": (lambda f: forge(f, levels=[["a", "b"], ["c"]]), "encoded inputs"),
    "no settings": (lambda f: (f / "model.json").unlink(), r"model\.json"),
    "broken settings": (
        lambda f: (f / "model.json").write_text((f / "model.json").read_text()[:-20]),
        r"model\.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_models_are_refused(tmp_path, model, name):
    model.save(tmp_path)
    assert load_model(tmp_path).predict(X[:1]).shape == (1, DIM)
    damage, match = DAMAGE[name]
    damage(tmp_path)
    with pytest.raises(InputError, match=match):
        load_model(tmp_path)


def test_a_missing_folder(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        load_model(tmp_path / "nowhere")


# --- tables ----------------------------------------------------------------------------------


def test_text_columns_are_encoded():
    table, model = TABLE, of_table()
    assert model.network_.n_inputs == 2 + 3
    assert model.n_features_in_ == 3
    coded = np.column_stack(
        [table["size"], table["new"], *(table["group"] == g for g in ("high", "low", "middle"))]
    ).astype(float)
    by_hand = regressor().fit(coded, Y)
    np.testing.assert_array_equal(model.predict(table), by_hand.predict(coded))
    # A level that was never seen is none of the known ones.
    unseen = coded.copy()
    unseen[:, 2:] = 0
    np.testing.assert_array_equal(
        model.predict(table.assign(group="other")), by_hand.predict(unseen)
    )
    as_category = table.assign(group=table["group"].astype("category"))
    np.testing.assert_array_equal(model.predict(as_category), model.predict(table))


def test_numbers_in_a_column_of_objects_are_numbers():
    model = regressor().fit(TABLE.assign(size=TABLE["size"].astype(object)), Y)
    np.testing.assert_array_equal(model.predict(TABLE), of_table().predict(TABLE))


def test_dates_are_refused():
    dates = pd.date_range("2020-01-01", periods=ROWS)
    with pytest.raises(InputError, match=r"'when' holds dates.*day of the year"):
        regressor().fit(text_table().assign(when=dates), Y)


@pytest.mark.parametrize("preranks", ["marginal", "pca"])
def test_training_that_diverges_says_so(preranks):
    with pytest.raises(InputError, match=r"no finite objective.*lower lr"):
        regressor(lr=1e30, preranks=preranks).fit(X, Y)


def test_a_strength_that_is_too_large_for_the_numbers_says_so():
    # 1e40 is none of float32, in which is trained.
    with pytest.raises(InputError, match=r"no finite objective.*lower lr .*or strength"):
        regressor(strength=1e40, preranks="marginal").fit(X, Y)


def test_two_functions_with_one_name_are_refused():
    functions = [lambda y: y.amax(-1), lambda y: y.amin(-1)]
    with pytest.raises(InputError, match="same name twice"):
        regressor(preranks=functions, strength="auto").fit(X, Y)


def test_numbers_and_truth_values_need_no_encoding():
    table = pd.DataFrame(
        {
            "whole": np.arange(ROWS) % 7,
            "truth": X[:, 1] > 0,
            "nullable": pd.array(np.arange(ROWS) % 3, dtype="Int64"),
            "single": X[:, 0].astype(np.float32),
        }
    )
    model = regressor().fit(table, Y)
    numbers = table.to_numpy(dtype=float)
    np.testing.assert_array_equal(
        model.predict(table), regressor().fit(numbers, Y).predict(numbers)
    )


BAD_TABLES = {
    "number turned text": (TABLE.assign(size="large"), "'size' was numeric in fit"),
    "missing text": (TABLE.assign(group=[None, *TABLE["group"][1:]]), "'group' has 1 missing"),
    "text turned number": (
        TABLE.assign(group=1.5),
        r"'group' was text in fit \(such as 'high'\) and now holds numbers .*such as 1\.5",
    ),
    "numbers declared as objects": (
        TABLE.assign(group=pd.Series([3] * ROWS, dtype=object)),
        "'group' was text in fit .*convert the column to text",
    ),
    "text turned truth value": (TABLE.assign(group=True), "'group' was text in fit .*True"),
    "missing number": (TABLE.assign(size=np.nan), "NaN"),
    "another column": (TABLE.rename(columns={"size": "length"}), "feature names"),
    "another order": (TABLE[["new", "size", "group"]], "feature names"),
    "a column less": (TABLE[["size", "group"]], "feature names"),
    "a column more": (TABLE.assign(more=1.0), "feature names"),
    "no rows": (TABLE[:0], "0 sample|minimum of 1"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_other_tables_are_refused_in_prediction(name):
    table, match = BAD_TABLES[name]
    with pytest.raises(ValueError, match=match):
        of_table().predict(table)


def test_labels_of_xarray_decide_the_order_of_targets():
    xr = pytest.importorskip("xarray")
    y = xr.DataArray(Y, dims=("row", "target"), coords={"target": ["u", "v", "w"]})
    model = regressor().fit(X, y)
    assert model.target_names_ == ("u", "v", "w")
    turned = y[:, ::-1]
    assert model.score(X, turned) == model.score(X, y) == model.score(X, Y)
    with pytest.raises(InputError, match="u, v, z"):
        model.score(X, y.assign_coords(target=["u", "v", "z"]))


def test_datasets_of_xarray_are_refused():
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"a": ("row", X[:, 0]), "b": ("row", X[:, 1])})
    model = plain()
    calls = {
        "X": (lambda: regressor().fit(data, Y), lambda: model.predict(data)),
        "y": (lambda: regressor().fit(X, data), lambda: model.score(X, data)),
    }
    for name, pair in calls.items():
        for call in pair:
            with pytest.raises(PrerankError, match=f"{name} is an xarray.Dataset: .*adapters"):
                call()


def test_numbers_that_are_known_levels_are_taken_as_text():
    whole = pd.DataFrame({"size": X[:, 0], "year": 2020 + np.arange(ROWS) % 3})
    text = whole.assign(year=whole["year"].astype(str))
    model = regressor().fit(text, Y)
    np.testing.assert_array_equal(model.predict(whole), model.predict(text))
    # One that is not, and the same ones written in another way, are refused; as text, a new level
    # is none of the known ones.
    for other in (whole["year"] + 1, whole["year"].astype(float)):
        with pytest.raises(InputError, match="'year' was text in fit"):
            model.predict(whole.assign(year=other))
    later = text.assign(year=(whole["year"] + 1).astype(str))
    assert model.predict(later).shape == (ROWS, DIM)


def test_text_is_refused_where_there_was_none():
    table = pd.DataFrame(X, columns=["a", "b"])
    model = regressor().fit(table, Y)
    with pytest.raises(ValueError, match="convert string"):
        model.predict(table.assign(a="text"))


def test_a_text_that_is_a_name_is_refused():
    names = pd.DataFrame({"id": [f"row {i}" for i in range(1200)]})
    with pytest.raises(InputError, match="'id' has 1200 different texts: drop it"):
        regressor().fit(names, np.zeros(1200))


# --- bad input -------------------------------------------------------------------------------


def spoiled(array, value):
    copy = array.copy()
    copy[3, 1] = value
    return copy


REFUSED = {
    "NaN in X": (spoiled(X, np.nan), Y, "NaN"),
    "infinity in X": (spoiled(X, np.inf), Y, "infinity"),
    "NaN in y": (X, spoiled(Y, np.nan), "y contains NaN"),
    "infinity in y": (X, spoiled(Y, -np.inf), "y contains infinity"),
    "NaN in a table": (pd.DataFrame(spoiled(X, np.nan), columns=["a", "b"]), Y, "NaN"),
    "missing in a table": (pd.DataFrame({"a": pd.array([None] * ROWS, dtype="Int64")}), Y, "NaN"),
    "missing text": (pd.DataFrame({"a": [None] + ["b"] * (ROWS - 1)}), Y, "missing"),
    "text in y": (X, np.full((ROWS, 2), "a"), "convert string"),
    "other rows": (X, Y[:-1], "120 rows and y has shape"),
    "a vector X": (X[:, 0], Y, "2D array"),
    "a stack of y": (X, np.zeros((ROWS, 2, 2)), "dim"),
    "no targets": (X, np.zeros((ROWS, 0)), "0 feature"),
    "no rows": (X[:0], Y[:0], "0 sample|minimum"),
    "no y": (X, None, "y"),
    "nine rows": (X[:9], Y[:9], "n_samples=9 is too few: at least 10"),
    "complex": (X.astype(complex), Y, "[Cc]omplex"),
    "columns of one name": (
        pd.DataFrame({"a": ["u"] * ROWS}).iloc[:, [0, 0]],
        Y,
        "several columns named",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_learnt_from_is_refused(name):
    x, y, match = REFUSED[name]
    with pytest.raises(ValueError, match=match):
        regressor().fit(x, y)


DISCRETE = np.column_stack([Y[:, 0] > 0, np.round(Y[:, 0])]).astype(float)
HARD = {
    "constant target": (X, np.column_stack([Y[:, 0], np.full(ROWS, 3.0)])),
    "all targets constant": (X, np.full((ROWS, 2), 0.1)),
    "constant input": (np.column_stack([X, np.full(ROWS, 0.1)]), Y),
    "duplicated inputs": (np.column_stack([X, X]), Y),
    "duplicated targets": (X, np.column_stack([Y[:, 0], Y[:, 0]])),
    "one target": (X, Y[:, :1]),
    "one input": (X[:, :1], Y),
    "one unusual input": (spoiled(X, 1e12), Y),
    "one unusual target": (X, spoiled(Y, 1e12)),
    "ten rows": (X[:10], Y[:10]),
    "fewer rows than a batch": (X[:20], Y[:20]),
    "whole numbers": ((10 * X).astype(int), (10 * Y).astype(int)),
    "truth values": (X > 0, Y > 0),
    "discrete targets": (X, DISCRETE),
    "repeated rows": (np.repeat(X[:4], 30, 0), np.repeat(Y[:4], 30, 0)),
    "large numbers": (1e30 * X, 1e30 * Y),
    "lists": (X.tolist(), Y.tolist()),
    "Fortran order": (np.asfortranarray(X), np.asfortranarray(Y)),
}


# Every table once, with a penalty that has densities or one of the pool, in turn.
@pytest.mark.parametrize(
    ("name", "preranks"), [(n, ("marginal+hdr", "copula")[i % 2]) for i, n in enumerate(HARD)]
)
def test_hard_data_gives_finite_predictions(name, preranks):
    x, y = HARD[name]
    model = regressor(preranks=preranks, lr=0.02).fit(x, y)
    assert torch.isfinite(model.theta_).all()
    for found in (model.predict(x), model.predict_quantiles(x), model.sample(x, 5)):
        assert np.isfinite(found).all()
    assert np.isfinite(model.score(x, y))
    assert np.isfinite(model.predict_dist(x).variance.numpy()).all()


def test_a_constant_target_is_forecast_as_it_is():
    x, y = HARD["constant target"]
    model = regressor().fit(x, y)
    assert model.rounding_.words(("moves", "stands")) == ("stands: always 3",)
    dist = model.predict_dist(x)
    assert np.array_equal(model.predict(x)[:, 1], y[:, 1])
    assert bool((dist.variance[:, 1] == 0).all())
    assert bool((dist.variance[:, 0] > 0).all())
    z = pit(dist, torch.from_numpy(y), "marginal", generator=0)[:, 1:]
    assert float(pce(z)) < 2 * pce_floor(n=len(y))  # atoms have random PITs


def test_inputs_far_away_are_held_to_what_was_seen(model):
    far = np.array([[1e9, -1e9], [-1e9, 1e9]])
    corners = np.array([[X[:, 0].max(), X[:, 1].min()], [X[:, 0].min(), X[:, 1].max()]])
    # The range is that of the training rows, a little inside that of all rows.
    spread = model.predict_dist(corners).variance.sqrt().numpy()
    assert (abs(model.predict(far) - model.predict(corners)) < 0.5 * spread).all()


@pytest.mark.parametrize(
    ("x", "y"), [(X[:-1], Y), (X, Y[:, :2]), (X, Y[:, 0]), (X, spoiled(Y, np.nan)), (X[:, :1], Y)]
)
def test_scores_of_other_shapes_are_refused(model, x, y):
    for use in (model.score, model.diagnose):
        with pytest.raises(ValueError, match=r"rows|NaN|features"):
            use(x, y)


# --- progress --------------------------------------------------------------------------------


def test_a_bar_on_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = regressor(verbose=1, max_epochs=3).fit(X, Y)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "training" in captured.err
    assert "3/3" in captured.err
    quiet = regressor(verbose=0, max_epochs=3).fit(X, Y)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    np.testing.assert_array_equal(shown.predict(X), quiet.predict(X))


def test_no_terminal_is_no_error(capsys, monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    regressor(verbose=1).fit(X, Y)
    assert "\x1b" not in capsys.readouterr().err


def test_an_interrupted_save_leaves_the_older_model(tmp_path, monkeypatch, model):
    model.save(tmp_path)
    other = plain(random_state=1)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("prerank.estimators.persistence.write_json", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other.save(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).predict(X), model.predict(X))
    other.save(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).predict(X), other.predict(X))
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_targets_are_put_in_the_order_of_fit(tmp_path):
    names = [f"t{d}" for d in range(Y.shape[1])]
    table = pd.DataFrame(Y, columns=names)
    fitted = regressor().fit(X, table)
    fitted.save(tmp_path)
    for model in (fitted, load_model(tmp_path)):
        assert model.score(X, table[names[::-1]]) == model.score(X, table)
        with pytest.raises(InputError, match="y has the columns"):
            model.score(X, table.rename(columns={"t0": "other"}))
    assert plain().score(X, table[names[::-1]]) != fitted.score(X, table)


def test_masked_targets_are_refused():
    with pytest.raises(InputError, match="y has masked values"):
        regressor().fit(X, np.ma.masked_array(Y, mask=Y > 1))


def test_numbers_of_numpy_can_be_saved(tmp_path):
    options = {"n_components": np.int64(2), "hidden": np.array([8, 8]), "random_state": np.int64(3)}
    model = regressor(**options).fit(X, Y)
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert again.random_state == 3
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["X", "y"])
def test_repeated_names_are_refused(name):
    tables = {"X": pd.DataFrame(X), "y": pd.DataFrame(Y)}
    tables[name].columns = ["a"] * tables[name].shape[1]
    with pytest.raises(InputError, match=f"{name} has several columns named a"):
        regressor().fit(tables["X"], tables["y"])
