"""Problems whose conditional law is known: the samples follow it."""

import math

import pytest
import torch
from scipy import stats

from prerank import pce, pce_floor, pit
from prerank.datasets import AR1Regression
from prerank.errors import InputError, InputTypeError

N = 20_000


@pytest.mark.parametrize(
    "problem", [AR1Regression(), AR1Regression(3, -0.5, 2.0), AR1Regression(1)]
)
def test_samples_follow_the_law(problem):
    x, y = problem.sample(N, generator=1)
    assert x.dtype == y.dtype == torch.float64
    law = problem.conditional(x)
    white = torch.linalg.solve_triangular(
        law.scale_tril, (y - law.loc).unsqueeze(-1), upper=False
    ).squeeze(-1)
    # p-values of fixed seeds; 1e-4 is far from anything seen by chance in a handful of tests.
    for column in white.mT:
        assert stats.kstest(column.numpy(), "norm").pvalue > 1e-4
    for column in x.mT:
        assert stats.kstest(column.numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4
    if problem.dim > 1:
        correlation = torch.corrcoef(white.mT) - torch.eye(problem.dim, dtype=torch.float64)
        assert correlation.abs().max() < 5 / N**0.5
    for prerank in ("marginal", "hdr"):
        error = pce(pit(law, y, prerank, n_samples=50, generator=0))
        # The PCE of n uniforms has a standard deviation of half its expectation.
        assert (error < 3.5 * pce_floor(N)).all()


def test_the_law_is_the_one_that_is_documented():
    problem = AR1Regression(dim=3, correlation=0.6, spread=1.5)
    x = torch.tensor([[0.3, -0.2], [-1.0, 1.0]], dtype=torch.float64)
    law = problem.conditional(x)
    for row, (first, second) in enumerate(x.tolist()):
        scale = 1.5 * (0.5 + 0.25 * (second + 1))
        for d in range(3):
            assert float(law.loc[row, d]) == pytest.approx(math.sin(math.pi * first + d))
            for e in range(3):
                expected = scale**2 * 0.6 ** abs(d - e)
                assert float(law.covariance_matrix[row, d, e]) == pytest.approx(expected)


def test_two_correlations_share_their_margins():
    x, _ = AR1Regression().sample(10, generator=0)
    one, two = (AR1Regression(correlation=r).conditional(x) for r in (0.1, 0.9))
    assert torch.equal(one.loc, two.loc)
    torch.testing.assert_close(one.variance, two.variance)
    assert not torch.allclose(one.covariance_matrix, two.covariance_matrix)


def test_a_stack_of_inputs():
    law = AR1Regression(dim=2).conditional(torch.zeros(3, 5, 2))
    assert law.batch_shape == (3, 5)
    assert law.loc.dtype == torch.float32


def test_seeds():
    problem = AR1Regression()
    state = torch.get_rng_state()
    one, again, other = (problem.sample(20, generator=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dim": 0}, InputError),
        ({"dim": 2.0}, InputTypeError),
        ({"correlation": 1.0}, InputError),
        ({"correlation": -1.0}, InputError),
        ({"correlation": float("nan")}, InputError),
        ({"spread": 0.0}, InputError),
    ],
    ids=str,
)
def test_settings_are_checked(options, error):
    with pytest.raises(error, match=next(iter(options))):
        AR1Regression(**options)
