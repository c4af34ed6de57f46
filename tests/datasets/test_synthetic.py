"""Problems whose conditional law is known: the samples follow it."""

import math

import pytest
import torch
from scipy import stats

from prerank import pce, pce_floor, pit
from prerank.datasets import AR1Regression, OutlierRegression
from prerank.errors import InputError, InputTypeError

N = 10_000
NORMAL = [AR1Regression(), AR1Regression(3, -0.5, 2.0), AR1Regression(1)]
OUTLIERS = [
    OutlierRegression(),
    OutlierRegression(factor=5.0, outlier_correlation=-0.5),
    OutlierRegression(dim=2, share=0.3, shift=4.0),
]


@pytest.mark.parametrize("problem", [NORMAL[1], *OUTLIERS[1:]], ids=str)
def test_samples_follow_the_law(problem):
    x, y = problem.sample(N, generator=1)
    assert x.dtype == y.dtype == torch.float64
    # p-values of fixed seeds; 1e-4 is far from anything seen by chance in a handful of tests.
    for column in x.mT:
        assert stats.kstest(column.numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4
    law = problem.conditional(x)
    for prerank in ("marginal", "location", "hdr") + (("scale",) if problem.dim > 1 else ()):
        error = pce(pit(law, y, prerank, n_samples=50, generator=0))
        # The PCE of n uniforms has a standard deviation of half its expectation.
        assert (error < 3.5 * pce_floor(N)).all(), prerank


@pytest.mark.parametrize("problem", NORMAL, ids=str)
def test_white_noise_is_left_of_normal_targets(problem):
    x, y = problem.sample(N, generator=1)
    law = problem.conditional(x)
    white = torch.linalg.solve_triangular(
        law.scale_tril, (y - law.loc).unsqueeze(-1), upper=False
    ).squeeze(-1)
    for column in white.mT:
        assert stats.kstest(column.numpy(), "norm").pvalue > 1e-4
    if problem.dim > 1:
        correlation = torch.corrcoef(white.mT) - torch.eye(problem.dim, dtype=torch.float64)
        assert correlation.abs().max() < 5 / N**0.5


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


def test_the_law_of_outliers_is_the_one_that_is_documented():
    problem = OutlierRegression(3, 0.2, 4.0, 1.5, 0.6, -0.3)
    x = torch.tensor([[0.3, -0.2], [-1.0, 1.0]], dtype=torch.float64)
    law = problem.conditional(x)
    parts = law.component_distribution
    torch.testing.assert_close(
        law.mixture_distribution.probs, torch.tensor([[0.8, 0.2]] * 2, dtype=torch.float64)
    )
    for row, (first, second) in enumerate(x.tolist()):
        scale = math.exp(second / 2)
        for part, (factor, lift, r) in enumerate([(1, 0, 0.6), (4.0, 1.5, -0.3)]):
            for d in range(3):
                mean = first * math.cos(d) + lift * scale
                assert float(parts.loc[row, part, d]) == pytest.approx(mean)
                for e in range(3):
                    expected = (factor * scale) ** 2 * r ** abs(d - e)
                    found = float(parts.covariance_matrix[row, part, d, e])
                    assert found == pytest.approx(expected)


def test_two_correlations_share_their_margins():
    x, _ = AR1Regression().sample(10, generator=0)
    one, two = (AR1Regression(correlation=r).conditional(x) for r in (0.1, 0.9))
    assert torch.equal(one.loc, two.loc)
    torch.testing.assert_close(one.variance, two.variance)
    assert not torch.allclose(one.covariance_matrix, two.covariance_matrix)


@pytest.mark.parametrize("kind", [AR1Regression, OutlierRegression])
def test_a_stack_of_inputs(kind):
    law = kind(dim=2).conditional(torch.zeros(3, 5, 2))
    assert law.batch_shape == (3, 5)
    assert law.mean.dtype == torch.float32


@pytest.mark.parametrize("kind", [AR1Regression, OutlierRegression])
def test_seeds(kind):
    state = torch.get_rng_state()
    one, again, other = (kind().sample(20, generator=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        (AR1Regression, {"dim": 0}, InputError),
        (AR1Regression, {"dim": 2.0}, InputTypeError),
        (AR1Regression, {"correlation": 1.0}, InputError),
        (AR1Regression, {"correlation": float("nan")}, InputError),
        (AR1Regression, {"spread": 0.0}, InputError),
        (OutlierRegression, {"dim": 0}, InputError),
        (OutlierRegression, {"dim": 2.0}, InputTypeError),
        (OutlierRegression, {"share": 0.0}, InputError),
        (OutlierRegression, {"share": float("nan")}, InputError),
        (OutlierRegression, {"factor": 0.0}, InputError),
        (OutlierRegression, {"shift": float("inf")}, InputError),
        (OutlierRegression, {"correlation": 1.0}, InputError),
        (OutlierRegression, {"outlier_correlation": -1.0}, InputError),
    ],
    ids=str,
)
def test_settings_are_checked(kind, options, error):
    with pytest.raises(error, match=next(iter(options))):
        kind(**options)
