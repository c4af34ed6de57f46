"""Holm's correction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerank.calibration import holm
from prerank.errors import PrerankError

NAN = float("nan")

BY_HAND = [
    ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
    ([0.04, 0.03, 0.01], [0.06, 0.06, 0.03]),
    ([0.01, 0.02, 0.03, 0.04], [0.04, 0.06, 0.06, 0.06]),
    ([0.5], [0.5]),
    ([0.6, 0.7], [1.0, 1.0]),
    ([0.2, 0.2, 0.2], [0.6, 0.6, 0.6]),
    ([0.0, 1.0], [0.0, 1.0]),
    ([], []),
    ([0.01, NAN, 0.04], [0.02, NAN, 0.04]),  # a test that was not made costs nothing
    ([NAN, NAN], [NAN, NAN]),
]


@pytest.mark.parametrize(("p", "expected"), BY_HAND)
def test_by_hand(p, expected):
    np.testing.assert_allclose(holm(p), expected, rtol=1e-12)


def naive(p):
    """Step down: p[i] is rejected at its own adjusted value, for each i by the definition."""
    made = [v for v in p if not np.isnan(v)]
    ordered = sorted(made)
    m = len(made)
    return [
        NAN
        if np.isnan(v)
        else max(min((m - j) * ordered[j], 1.0) for j in range(m) if ordered[j] <= v)
        for v in p
    ]


P = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.5, 1.0, NAN])), max_size=12)


@given(P)
def test_definition_order_and_bounds(p):
    adjusted = holm(p)
    np.testing.assert_allclose(adjusted, naive(p), rtol=1e-12)
    values = np.array(p, dtype=float)
    made = ~np.isnan(values)
    np.testing.assert_array_equal(np.isnan(adjusted), ~made)
    assert (adjusted[made] >= values[made]).all()
    bonferroni = np.minimum(made.sum() * values[made], 1)
    assert (adjusted[made] <= bonferroni * (1 + 1e-12)).all()
    order = np.argsort(values[made], kind="stable")
    assert (np.diff(adjusted[made][order]) >= 0).all()


@pytest.mark.parametrize("p", [[0.1, 1.1], [-0.1], [[0.1, 0.2]], 0.5])
def test_what_is_not_a_vector_of_p_values(p):
    with pytest.raises(PrerankError, match="p_values"):
        holm(p)
