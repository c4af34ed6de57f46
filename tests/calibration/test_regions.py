"""Regions of the inputs: found where they were planted, of the right kind, and not by chance."""

import math

import pytest
import torch
from scipy.stats import norm, t

from prerank.calibration.axes import input_columns
from prerank.calibration.region_faults import _FOURTH, _SPREAD, region_faults
from prerank.calibration.regions import find_regions
from prerank.numerics.polynomials import legendre


def pits_of(values):
    """PITs of a standard normal forecast."""
    return torch.from_numpy(norm.cdf(values))


FAULTS = {
    "narrow": (lambda u: pits_of(2 * norm.ppf(u)), ("spread", 1)),
    "wide": (lambda u: pits_of(norm.ppf(u) / 2), ("spread", -1)),
    "high": (lambda u: pits_of(norm.ppf(u) + 1), ("shift", 1)),
    "low": (lambda u: pits_of(norm.ppf(u) - 1), ("shift", -1)),
    "tails": (lambda u: pits_of(t.ppf(u, 3) / math.sqrt(3)), ("tails", 1)),
}


def search(z, x, **options):
    columns = input_columns(x, None, len(x))
    g = torch.Generator().manual_seed(0)
    options = {"n_null": 99, "alpha": 0.05, "most": 3} | options
    return find_regions({"marginal": z}, columns, generator=g, **options)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(fault):
    g = torch.Generator().manual_seed(1)
    x, u = torch.rand(2500, 3, generator=g), torch.rand(2500, 2, generator=g, dtype=torch.float64)
    planted = x[:, 1] > 0.8
    spoil, kind = FAULTS[fault]
    z = u.clone()
    z[planted, 0] = spoil(u[planted, 0].numpy())
    found = search(z, x)
    assert found.p_value == 0.01
    [region] = found.regions
    [condition] = region.conditions
    assert condition.name == "x1"
    assert condition.high is None
    assert abs(condition.low - 0.8) < 0.05
    assert [(f.kind, f.sign, f.components) for f in region_faults(region, found.scores)] == [
        (*kind, (0,))
    ]


def test_two_regions_one_after_the_other():
    g = torch.Generator().manual_seed(2)
    x, z = torch.rand(1500, 2, generator=g), torch.rand(1500, 1, generator=g)
    z[x[:, 0] > 0.85] **= 0.3
    z[x[:, 1] < 0.15] **= 3
    found = search(z, x)
    assert {str(region).split()[0] for region in found.regions} == {"x0", "x1"}
    assert [region.p_value for region in found.regions] == sorted(
        region.p_value for region in found.regions
    )


def test_a_corner_of_two_inputs():
    g = torch.Generator().manual_seed(3)
    x, z = torch.rand(1500, 4, generator=g), torch.rand(1500, 1, generator=g)
    z[(x[:, 0] > 0.7) & (x[:, 2] < 0.3)] **= 4
    [region] = search(z, x).regions
    assert [condition.name for condition in region.conditions] == ["x0", "x2"]


def test_rows_that_are_right_while_the_others_are_not():
    g = torch.Generator().manual_seed(4)
    x, z = torch.rand(1000, 1, generator=g), torch.rand(1000, 1, generator=g)
    z[x[:, 0] > 0.25] **= 2
    found = search(z, x, most=1)
    [fault] = region_faults(found.regions[0], found.scores)
    assert fault.elsewhere
    assert (fault.kind, fault.sign) == ("shift", -1)


def test_levels_without_enough_rows_are_no_regions():
    x = torch.zeros(100, 1)
    x[:3] = 1
    found = search(torch.rand(100, 1, generator=torch.Generator().manual_seed(0)), x)
    assert (found.p_value, found.regions, found.candidate) == (1.0, (), None)


@pytest.mark.slow
@pytest.mark.parametrize("power", [1.0, 2.0])  # calibrated, and biased alike everywhere
def test_size(power):
    alarms = 0
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        x, z = torch.rand(200, 3, generator=g), torch.rand(200, 2, generator=g) ** power
        columns = input_columns(x, None, 200)
        options = {"n_null": 39, "alpha": 0.05, "most": 1, "generator": g}
        alarms += find_regions({"marginal": z}, columns, **options).p_value <= 0.05
    assert alarms <= 18  # 99 % bound of a binomial with 200 trials and 5 %


def test_moments_of_a_wrong_spread():
    ratios = (0.2, 0.4, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5)
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    for ratio, second, fourth in zip(ratios, _SPREAD, _FOURTH, strict=True):
        z = pits_of(ratio * norm.ppf(u))
        means = legendre(2 * z - 1, 4).mean(0)
        assert abs(float(means[1]) - second) < 1e-3
        assert abs(float(means[3]) - fourth) < 1e-3
