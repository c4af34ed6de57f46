"""Methods of calibration: heads, members and cross-fitting behind the face of the regressors."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from prerank import CalibrationHead, FlowRegressor, MixtureRegressor, load_model, nll
from prerank.distributions import affine
from prerank.errors import InputError
from prerank.estimators.model_page import fit_page
from prerank.training import Partition

SMALL = {"hidden": (8,), "max_epochs": 20, "lr": 0.02, "device": "cpu", "random_state": 0}
TARGETS = ["rain", "wind"]
SEED = int(np.random.RandomState(0).randint(2**31 - 1))  # of a regressor with random_state 0


def skewed(n, seed):
    """Targets with a skewed error, that one Gaussian predicts too wide on one side."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 1))
    common = random.exponential(size=(n, 1)) - 1
    noise = common + 0.5 * random.exponential(size=(n, 2))
    return pd.DataFrame(x, columns=["x"]), pd.DataFrame(10 * (x + noise), columns=TARGETS)


X, Y = skewed(400, 0)
X_TEST, Y_TEST = skewed(2000, 1)


def regressor(**options):
    return MixtureRegressor(1, **{**SMALL, **options})


@pytest.fixture(scope="module")
def model():
    return regressor(members=2).fit(X, Y)


def likelihood(model):
    return float(nll(model.predict_dist(X_TEST), Y_TEST.to_numpy()).mean())


def test_the_head_is_the_default_and_improves_unseen_rows(model):
    assert MixtureRegressor().method == "head"
    assert isinstance(model.head_, CalibrationHead)
    assert (model.folds_, model.head_rows_, model.strength_) == (5, 400, 10.0)
    # A gain of .1 nats is many standard errors of 2,000 paired rows.
    assert likelihood(model) < likelihood(model.without_penalty()) - 0.1
    before = model.without_penalty().diagnose(X_TEST, Y_TEST, preranks="marginal+hdr").table
    after = model.diagnose(X_TEST, Y_TEST, preranks="marginal+hdr").table
    assert after.excess.mean() < before.excess.mean()
    assert "rain" in repr(model.head_.target_names_)


def test_everything_uses_the_calibrated_distribution(model):
    dist = model.predict_dist(X_TEST)
    inner = model._forecast(model._standard_inputs(X_TEST))
    loc, scale = model._units
    expected = affine(model.head_(inner), loc, scale)
    torch.testing.assert_close(dist.mean, expected.mean)
    np.testing.assert_allclose(model.predict(X_TEST), expected.mean.numpy())
    margins = expected.project(torch.eye(2, dtype=torch.float64))
    quantiles = torch.from_numpy(model.predict_quantiles(X_TEST, [0.2])[0])
    torch.testing.assert_close(margins.cdf(quantiles), torch.full_like(quantiles, 0.2))
    assert model.score(X_TEST, Y_TEST) != model.without_penalty().score(X_TEST, Y_TEST)
    draws = model.predict_dist(X_TEST[:5]).sample((3,), generator=1)
    np.testing.assert_array_equal(model.sample(X_TEST[:5], 3, random_state=1), draws)


def test_members_are_one_mixture():
    ensemble = regressor(method="none", members=3).fit(X, Y)
    assert ensemble.head_ is None
    assert ensemble.predict_dist(X).logits.shape == (400, 3)
    one = regressor(method="none").fit(X, Y)
    assert torch.equal(ensemble.theta_[:1], one.theta_)  # the first member is the single network
    # The logarithm is concave: a mixture is better than its members are on average.
    each = []
    for theta in ensemble.theta_.split(1):
        one.theta_ = theta
        each.append(likelihood(one))
    assert likelihood(ensemble) < np.mean(each)


def test_a_network_is_as_without_the_new_methods(tmp_path):
    likelihood_alone = regressor(method="none").fit(X, Y)
    head = regressor(folds=0, strength=0.0).fit(X, Y)
    assert torch.equal(head.theta_, likelihood_alone.theta_)
    assert (head.folds_, head.head_rows_) == (0, 80)
    crossed = regressor(folds=5, strength=0.0).fit(X, Y)
    # Up to rounding of a stack of five networks in float32.
    torch.testing.assert_close(crossed.theta_, likelihood_alone.theta_, rtol=1e-3, atol=1e-3)
    network = regressor(method="network", strength=5.0, max_epochs=20).fit(X, Y)
    assert torch.equal(network.without_penalty().theta_, likelihood_alone.theta_)
    likelihood_alone.save(tmp_path / "none")
    network.save(tmp_path / "network")
    same = load_model(tmp_path / "none").without_penalty()
    assert torch.equal(same.theta_, likelihood_alone.theta_)
    with pytest.raises(InputError, match="is not saved: fit again"):
        load_model(tmp_path / "network").without_penalty()


def test_the_seed_decides_everything():
    options = {"max_epochs": 2, "folds": 3, "preranks": "marginal"}
    one, again, other = (
        regressor(**options, random_state=seed).fit(X[:90], Y[:90]) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.predict(X), again.predict(X))
    assert not np.allclose(other.predict(X), one.predict(X))


@pytest.mark.parametrize("kind", ["groups", "time"])
def test_rows_that_belong_together(kind):
    """A head that saw the rest of a group would believe in what the network learnt by heart."""
    labels = np.repeat(np.arange(20), 5)
    model = regressor(max_epochs=2, folds=4, strength=0.0).fit(X[:100], Y[:100], **{kind: labels})
    assert (model.folds_, model.head_rows_) == (4, 100)
    rows = Partition.crossed(100, folds=4, apart=False, seed=SEED, **{kind: labels}).splits[0][0]
    expected = X.to_numpy()[rows].mean()
    assert model.x_scaler_.loc.item() == pytest.approx(expected, rel=1e-6)
    if kind == "groups":  # fewer groups than the folds of the default
        assert regressor(max_epochs=1).fit(X[:60], Y[:60], groups=labels[:60] % 4).folds_ == 4
    with pytest.raises(InputError, match=kind):
        regressor().fit(X, Y, **{kind: labels[:9]})


