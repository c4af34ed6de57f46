"""Draws of numpyro and bayesflow, and what ArviZ holds of them."""

import numpy as np
import pytest

from adapters.judging import judge, load, repair, repair_rows
from prerank.adapters import from_arviz, from_draws

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
SLOPES = np.array([[1.0, -0.5], [0.5, 1.0]])


# --- numpyro and arviz --------------------------------------------------------------------------


def rows(n, seed):
    """Inputs, and two targets with noise of .5."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X @ SLOPES + 0.5 * rng.normal(size=(n, 2))


@pytest.fixture(scope="module", params=[None, 0.25], ids=["right", "narrow"])
def bayesian(request):
    """Two regressions of numpyro, with noise that is estimated, or taken for half as large."""
    numpyro, infer = load("numpyro"), load("numpyro.infer")
    laws, random = load("numpyro.distributions"), load("jax.random")

    def model(X, y=None):
        slopes = numpyro.sample("slopes", laws.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        noise = request.param or numpyro.sample("noise", laws.HalfNormal(1.0))
        with numpyro.plate("rows", len(X)):
            numpyro.sample("y", laws.Normal(X @ slopes, noise).to_event(1), obs=y)

    sampler = infer.MCMC(
        infer.NUTS(model), num_warmup=200, num_samples=50, thinning=2, progress_bar=False
    )
    sampler.run(random.PRNGKey(0), *rows(2000, 0))
    X, y = rows(500, 1)
    predict = infer.Predictive(model, sampler.get_samples())
    return predict(random.PRNGKey(1), X), y, request.param is None


def test_numpyro(bayesian):
    draws, y, right = bayesian
    dist, observed = from_draws(draws, {"y": y})
    assert dist.samples.shape == (len(draws["y"]), 500, 2)
    np.testing.assert_array_equal(dist.samples, draws["y"])
    if right:
        judge(dist, observed)
    else:
        repair_rows(dist, observed, blamed="marginal location scale")


def tree_of(kind, draws, y):
    """What ArviZ makes of the same draws: one chain, dimensions with names."""
    groups = {
        "posterior_predictive": {"y": np.asarray(draws["y"])[None]},
        "observed_data": {"y": y},
    }
    dims = {"y": ["row", "place"]}
    if kind == "DataTree":
        return load("arviz_base").from_dict(groups, dims=dims)
    return load("arviz").from_dict(**groups, dims=dims)


@pytest.mark.parametrize("kind", ["DataTree", "InferenceData"])
def test_arviz(bayesian, kind):
    draws, y, right = bayesian
    tree = tree_of(kind, draws, y)
    assert type(tree).__name__ == kind
    samples, observed = from_arviz(tree)
    assert samples["y"].sizes == {"sample": len(draws["y"]), "row": 500, "place": 2}
    np.testing.assert_array_equal(samples["y"], draws["y"])
    if right:
        judge(samples, observed, target="place")
    else:
        repair(samples, observed, rows="row", blamed="marginal location scale", target="place")


# --- bayesflow ----------------------------------------------------------------------------------


def simulator(noise, seed):
    rng = np.random.default_rng(seed)

    def prior():
        return {"theta": rng.normal(size=2)}

    def seen(theta):
        return {"x": theta + noise * rng.normal(size=2)}

    return load("bayesflow").make_simulator([prior, seen])


def test_bayesflow(monkeypatch):
    """The posterior of a simulator, which is wrong for observations with more noise."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # on torch it switches gradients off everywhere
    bayesflow, keras = load("bayesflow"), load("keras")
    keras.utils.set_random_seed(0)
    network = bayesflow.networks.CouplingFlow(
        depth=3, transform="affine", subnet_kwargs={"widths": (32,)}
    )
    workflow = bayesflow.BasicWorkflow(
        simulator=simulator(0.5, 0),
        inference_network=network,
        inference_variables="theta",
        inference_conditions="x",
        standardize=None,
        initial_learning_rate=5e-3,
    )
    workflow.fit_offline(workflow.simulator.sample(4000), epochs=40, batch_size=200, verbose=0)

    def posterior(noise):
        truth = simulator(noise, 1).sample(400)
        draws = workflow.sample(num_samples=50, conditions={"x": truth["x"]})
        dist, theta = from_draws(draws, {"theta": truth["theta"]}, sample_axis=1)
        np.testing.assert_array_equal(dist.samples[3], draws["theta"][:, 3])
        return dist, theta

    judge(*posterior(0.5))
    repair_rows(*posterior(0.8), blamed="marginal")
