"""Quantiles of univariate mixtures invert the CDF."""

import pytest
import torch
from scipy import stats
from torch.distributions import Categorical, MixtureSameFamily, Normal

from prerank.distributions.densities import mixture_quantiles
from prerank.errors import InputError
from truths import gaussian_mixture

F64 = torch.float64
LEVELS = torch.tensor([1e-12, 1e-6, 0.01, 0.05, 0.25, 0.5, 0.9, 0.999, 1 - 1e-9], dtype=F64)


def mixture(probs, loc, scale, dtype=F64):
    probs, loc, scale = (torch.tensor(v, dtype=dtype) for v in (probs, loc, scale))
    return MixtureSameFamily(Categorical(probs), Normal(loc, scale))


# The density at the quantile times the spacing of floats there bounds the error of the CDF, so
# narrow components sit near 0.
EXTREME = {
    "one": ([1.0], [0.0], [1.0]),
    "equal": ([0.5, 0.5], [1.0, 1.0], [2.0, 2.0]),
    "far apart": ([0.5, 0.5], [-1e8, 1e8], [1e3, 1e3]),
    "spike and slab": ([0.5, 0.5], [0.0, 0.0], [1e-12, 1e6]),
    "rare and far": ([1 - 1e-9, 1e-9], [0.0, 1e5], [1.0, 0.5]),
    "negligible": ([1.0, 1e-300], [0.0, 1e15], [1.0, 1.0]),
    "narrow next to wide": ([0.3, 0.3, 0.4], [-1e-9, 1e-9, 0.0], [1e-10, 1e-10, 100.0]),
    "huge": ([0.2, 0.8], [0.0, 1e290], [1e289, 1e290]),
    "tiny": ([0.2, 0.8], [0.0, 1e-290], [1e-290, 1e-289]),
}


@pytest.mark.parametrize("name", EXTREME)
def test_inverts_the_cdf(name):
    law = mixture(*EXTREME[name])
    found = mixture_quantiles(law, LEVELS)
    assert found.shape == LEVELS.shape
    assert torch.isfinite(found).all()
    # The far modes leave a gap, over which the CDF is flat to the last digit.
    torch.testing.assert_close(law.cdf(found), LEVELS, rtol=0, atol=1e-10)
    assert (found.diff() >= 0).all()


def test_one_normal():
    levels = LEVELS[1:]  # further out the CDF has too few digits of its own
    found = mixture_quantiles(mixture([1.0], [3.0], [2.0]), levels)
    expected = torch.from_numpy(stats.norm(3.0, 2.0).ppf(levels.numpy()))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)


def test_symmetric_mixture():
    law = mixture([0.5, 0.5], [-3.0, 3.0], [1.0, 1.0])
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=F64)
    low, middle, high = mixture_quantiles(law, levels)
    assert abs(middle) < 1e-9
    assert abs(low + high) < 1e-9


@pytest.mark.parametrize("batch", [(), (7,), (2, 7)])
def test_shapes(batch):
    margins = gaussian_mixture(*batch, dim=4).project(torch.eye(4, dtype=F64))
    found = mixture_quantiles(margins, LEVELS)
    assert found.shape == (len(LEVELS), *batch, 4)
    expected = LEVELS.reshape(-1, *[1] * (len(batch) + 1)).expand_as(found)
    torch.testing.assert_close(margins.cdf(found), expected, rtol=0, atol=1e-10)


def test_float32():
    law = mixture([0.3, 0.7], [-5.0, 5.0], [0.5, 2.0], dtype=torch.float32)
    levels = torch.tensor([0.01, 0.3, 0.5, 0.99])
    found = mixture_quantiles(law, levels)
    assert found.dtype == torch.float32
    # The CDF itself has an error of some 2^-24, and so has the quantile times the density.
    torch.testing.assert_close(law.cdf(found), levels, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "levels", [[0.0], [1.0], [-0.1], [1.1], [0.5, torch.nan], [[0.5]], 0.5, [torch.inf]]
)
def test_levels_are_checked(levels):
    law = mixture([1.0], [0.0], [1.0])
    with pytest.raises(InputError, match="quantile levels"):
        mixture_quantiles(law, torch.tensor(levels, dtype=F64))
