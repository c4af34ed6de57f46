"""The law of the error of a right predictor, and p-values from it."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, kstest

from prerank import null_pce, pce, pce_floor
from prerank.calibration import component_null, p_value
from prerank.calibration.nulls import _null
from prerank.errors import InputError, PrerankError

ALPHA = 1e-3  # a test that is right fails once in a thousand seeds; the seeds are fixed


def same_law(first, second):
    """p-value of Kolmogorov and Smirnov; rounding must not split the ties of a lattice."""
    return ks_2samp(np.round(first, 9), np.round(second, 9)).pvalue


@pytest.mark.parametrize("levels", [3, 100])
@pytest.mark.parametrize("n", [1, 20, 500])
def test_mean_of_the_null_is_the_floor(n, levels):
    null = null_pce(n, levels=levels)
    error = null.std() / math.sqrt(len(null))
    assert abs(null.mean() - pce_floor(n, levels=levels)) < 4 * error + 1e-12


def test_null_is_reproducible_sorted_and_read_only():
    null = null_pce(33, n_null=500)
    assert null.shape == (500,)
    assert (np.diff(null) >= 0).all()
    with pytest.raises(ValueError, match="read-only"):
        null[0] = 0.0
    _null.cache_clear()
    again = null_pce(33, n_null=500)
    assert again is not null
    np.testing.assert_array_equal(null, again)
    assert null_pce(33, n_null=500) is again  # cached
    assert len(null_pce(33)) == 50_000


def test_null_leaves_global_generators_alone():
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    null_pce(34, n_null=10)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(torch_before, torch.get_rng_state())


@pytest.mark.parametrize("levels", [11, 100])
@pytest.mark.parametrize("n", [10, 200])
def test_null_is_the_law_of_the_pce_of_uniforms(n, levels):
    generator = torch.Generator().manual_seed(n)
    direct = pce(torch.rand(n, 5000, generator=generator, dtype=torch.float64), levels=levels)
    direct, null = direct.numpy(), null_pce(n, levels=levels)
    assert same_law(direct, null) > ALPHA
    # The comparison can tell: for another n it fails.
    assert same_law(direct, null_pce(2 * n, levels=levels)) < 1e-6


P_VALUES = [
    (0.5, [0.1, 0.2, 0.3], 1 / 4),
    (0.0, [0.1, 0.2, 0.3], 4 / 4),
    (0.2, [0.1, 0.2, 0.3], 3 / 4),  # a tie counts
    (0.2 + 1e-14, [0.1, 0.2, 0.3], 3 / 4),  # so does one up to rounding
    (0.2 + 1e-9, [0.1, 0.2, 0.3], 2 / 4),
    (0.2, [0.2] * 9, 10 / 10),
    (1.0, [0.0] * 999, 1 / 1000),
]


@pytest.mark.parametrize(("observed", "null", "expected"), P_VALUES)
def test_p_value(observed, null, expected):
    assert p_value(observed, null) == pytest.approx(expected, abs=1e-15)
    assert p_value(observed, np.array(null)[::-1]) == p_value(observed, null)


def test_p_values_of_a_right_predictor_are_uniform():
    generator = torch.Generator().manual_seed(5)
    errors = pce(torch.rand(100, 2000, generator=generator, dtype=torch.float64))
    null = null_pce(100)
    assert kstest([p_value(float(e), null) for e in errors], "uniform").pvalue > ALPHA


# Several components

ROWS, POOL = 60, 990  # ten members of each pool between any two of 100 levels


def pools(components, *, dependent, seed=0):
    """Pools whose members are spread evenly, so that a random one is uniform on the levels."""
    generator = torch.Generator().manual_seed(seed)
    even = (torch.arange(POOL, dtype=torch.float64) + 0.5) / POOL

    def column():
        order = torch.rand(ROWS, POOL, generator=generator).argsort(-1)
        return even[order].T  # (POOL, ROWS)

    columns = [column()] * components if dependent else [column() for _ in range(components)]
    pool = torch.stack(columns, -1)
    return pool[0], pool[1:]


def replicates(components, *, dependent, seed=1, n_null=4000):
    z, null_pits = pools(components, dependent=dependent)
    return component_null(z, null_pits, n_null=n_null, generator=seed).numpy()


def test_identical_components_have_the_law_of_one():
    null = null_pce(ROWS)
    one, three = replicates(1, dependent=True), replicates(3, dependent=True)
    np.testing.assert_allclose(one, three, rtol=1e-12)  # same choices, same values
    assert one.shape == (4000,)
    assert one.dtype == np.float64
    assert same_law(three, null) > ALPHA


def test_independent_components_spread_less():
    null = null_pce(ROWS)
    four = replicates(4, dependent=False)
    error = four.std() / math.sqrt(len(four))
    assert abs(four.mean() - pce_floor(ROWS)) < 4 * error
    assert four.std() == pytest.approx(null.std() / 2, rel=0.06)  # sqrt(4); 5 standard errors
    direct = np.random.default_rng(3).choice(null, (4000, 4)).mean(1)
    assert same_law(four, direct) > ALPHA


def test_the_observation_is_one_of_the_pool():
    z, null_pits = torch.zeros(1, 1, dtype=torch.float64), torch.ones(3, 1, 1, dtype=torch.float64)
    null = component_null(z, null_pits, levels=3, n_null=4000, generator=0)
    # One time in four z = 0 is chosen (error 1.5/3), else z = 1 (error 0.5/3).
    share = float((null > 0.4).double().mean())
    assert set(np.round(null.tolist(), 6)) == {0.166667, 0.5}
    assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 4000)


def test_replicates_are_reproducible_and_do_not_depend_on_chunks(monkeypatch):
    first = replicates(2, dependent=False, n_null=100)
    np.testing.assert_array_equal(first, replicates(2, dependent=False, n_null=100))
    assert (first != replicates(2, dependent=False, n_null=100, seed=2)).any()
    monkeypatch.setattr("prerank.calibration.nulls._CHUNK_VALUES", 7 * ROWS * 2)
    np.testing.assert_allclose(first, replicates(2, dependent=False, n_null=100), rtol=1e-12)


BAD = [
    ((60,), (9, 60)),
    ((60, 2), (9, 60, 3)),
    ((60, 2), (9, 50, 2)),
    ((60, 2), (60, 2)),
    ((3, 60, 2), (9, 3, 60, 2)),
]


@pytest.mark.parametrize(("z", "null_pits"), BAD)
def test_shapes_that_do_not_fit(z, null_pits):
    with pytest.raises(PrerankError) as caught:
        component_null(torch.rand(z), torch.rand(null_pits))
    assert str(z) in str(caught.value)
    assert str(null_pits) in str(caught.value)


def test_p_value_of_nothing_is_nothing():
    assert np.isnan(p_value(float("nan"), [0.1, 0.2]))
    for null in ([], [0.1, float("nan")], [[0.1]]):
        with pytest.raises(InputError, match="null"):
            p_value(0.5, null)
