"""Spread targets: order kept, cells filled evenly, everything else left alone."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prerank.datasets import snap, spread_ties
from prerank.errors import InputError, ShapeError

F64 = torch.float64


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 100))
def test_different_values_keep_their_order(values, seed):
    y = torch.tensor(values, dtype=F64).unsqueeze(1)
    spread = spread_ties(y, generator=seed)
    smaller = y < y.mT
    assert bool((spread < spread.mT)[smaller].all())


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 100))
def test_values_that_occur_once_stay(values, seed):
    y = torch.tensor(values, dtype=F64)
    spread = spread_ties(y.unsqueeze(1), generator=seed).squeeze(1)
    _, place, counts = y.unique(return_inverse=True, return_counts=True)
    once = (counts == 1)[place]
    assert torch.equal(spread[once], y[once])


def test_cells_reach_to_the_middles_and_are_filled_evenly():
    n = 20_000
    y = torch.tensor([0.0, 1.0, 5.0], dtype=F64).repeat_interleave(n).unsqueeze(1)
    low, middle, high = spread_ties(y, generator=0).squeeze(1).split(n)
    for part, (a, b) in ((low, (-0.5, 0.5)), (middle, (0.5, 3.0)), (high, (3.0, 7.0))):
        assert a <= part.min()
        assert part.max() <= b
        uniform = ((part - a) / (b - a)).sort().values
        # Kolmogorov-Smirnov: beyond 1.95 / sqrt(n) one time in a thousand.
        gap = (uniform - (torch.arange(n) + 0.5) / n).abs().max()
        assert gap < 1.95 / n**0.5


def test_columns_have_values_of_their_own():
    y = torch.tensor([[0.0, 10.0], [0.0, 10.0], [1.0, 30.0], [1.0, 30.0]])
    spread = spread_ties(y, generator=0)
    assert spread.dtype == y.dtype
    assert bool((spread[:, 0].round() == y[:, 0]).all())
    assert bool(((spread[:, 1] - y[:, 1]).abs() <= 10).all())
    assert bool((spread != y).all())


def test_new_rows_fall_into_the_cells_of_the_reference():
    reference = torch.tensor([[0.0], [0.0], [1.0], [2.0]])
    spread = spread_ties(torch.tensor([[0.0], [2.0]]).repeat(500, 1), reference=reference)
    assert -0.5 <= spread[::2].min() < -0.4
    assert 0.4 < spread[::2].max() <= 0.5
    assert 2.4 < spread[1::2].max() <= 2.5


def test_a_constant_target_stays():
    y = torch.ones(5, 1)
    assert torch.equal(spread_ties(y, generator=0), y)


def test_the_seed_decides():
    y = torch.zeros(50, 2)
    y[::2] = 1
    assert torch.equal(spread_ties(y, generator=3), spread_ties(y, generator=3))
    assert not torch.equal(spread_ties(y, generator=3), spread_ties(y, generator=4))


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, list], ids=lambda kind: kind.__name__)
def test_tables_and_arrays_are_taken(kind):
    y = kind([[0.0, 1.0], [0.0, 2.0], [1.0, 3.0]])
    assert spread_ties(y, generator=0).shape == (3, 2)


def test_bad_input():
    with pytest.raises(ShapeError, match=r"\(N, D\)"):
        spread_ties(torch.zeros(3, 4, 2))
    with pytest.raises(ShapeError, match="reference"):
        spread_ties(torch.zeros(3, 2), reference=torch.zeros(3, 1))
    with pytest.raises(InputError, match="y"):
        spread_ties(torch.tensor([[0.0], [float("nan")]]))


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=20), st.lists(st.integers(-5, 5), min_size=1)
)
def test_samples_go_to_the_nearest_value(samples, values):
    known = torch.tensor(values, dtype=F64)
    found = snap(torch.tensor(samples, dtype=F64).unsqueeze(1), known.unsqueeze(1)).squeeze(1)
    for sample, value in zip(samples, found.tolist(), strict=True):
        assert value in values
        assert abs(sample - value) == pytest.approx(min(abs(sample - v) for v in values), abs=1e-12)


def test_samples_keep_their_shape():
    assert snap(torch.randn(7, 5, 2), torch.zeros(3, 2)).shape == (7, 5, 2)
    with pytest.raises(ShapeError, match="values"):
        snap(torch.randn(7, 5, 2), torch.zeros(3, 1))