def test_few_rows_have_no_head():
    with pytest.warns(UserWarning, match="3 rows are too few"):
        model = regressor().fit(X[:15], Y[:15])
    assert (model.head_, model.strength_, model.folds_) == (None, 0.0, 0)


def test_save_and_load(tmp_path, model):
    model.save(tmp_path / "model")
    foreign = tmp_path / "model" / "bead.safetensors"  # looks like the hash of a weight file
    foreign.write_bytes(b"not ours")
    model.save(tmp_path / "model")  # replaces its own two files, and no others
    assert foreign.read_bytes() == b"not ours"
    foreign.unlink()
    assert len(list((tmp_path / "model").glob("*.safetensors"))) == 2
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()
    assert (again.head_rows_, again.folds_) == (400, 5)
    assert again.head_.report() == model.head_.report()
    bare, known = again.without_penalty(), model.without_penalty()
    np.testing.assert_array_equal(bare.predict(X), known.predict(X))


@pytest.mark.parametrize("damage", ["change", "remove", "swap"])
def test_a_damaged_head_is_refused(tmp_path, model, damage):
    model.save(tmp_path)
    settings = json.loads((tmp_path / "model.json").read_text())
    path = tmp_path / settings["head"]
    if damage == "remove":
        path.unlink()
    elif damage == "change":
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    else:
        path.write_bytes((tmp_path / settings["weights"]).read_bytes())
    with pytest.raises(InputError, match=r"incomplete|does not match the hash"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "bend"}, "method must be one of"),
        ({"method": "network", "members": 2}, "too wide"),
        ({"method": "network", "folds": 5}, "folds=5 needs method 'head'"),
        ({"method": "none", "preranks": "hdr"}, "preranks='hdr' needs"),
        ({"method": "none", "strength": 5.0}, r"strength=5\.0 needs"),
        ({"budget": 0.5}, r"budget=0\.5 needs method 'network' with strength 'auto'"),
        ({"budget": None}, "budget must be a number"),
        ({"nll_budget": 0.1}, r"nll_budget=0\.1 needs method 'network'"),
        ({"method": "network", "nll_budget": 0.1}, "with strength 'auto'"),
        ({"members": 0}, "members"),
        ({"folds": 2}, "folds"),
        ({"preranks": "nonsense"}, "nonsense"),
        ({"strength": -1.0}, "strength"),
    ],
)
def test_arguments_without_meaning(options, match):
    with pytest.raises(InputError, match=match):
        regressor(**options).fit(X, Y)


def test_a_budget_of_likelihood_limits_the_strength():
    common = {"method": "network", "strength": "auto", "preranks": "marginal", "max_epochs": 10}
    free = regressor(**common, nll_budget=None).fit(X, Y).selection_
    assert free.trace[0].nll_change == 0
    assert free.strength > 0
    dearest = max(row.nll_change for row in free.trace if row.within_budget)
    bound = regressor(**common, nll_budget=dearest / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # where nothing qualifies
        trace = bound.fit(X, Y).selection_.trace
    assert all(row.nll_change <= dearest / 2 for row in trace if row.within_budget)
    assert bound.selection_.nll_budget == dearest / 2


def test_the_page_says_what_the_head_changed(model):
    page, _ = fit_page(model, X_TEST[:300], Y_TEST[:300], title="model")
    text = str(page)
    for words in ("400 rows that its networks were not fitted to", "5 folds", "members"):
        assert words in text
    assert model.head_.report().splitlines()[0] in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*too few for a calibration head")
@parametrize_with_checks([regressor(max_epochs=1, strength=0.0)])
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_flows_have_heads_and_members(tmp_path):
    pytest.importorskip("zuko")
    options = {**SMALL, "max_epochs": 1, "lr": 1e-4}
    # Nothing is learnt in so few steps, and a forecast as wide as the targets is far too wide.
    close = (10 * X.to_numpy() + np.random.default_rng(0).normal(size=(400, 2))) / 100
    x, y = X[:200] * 0, close[:200]
    y = y - y.mean(0) + 3
    model = FlowRegressor(bins=4, members=2, strength=0.0, **options).fit(x, y)
    assert (model.folds_, model.head_rows_) == (0, 40)
    observed = torch.from_numpy(y[:50])
    before, after = (
        m.predict_dist(x[:50]).log_prob(observed).mean() for m in (model.without_penalty(), model)
    )
    assert after > before + 0.1
    quantiles = model.predict_quantiles(x[:50], [0.1, 0.5, 0.9])
    draws = model.sample(x[:50], 4000, random_state=0)
    # Shares of 4,000 draws below a quantile of 2,048 points: standard errors .005 and .007.
    shares = (draws < quantiles[:, None]).mean(1)
    assert np.abs(shares - np.array([0.1, 0.5, 0.9])[:, None, None]).max() < 0.05
    np.testing.assert_allclose(model.predict(x[7:9]), model.predict(x[:50])[7:9], rtol=1e-9)
    model.save(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).predict(x[:9]), model.predict(x[:9]))
    with pytest.raises(InputError, match="folds must be 0 or None"):
        FlowRegressor(folds=5, **options).fit(x, y)
