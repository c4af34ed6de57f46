"""Regions of the inputs: found where they were planted, of the right kind, and not by chance."""

import math

import pytest
import torch
from scipy.stats import norm, t

from prerank.calibration.axes import input_columns
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.region_faults import _FOURTH, _SPREAD, region_faults
from prerank.calibration.regions import _HEAVY_TAILS, find_regions
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


def test_the_bounds_of_a_second_region_leave_out_the_first():
    g = torch.Generator().manual_seed(8)
    x, z = torch.rand(1500, 1, generator=g), torch.rand(1500, 1, generator=g)
    z[x[:, 0] > 0.8] **= 0.2
    z[(x[:, 0] > 0.55) & (x[:, 0] <= 0.8)] **= 2
    first, second = search(z, x, most=2).regions
    assert first.conditions[0].low is not None
    assert first.conditions[0].high is None
    assert abs(second.conditions[0].low - 0.55) < 0.05
    assert abs(second.conditions[0].high - first.conditions[0].low) < 0.05


def test_rows_that_are_wrong_the_other_way_have_their_own_fault():
    g = torch.Generator().manual_seed(9)
    x, u = torch.rand(1500, 1, generator=g), torch.rand(1500, 1, generator=g, dtype=torch.float64)
    high = x[:, 0] > 0.6
    z = torch.where(high[:, None], pits_of(1.6 * norm.ppf(u)), pits_of(norm.ppf(u) / 2))
    [region, *_] = search(z, x, most=1).regions
    [fault] = region_faults(region, search(z, x, most=1).scores)
    assert region.inside.norm() < region.outside.norm()
    assert (fault.kind, fault.sign, fault.elsewhere) == ("spread", 1, False)


def dependent(kind, n, seed):
    """PITs and inputs that depend on each other within the same rows, but not on one another."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(n, 4, generator=g)
    if kind == "time":
        steps = [noise[0]]
        for step in noise[1:]:
            steps.append(0.9 * steps[-1] + math.sqrt(1 - 0.81) * step)
        values, rows = torch.stack(steps), row_units(range(n), None, n)
    else:
        cluster = torch.arange(n) // 10
        values = torch.randn(n // 10, 4, generator=g)[cluster] * 0.8 + 0.6 * noise
        rows = row_units(None, cluster.numpy(), n)
    return torch.special.ndtr(values[:, :2].double()), values[:, 2:], rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["time", "cluster"])
def test_size_and_false_alarms_of_dependent_rows(kind):
    alarms = {True: 0, False: 0}
    for seed in range(100):
        z, x, rows = dependent(kind, 300, seed)
        for known in alarms:
            found = search(z, x, n_null=39, most=1, dependence=rows if known else None)
            alarms[known] += found.p_value <= 0.05
    assert alarms[True] <= 13  # 99.9 % bound of a binomial with 100 trials and 5 %
    assert alarms[False] >= 30


@pytest.mark.parametrize("kind", ["time", "cluster"])
def test_a_fault_is_found_among_dependent_rows(kind):
    z, x, rows = dependent(kind, 600, 0)
    planted = x[:, 1] > 0.8
    z[planted] = pits_of(torch.special.ndtri(z[planted]) + 2)
    found = search(z, x, most=1, dependence=rows)
    assert found.p_value <= 0.02
    [condition] = found.regions[0].conditions
    assert condition.name == "x1"
    assert abs(condition.low - 0.8) < 0.1


def test_means_of_heavy_tails():
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    means = legendre(2 * pits_of(t.ppf(u, 3) / math.sqrt(3)) - 1, 4).mean(0)
    assert abs(float(means[1]) - _HEAVY_TAILS[0]) < 1e-3
    assert abs(float(means[3]) - _HEAVY_TAILS[1]) < 1e-3


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
