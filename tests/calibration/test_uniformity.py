"""Size and power of the p-values of PITs."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.calibration.uniformity import component_p_values, joint_p_value, smallest_rank

N, SETS = 300, 400
X = np.random.default_rng(0).normal(size=(SETS, N))
OUTLIERS = np.where(np.random.default_rng(1).uniform(size=X.shape) < 0.03, 5.0, 1.0)


def rate(x):
    """Share of columns that are rejected at 5 %."""
    return float(
        (component_p_values(torch.from_numpy(stats.norm.cdf(x)).mT) <= 0.05).double().mean()
    )


def test_size():
    assert abs(rate(X) - 0.05) < 3 * 0.011  # standard error of 400 data sets


@pytest.mark.parametrize(
    ("x", "least"),
    # Powers of .62, .96, .43 and .44 in 4,000 data sets, less three standard errors of .025.
    [(1.15 * X, 0.54), (OUTLIERS * X, 0.92), (X + 0.115, 0.35), (X / 1.15, 0.36)],
    ids=["narrow", "outliers", "shift", "wide"],
)
def test_power(x, least):
    assert rate(x) > least


@pytest.mark.parametrize("components", [2, 8])
def test_size_of_dependent_components(components):
    # 200 data sets with 99 replicates: .05 and three standard errors of .015.
    source = torch.Generator().manual_seed(components)
    rejected = 0
    for seed in range(200):
        common = torch.randn(21, 60, 1, generator=source)
        own = torch.randn(21, 60, components, generator=source)
        z = torch.special.ndtr((common + own) / 2**0.5)
        rejected += joint_p_value(z[0], z[1:], n_null=99, generator=seed) <= 0.05
    assert rejected / 200 < 0.05 + 3 * 0.015


def test_one_wrong_component_is_not_diluted():
    source = torch.Generator().manual_seed(0)
    z = torch.rand(21, 300, 30, generator=source)
    z[0, :, 3] = z[0, :, 3] ** 1.6
    assert joint_p_value(z[0], z[1:], n_null=499, generator=0) < 0.01


def test_smallest_rank_is_exact_for_exchangeable_columns():
    values = torch.rand(2000, 2, 20, generator=torch.Generator().manual_seed(0))
    p = np.array([smallest_rank(one) for one in values])
    # P(p <= .1) = .1 but for ties, which make p larger; 4 standard errors of .0067.
    assert (p <= 0.1).mean() < 0.1 + 4 * 0.0067
    assert (p <= 0.1).mean() > 0.05
