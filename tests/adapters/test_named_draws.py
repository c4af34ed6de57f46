"""Draws of variables by name, and groups of a DataTree; no library of theirs is needed."""

import numpy as np
import pytest
import torch
import xarray as xr

from adapters.judging import judge
from prerank import diagnose
from prerank.adapters import Labelled, from_arviz, from_draws
from prerank.errors import PrerankError

S, N = 7, 300
RNG = np.random.default_rng(0)
FIRST, SECOND = RNG.normal(size=(S, N, 2, 3)), RNG.normal(size=(S, N))
TRUTH = {"noise": RNG.normal(size=N), "slopes": RNG.normal(size=(N, 2, 3))}
DRAWS = {"slopes": FIRST, "latent": np.zeros((S, N, 9)), "noise": SECOND}


@pytest.mark.parametrize("axis", [0, 1])
def test_variables_are_targets_in_the_order_of_y(axis):
    draws = {name: np.moveaxis(values, 0, axis) for name, values in DRAWS.items()}
    dist, y = found = from_draws(draws, TRUTH, sample_axis=axis)
    assert isinstance(found, Labelled)
    assert list(y.columns) == [
        "noise",
        *(f"slopes/{j}/{k}" for j in range(2) for k in range(3)),
    ]
    np.testing.assert_array_equal(dist.samples[..., 0], SECOND)
    np.testing.assert_array_equal(dist.samples[..., 1:], FIRST.reshape(S, N, 6))
    np.testing.assert_array_equal(y.iloc[:, 1:], TRUTH["slopes"].reshape(N, 6))
    judge(dist, y)
    judge(dist, 2 * y, blamed="marginal")


def test_tensors_are_arrays_too():
    dist, _ = from_draws({"noise": torch.zeros(S, N)}, {"noise": torch.ones(N)})
    assert (dist.batch_shape, dist.event_shape) == ((N,), (1,))


BAD = {
    "no dictionary": (lambda: from_draws(FIRST, TRUTH), "draws must be a dictionary"),
    "no names": (lambda: from_draws(DRAWS, TRUTH["noise"]), "y must be a dictionary"),
    "no draws": (lambda: from_draws(DRAWS, {"other": TRUTH["noise"]}), "variables 'other', and"),
    "nothing": (lambda: from_draws(DRAWS, {}), "y at least one"),
    "the other axis": (lambda: from_draws(DRAWS, TRUTH, sample_axis=1), r"\(7, 300\) with sampl"),
    "a third axis": (lambda: from_draws(DRAWS, TRUTH, sample_axis=2), "must be 0 or 1, got 2"),
    "a number": (lambda: from_draws({"a": np.zeros(3)}, {"a": 1.0}), r"y has \(\)"),
    "one axis": (lambda: from_draws({"a": np.zeros(3)}, {"a": np.zeros(3)}), r"\(3,\) with sampl"),
    "text": (lambda: from_draws({"a": ["x"]}, {"a": [1.0]}), r"draws\['a'\] must hold real"),
    "rows": (
        lambda: from_draws(DRAWS | {"noise": SECOND[:, 1:]}, TRUTH | {"noise": TRUTH["noise"][1:]}),
        r"differ in samples and rows: \[\(7, 299\), \(7, 300\)\]",
    ),
    "samples": (lambda: from_draws(DRAWS | {"noise": SECOND[1:]}, TRUTH), "differ in samples"),
    "no rows": (lambda: from_draws({"a": RNG.random((S, 0))}, {"a": RNG.random(0)}), "is empty"),
    "one name": (
        lambda: from_draws(DRAWS | {"slopes/0/1": SECOND}, TRUTH | {"slopes/0/1": TRUTH["noise"]}),
        "several targets are called 'slopes/0/1'",
    ),
    "rows are samples": (
        lambda: from_arviz(
            xr.DataTree.from_dict(
                {k: v.to_dataset().rename(row="sample") for k, v in tree().children.items()}
            )
        ),
        "has a dimension 'sample' beside 'chain', 'draw'",
    ),
    "no tree": (lambda: from_arviz(xr.Dataset()), "tree must be an xarray.DataTree"),
    "no group": (lambda: from_arviz(tree(), group="predictions"), "no group 'predictions'"),
    "no observations": (lambda: from_arviz(tree(), observed="seen"), "no group 'seen'"),
    "other names": (lambda: from_arviz(tree(name="z")), "has the variables 'y', 'more', and"),
}


def tree(name="y", chains=2):
    drawn = xr.DataArray(np.stack([SECOND] * chains), dims=["chain", "draw", "row"])
    drawn = drawn.assign_coords(chain=range(chains), draw=range(S), row=range(N))
    groups = {
        "posterior": xr.Dataset({"a": drawn.isel(row=0)}),
        "posterior_predictive": xr.Dataset({"y": drawn, "more": drawn}),
        "observed_data": xr.Dataset({name: ("row", TRUTH["noise"])}, {"row": range(N)}),
    }
    return xr.DataTree.from_dict(groups)


def test_chains_of_a_tree_become_samples():
    samples, y = from_arviz(tree(chains=1))
    assert list(samples.data_vars) == list(y.data_vars) == ["y"]
    assert samples["y"].dims == ("sample", "row")
    assert set(samples.coords) == {"row"}
    np.testing.assert_array_equal(samples["y"], SECOND)
    assert from_arviz(tree())[0].sizes["sample"] == 2 * S
    found = diagnose(samples, y)
    assert found.n == N
    assert found.verdict().failing == ()
    # Samples that are one dimension already stay as they are.
    flat = {name: node.to_dataset() for name, node in tree().children.items()}
    flat["posterior_predictive"] = samples
    again, _ = from_arviz(xr.DataTree.from_dict(flat))
    assert again.identical(samples)


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
