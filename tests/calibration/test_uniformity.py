"""Size and power of the p-values of PITs."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.calibration.error_table import findings_of
from prerank.calibration.uniformity import component_p_values, joint_p_value, smallest_rank
from prerank.pits import ProjectedPIT
from prerank.preranks import parse

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


def overall(z, n_null):
    """P-value of the whole pre-rank, of PITs `(1 + R, N, J)` of a pool."""
    ties = torch.zeros(z.shape[-1])
    result = ProjectedPIT(parse("marginal")[0], z[0], "closed form", ties, z[1:])
    names = [f"y{j}" for j in range(z.shape[-1])]
    return findings_of([result], names, n_null=n_null)[0].p_value


def test_size_holds_below_the_resolution_of_the_replicates():
    """19 replicates give no p-value below .05; components that are far off have smaller ones."""
    source = torch.Generator().manual_seed(0)
    common = torch.randn(300, 8, 60, 1, generator=source)
    z = torch.special.ndtr((common + torch.randn(300, 8, 60, 2, generator=source)) / 2**0.5)
    p = np.array([overall(one, 19) for one in z])
    for level in (0.02, 0.05, 0.1):
        # Three standard errors of 300 data sets.
        assert (p <= level).mean() < level + 3 * (level * (1 - level) / 300) ** 0.5
    assert p.min() < 1 / 20  # Bonferroni's bound was read


def test_a_large_error_has_a_small_p_value_however_few_the_replicates():
    z = torch.rand(8, 300, 2, generator=torch.Generator().manual_seed(0))
    z[0] = z[0] ** 3
    assert joint_p_value(z[0], z[1:], n_null=99, generator=0) == 0.01
    assert overall(z, 99) < 0.0005


def test_smallest_rank_is_exact_for_exchangeable_columns():
    values = torch.rand(2000, 2, 20, generator=torch.Generator().manual_seed(0))
    p = np.array([smallest_rank(one) for one in values])
    # P(p <= .1) = .1 but for ties, which make p larger; 4 standard errors of .0067.
    assert (p <= 0.1).mean() < 0.1 + 4 * 0.0067
    assert (p <= 0.1).mean() > 0.05
