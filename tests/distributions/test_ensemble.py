"""Ensemble: raw samples as a distribution."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank import Ensemble
from prerank.errors import InputError, InputTypeError, NotApplicableError, ShapeError


def members(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


class Table:
    """Something with `to_numpy`, as pandas, polars and xarray have."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


CONVERSIONS = {
    "numpy": lambda a: a,
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "fortran order": np.asfortranarray,
    "torch": torch.from_numpy,
    "table": Table,
    "list": lambda a: a.tolist(),
    "list of frames": lambda a: [pd.DataFrame(part) for part in a],
}


@pytest.mark.parametrize("kind", CONVERSIONS)
def test_inputs(kind):
    values = members(6, 5, 3)
    dist = Ensemble(CONVERSIONS[kind](values))
    assert dist.batch_shape == (5,)
    assert dist.event_shape == (3,)
    assert dist.weights is None
    assert np.array_equal(dist.samples.numpy(), values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_follows_the_samples(dtype):
    dist = Ensemble(members(6, 5, 3).astype(dtype), np.arange(1, 7))
    expected = torch.from_numpy(np.zeros(1, dtype)).dtype
    results = (dist.samples, dist.weights, dist.mean, dist.covariance_matrix, dist.sample())
    assert {result.dtype for result in results} == {expected}


def test_integer_arrays_are_counts():
    assert Ensemble(np.arange(12).reshape(2, 3, 2)).samples.dtype == torch.float64


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 2, 5)])
def test_weights_are_normalised(shape):
    batch = shape[1:] or (5,)
    raw = np.random.default_rng(1).uniform(1, 9, size=shape)
    dist = Ensemble(members(6, *batch, 3), raw)
    full = raw.reshape(6, *[1] * len(batch)) if len(shape) == 1 else raw
    expected = np.broadcast_to(full / full.sum(0), (6, *batch))
    np.testing.assert_allclose(dist.weights.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [(5,), (2, 5)])
def test_moments_agree_with_numpy(batch, weighted):
    values = members(8, *batch, 3)
    weights = np.random.default_rng(1).uniform(size=(8, *batch)) if weighted else None
    dist = Ensemble(values, weights)
    for row in np.ndindex(*batch):
        points = values[(slice(None), *row)]
        share = None if weights is None else weights[(slice(None), *row)]
        covariance = np.cov(points.T, aweights=share, ddof=0)
        mean = np.average(points, axis=0, weights=share)
        np.testing.assert_allclose(dist.mean[row], mean, rtol=1e-10)
        np.testing.assert_allclose(dist.covariance_matrix[row], covariance, rtol=1e-10)
        np.testing.assert_allclose(dist.variance[row], covariance.diagonal(), rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_sample_frequencies(weighted):
    size, rows, n = 4, 3, 20_000
    values = np.arange(size, dtype=float).reshape(size, 1, 1) + np.zeros((size, rows, 2))
    weights = np.random.default_rng(2).uniform(0.1, 1, (size, rows)) if weighted else None
    dist = Ensemble(values, weights)
    drawn = dist.sample((n,), generator=0)
    assert drawn.shape == (n, rows, 2)
    assert torch.equal(drawn[..., 0], drawn[..., 1])  # whole members, not single targets
    probs = torch.full((size, rows), 0.25).double() if weights is None else dist.weights
    for s in range(size):
        frequency = (drawn[..., 0] == s).double().mean(0)
        # 5 binomial standard errors.
        assert ((frequency - probs[s]).abs() < 5 * (probs[s] * (1 - probs[s]) / n).sqrt()).all()


def test_samples_are_independent_over_rows():
    n = 10_000
    values = np.stack([-np.ones((3, 1)), np.ones((3, 1))])  # mean 0, variance 1
    drawn = Ensemble(values).sample((n,), generator=0).squeeze(-1)
    cross = drawn.mT @ drawn / n
    off = ~torch.eye(3, dtype=torch.bool)
    assert (cross[off].abs() < 5 / n**0.5).all()


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_sample_shapes_and_seeds(shape):
    dist = Ensemble(members(6, 2, 5, 3))
    before = torch.get_rng_state()
    drawn = dist.sample(shape, generator=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert drawn.shape == (*shape, 2, 5, 3)
    assert torch.equal(dist.sample(shape, generator=1), drawn)
    assert not torch.equal(dist.sample(shape, generator=2), drawn)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [(5,), (2, 5), (3, 2, 5)])
def test_expand(batch, weighted):
    dist = Ensemble(members(6, 5, 3), np.arange(1, 7) if weighted else None)
    wide = dist.expand(batch)
    assert wide.batch_shape == batch
    assert wide.event_shape == (3,)
    torch.testing.assert_close(wide.mean, dist.mean.expand(*batch, 3))
    torch.testing.assert_close(wide.covariance_matrix, dist.covariance_matrix.expand(*batch, 3, 3))


def test_expand_of_one_row():
    dist = Ensemble(members(6, 1, 3)).expand((4,))
    assert torch.equal(dist.samples[:, 3], dist.samples[:, 0])
    assert dist.batch_shape == (4,)


def test_gradients_pass_through():
    samples = torch.randn(6, 5, 3, requires_grad=True)
    dist = Ensemble(samples)
    (gradient,) = torch.autograd.grad(dist.mean.sum(), samples)
    torch.testing.assert_close(gradient, torch.full_like(samples, 1 / 6))
    assert not dist.sample((2,)).requires_grad


def test_no_density():
    with pytest.raises(NotApplicableError, match="no density"):
        Ensemble(members(6, 5, 3)).log_prob(torch.zeros(5, 3))


GOOD = members(6, 5, 3)
BAD = {
    "one sample": ((GOOD[:1],), ShapeError, r"\(1, 5, 3\).*at least 2"),
    "no sample axis": ((GOOD[0],), ShapeError, r"\(S, \.\.\., N, D\).*\(5, 3\)"),
    "empty": ((GOOD[:, :0],), ShapeError, r"empty.*\(6, 0, 3\)"),
    "nan": ((np.where(GOOD > 2, np.nan, GOOD * np.nan),), InputError, "samples holds 90 NaN"),
    "text": ((np.array([[["a"]], [["b"]]]),), InputTypeError, "samples must hold real"),
    "integer tensor": ((torch.zeros(6, 5, 3).long(),), InputTypeError, "int64"),
    "ragged": (([[[1.0]], [[1.0, 2.0]]],), InputError, "rectangular"),
    "number of weights": ((GOOD, np.ones(5)), ShapeError, r"\(5,\).*\(6,\) or \(6, 5\)"),
    "shape of weights": ((GOOD, np.ones((6, 4))), ShapeError, r"\(6, 4\)"),
    "negative weight": ((GOOD, [-1.0, 1, 1, 1, 1, 1]), InputError, "non-negative"),
    "no weight": ((GOOD, np.zeros(6)), InputError, "positive number"),
    "nan weight": ((GOOD, [np.nan, 1, 1, 1, 1, 1]), InputError, "weights holds 1 NaN"),
    "device": ((torch.from_numpy(GOOD), torch.ones(6, device="meta")), InputError, "cpu.*meta"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_inputs(case):
    given, error, message = BAD[case]
    with pytest.raises(error, match=message):
        Ensemble(*given)
