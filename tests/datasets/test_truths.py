"""Problems with outliers: the samples follow the law that is documented."""

import math

import pytest
import torch

from prerank import pce, pce_floor, pit
from prerank.datasets import OutlierRegression
from prerank.errors import InputError, InputTypeError

N = 20_000
PROBLEMS = [
    OutlierRegression(),
    OutlierRegression(factor=5.0, outlier_correlation=-0.5),
    OutlierRegression(dim=2, share=0.3, shift=4.0),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_samples_follow_the_law(problem):
    x, y = problem.sample(N, generator=1)
    assert x.dtype == y.dtype == torch.float64
    assert float(x.min()) >= -1
    assert float(x.max()) <= 1
    law = problem.conditional(x)
    for prerank in ("marginal", "location", "scale", "hdr"):
        error = pce(pit(law, y, prerank, n_samples=50, generator=0))
        # The PCE of n uniforms has a standard deviation of half its expectation.
        assert (error < 3.5 * pce_floor(N)).all(), prerank


def test_the_law_is_the_one_that_is_documented():
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


def test_a_stack_of_inputs():
    law = OutlierRegression(dim=2).conditional(torch.zeros(3, 5, 2))
    assert law.batch_shape == (3, 5)
    assert law.mean.dtype == torch.float32


def test_seeds():
    problem = OutlierRegression()
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
        ({"share": 0.0}, InputError),
        ({"share": float("nan")}, InputError),
        ({"factor": 0.0}, InputError),
        ({"shift": float("inf")}, InputError),
        ({"correlation": 1.0}, InputError),
        ({"outlier_correlation": -1.0}, InputError),
    ],
    ids=str,
)
def test_settings_are_checked(options, error):
    with pytest.raises(error, match=next(iter(options))):
        OutlierRegression(**options)
