"""What users pass: seeds, one number for unrelated streams; arrays and tables; their labels."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from torch.distributions import Independent, Normal

from prerank import MixtureRegressor, diagnose, pit
from prerank.datasets import AR1Regression
from prerank.distributions import draw
from prerank.errors import InputTypeError, PrerankError, ShapeError
from prerank.inputs import as_generator, as_points, as_tensor, column_names
from truths import gaussian_mixture

PURPOSES = ["sample", "draw", "data", "null"]


def numbers(generator, n=20):
    return torch.randn(n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64, 2**100])
def test_a_seed_gives_each_purpose_a_stream_of_its_own(seed):
    streams = [numbers(as_generator(seed, purpose)) for purpose in PURPOSES]
    if 0 <= seed < 2**63:
        streams.append(numbers(torch.Generator().manual_seed(seed)))  # torch's own
    distinct = torch.cat(streams).unique()
    assert len(distinct) == 20 * len(streams)
    for purpose, stream in zip(PURPOSES, streams, strict=False):
        assert torch.equal(numbers(as_generator(seed, purpose)), stream)


def test_seeds_differ():
    seeds = [0, 1, 2, -1, -2, 2**32, 2**63, 2**64]
    first = torch.cat([numbers(as_generator(seed, "draw"), 1) for seed in seeds])
    assert len(first.unique()) == len(seeds)
    assert torch.equal(numbers(as_generator(np.int64(7), "draw")), numbers(as_generator(7, "draw")))


def test_generators_pass_through():
    generator = torch.Generator().manual_seed(0)
    for purpose in PURPOSES:
        assert as_generator(generator, purpose) is generator
        assert as_generator(None, purpose) is None


def test_draws_do_not_meet_the_noise_of_the_data():
    dist = gaussian_mixture(50, dim=2)
    y = dist.sample(generator=0)
    assert not bool((draw(dist, 50, generator=0).points == y).any())
    truth = AR1Regression(dim=2)
    x, y = truth.sample(50, generator=0)
    assert not bool((draw(truth.conditional(x), 50, generator=0).points == y).any())
    # With generators of one's own that is one's own business.
    same = [torch.Generator().manual_seed(0) for _ in range(2)]
    assert torch.equal(*(draw(dist, 2, generator=source).points for source in same))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ma.masked_array(np.zeros((5, 3)), mask=np.eye(5, 3)), "masked"),
        (torch.zeros(5, 3).to_sparse(), "sparse"),
    ],
)
def test_arrays_with_holes_are_refused(value, words):
    with pytest.raises(PrerankError, match=words):
        as_tensor(value, "y")


# --- labels of xarray ---------------------------------------------------------------------------

NAMES = ["wind", "rain"]


def observed(rows=30, dims=("time", "target"), **labels):
    """Standard normal pairs as a DataArray."""
    values = np.random.default_rng(0).normal(size=(rows, 2))
    return xr.DataArray(values, dims=dims, coords=labels)


def standard(rows, dim):
    return Independent(Normal(torch.zeros(rows, dim), torch.ones(rows, dim)), 1)


def test_the_last_dimension_of_a_dataarray_names_the_targets():
    y = observed(target=NAMES)
    table = diagnose(standard(30, 2), y, preranks="marginal", generator=0).table
    assert list(table["component"]) == ["all", *NAMES]
    x = xr.DataArray(np.random.default_rng(1).normal(size=(30, 3)), dims=["time", "input"])
    model = MixtureRegressor(1, method="none", hidden=(4,), max_epochs=1, random_state=0).fit(x, y)
    assert model.target_names_ == tuple(NAMES)


UNNAMED = {
    "no labels": observed(),
    "labels of rows alone": observed(time=np.arange(30.0)),
    "columns is no table's": observed(columns=("time", np.arange(30))),
}


@pytest.mark.parametrize("case", UNNAMED)
def test_targets_without_labels_are_numbered(case):
    assert column_names(UNNAMED[case], 2) == ["y0", "y1"]


def test_a_dimension_may_have_any_name():
    assert column_names(observed(dims=("rows", "columns"), columns=NAMES), 2) == NAMES
    assert column_names(observed(target=[850, 500]), 2) == ["850", "500"]
    assert column_names(observed(target=NAMES)[:, 0].rename("wind"), 1) == ["wind"]
    # A vector has rows, and no dimension of targets.
    assert column_names(observed(target=NAMES)[:1, 0].assign_coords(time=["Monday"]), 1) == ["y0"]


def test_a_dataset_is_refused_with_a_way_out():
    data = observed(target=NAMES).to_dataset("target")
    with pytest.raises(InputTypeError, match=r"y is an xarray.Dataset: .*adapters.named_forecast"):
        diagnose(standard(30, 2), data)
    array = data.to_dataarray().transpose(..., "variable")  # as the message says
    assert column_names(array, 2) == NAMES
    np.testing.assert_array_equal(as_tensor(array, "y"), observed())


# --- one target ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [torch.as_tensor, np.asarray, list, pd.Series])
def test_one_target_may_come_as_a_vector(make):
    values = np.random.default_rng(0).normal(size=30).astype(np.float32)
    dist = standard(30, 1)
    found = pit(dist, make(values), "marginal", generator=0)
    torch.testing.assert_close(found, pit(dist, values[:, None], "marginal", generator=0))


def test_a_vector_is_refused_for_several_targets():
    with pytest.raises(ShapeError, match=r"got \(30,\); one target has an axis too"):
        pit(standard(30, 2), torch.zeros(30), "marginal")
    with pytest.raises(ShapeError, match=r"y\[\.\.\., None\]"):
        as_points(np.zeros(3), "y")
    with pytest.raises(ShapeError, match=r"got \(3,\)$"):  # two axes short
        as_points(np.zeros(3), "samples", min_dims=3)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused(layout):
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=layout)
    with pytest.raises(InputTypeError, match="y is a nested tensor"):
        as_tensor(nested, "y")
