"""DataFrames out: names of the targets, the index of the rows, and the numbers of the arrays."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prerank import FlowRegressor, MixtureRegressor, PrerankError, load_model
from prerank.datasets import AR1Regression

SMALL = {"method": "none", "hidden": (8,), "max_epochs": 2, "device": "cpu", "random_state": 0}
X, Y = (part.numpy() for part in AR1Regression(dim=2).sample(120, generator=0))
ROWS = pd.date_range("2026-01-01", periods=len(X))
INPUTS = pd.DataFrame(X, ROWS, columns=[f"x{j}" for j in range(X.shape[1])])
TARGETS = pd.DataFrame(Y, ROWS, columns=["rain", "wind"])


def regressor(kind=MixtureRegressor):
    if kind is FlowRegressor:
        pytest.importorskip("zuko")
        return FlowRegressor(**SMALL)
    return MixtureRegressor(2, **SMALL)


@pytest.mark.parametrize("kind", [MixtureRegressor, FlowRegressor])
def test_tables_have_names_and_index_and_the_numbers_of_the_arrays(kind):
    model = regressor(kind).fit(INPUTS, TARGETS)
    inputs = INPUTS[::-1]
    arrays = model.predict(inputs), model.predict_quantiles(inputs), model.predict_interval(inputs)
    assert all(isinstance(array, np.ndarray) for array in arrays)
    model.set_output(transform="pandas")
    mean, quantiles, ends = (
        model.predict(inputs),
        model.predict_quantiles(inputs),
        model.predict_interval(inputs),
    )
    for table in (mean, quantiles, ends):
        assert table.index.equals(inputs.index)
    assert list(mean.columns) == ["rain", "wind"]
    np.testing.assert_array_equal(mean, arrays[0])
    assert quantiles.columns.names == ["target", "quantile"]
    for q, level in enumerate(quantiles["wind"].columns):
        np.testing.assert_array_equal(quantiles["wind", level], arrays[1][q, :, 1])
    assert ends.columns.to_list() == [
        (target, end) for target in ("rain", "wind") for end in ("lower", "upper")
    ]
    np.testing.assert_array_equal(ends["rain", "upper"], arrays[2][:, 0, 1])
    assert isinstance(model.sample(inputs, 3), np.ndarray)
    np.testing.assert_array_equal(model.set_output(transform="default").predict(inputs), arrays[0])


def test_a_vector_gives_a_series():
    model = regressor().set_output(transform="pandas").fit(X, TARGETS["wind"])
    mean = model.predict(INPUTS.to_numpy())
    assert mean.name == "wind"
    assert mean.index.equals(pd.RangeIndex(len(X)))
    assert model.predict_quantiles(X, [0.5]).columns.to_list() == [0.5]
    joint = model.predict_interval(X, joint=True, random_state=0)
    assert joint.columns.to_list() == ["lower", "upper"]


def test_the_choice_stays_with_clones_and_in_pipelines_but_is_not_saved(tmp_path):
    model = clone(regressor().set_output(transform="pandas").set_output())
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    pipeline.fit(INPUTS, TARGETS)
    assert pipeline.predict(INPUTS).index.equals(ROWS)
    pipeline[-1].save(tmp_path / "model")
    assert isinstance(load_model(tmp_path / "model").predict(INPUTS), np.ndarray)


def test_other_containers_are_refused():
    with pytest.raises(PrerankError, match="transform must be 'default', 'pandas' or None"):
        regressor().set_output(transform="polars")


def test_a_quantile_function_is_asked_of_the_regressor():
    dist = regressor().fit(X, Y).predict_dist(X)
    with pytest.raises(PrerankError, match="predict_quantiles"):
        dist.icdf(0.5)
