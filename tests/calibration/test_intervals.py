"""Confidence limits of the true PCE: coverage with and without faults, and what they cost."""

import pytest
import torch

from prerank.calibration import mean_pce_limits, null_pce, pce, pce_limits
from prerank.errors import InputError, ShapeError

# Spread 1.2 has sides of opposite sign, bias has one sign, and PITs at the ends vary the most.
FAULTS = {
    "calibrated": lambda x: x,
    "bias": lambda x: x + 0.3,
    "narrow": lambda x: 1.2 * x,
    "ends": lambda x: 6 * x.sign(),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("n", [100, 1000])
def test_each_limit_holds(fault, n):
    noise = torch.Generator().manual_seed(n)

    def pits(rows, components=1):
        own = torch.randn(rows, components, generator=noise, dtype=torch.float64)
        shared = torch.randn(rows, 1, generator=noise, dtype=torch.float64)
        x = own if components == 1 else (own + shared) / 2**0.5
        return torch.special.ndtr(FAULTS[fault](x))

    true = float(pce(pits(400_000))) if fault != "calibrated" else 0.0
    for components in (1, 3):
        limits = [mean_pce_limits(pits(n, components)) for _ in range(200)]
        lower = sum(float(one.lower) > true + 1e-3 for one in limits)
        upper = sum(float(one.upper) < true - 1e-3 for one in limits)
        # 5 % of 200, and 2.6 standard errors of that; 1e-3 is the noise of the true error.
        assert lower <= 18
        assert upper <= 18


@pytest.mark.parametrize("rare", [0.0, 0.05, 0.15])
@pytest.mark.parametrize("n", [10, 30, 200])
def test_the_lower_limit_holds_for_few_rows(n, rare):
    """Uniform PITs (rare = 0), and PITs near 1 of which a few are near 0."""
    noise = torch.Generator().manual_seed(n)
    z = torch.rand(n, 500, generator=noise, dtype=torch.float64)
    true = 0.0
    if rare:
        place = torch.rand(n, 500, generator=noise) < rare
        z = torch.where(place, 0.02 * z, 0.98 + 0.02 * z)
        level = torch.linspace(0, 1, 100, dtype=torch.float64)
        low, high = (level / 0.02).clamp(max=1), ((level - 0.98) / 0.02).clamp(min=0)
        true = float((rare * low + (1 - rare) * high - level).abs().mean())
    wrong = int((pce_limits(z).lower > true + 1e-9).sum())
    assert wrong <= 25 + 2.6 * (500 * 0.05 * 0.95) ** 0.5


def test_limits_near_calibration_are_as_narrow_as_stated():
    z = torch.linspace(0, 1, 1601, dtype=torch.float64)[1:, None] - 1 / 3200
    lower, upper = pce_limits(z)
    assert float(lower) == 0
    assert float(upper - pce(z)) * 40 == pytest.approx(0.475, rel=0.02)


def test_lower_limit_is_the_test_at_calibration():
    """The lower limit of nearly uniform PITs leaves 0 where the test at 5 % rejects."""
    x = torch.linspace(0, 1, 901, dtype=torch.float64)[1:, None] - 1 / 1800
    z = (x + 0.05).clamp(max=1)
    below = float(pce(z) - pce_limits(z).lower)
    null = null_pce(900)
    # Three per cent for the shape of the curve and for 4,000 paths.
    assert below == pytest.approx(float(null[int(0.95 * len(null))]), rel=0.03)


def test_one_component_is_its_own_mean_and_more_rows_narrow_limits():
    z = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    single, whole = pce_limits(z[:, :1]), mean_pce_limits(z[:, :1])
    assert (float(single.lower), float(single.upper)) == (float(whole.lower), float(whole.upper))
    few, many = mean_pce_limits(z), mean_pce_limits(z.repeat(9, 1))
    assert float(many.upper - pce(z).mean()) < 0.4 * float(few.upper - pce(z).mean())


def test_few_alike_rows_are_no_certainty():
    upper = pce_limits(torch.full((3, 1), 0.5)).upper
    assert float(upper) > 0.45


def test_arguments_are_checked():
    with pytest.raises(ShapeError, match=r"\(N, J\)"):
        pce_limits(torch.rand(2, 5, 1))
    with pytest.raises(InputError, match="level"):
        mean_pce_limits(torch.rand(5, 1), level=0.3)
