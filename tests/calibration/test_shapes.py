"""Reading the shape of reliability curves."""

import pytest
import torch
from torch.distributions import Normal

from prerank.calibration import deviation_shapes, reliability_band, reliability_curve
from prerank.errors import ShapeError

N = 400
TRUTH = Normal(0.0, 1.0).icdf((torch.arange(N, dtype=torch.float64) + 0.5) / N)  # its quantiles


# The forecast, whether its curve leaves the band, and the signs of shift and spread.
CASES = [
    ("right", Normal(0.0, 1.0).cdf, (False, 0, 0)),
    ("too high", Normal(0.5, 1.0).cdf, (True, -1, 0)),
    ("too low", Normal(-0.5, 1.0).cdf, (True, 1, 0)),
    ("too narrow", Normal(0.0, 0.6).cdf, (True, 0, 1)),
    ("too wide", Normal(0.0, 1.6).cdf, (True, 0, -1)),
    ("too high and too narrow", Normal(0.25, 0.55).cdf, (True, -1, 1)),
    ("slightly too high", Normal(0.02, 1.0).cdf, (False, -1, 0)),
]


@pytest.mark.parametrize(
    ("forecast", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes(forecast, expected, dtype):
    z = forecast(TRUTH).to(dtype).unsqueeze(-1)
    (shape,) = deviation_shapes(reliability_curve(z), reliability_band(N))
    outside, *signs = expected
    assert shape.outside == outside
    if expected != (False, 0, 0):  # what is left of a right one is the grid's rounding
        assert [shape.shift, shape.spread] == signs


def test_a_fast_wave_is_neither():
    even = (torch.arange(N, dtype=torch.float64) + 0.5) / N
    z = even + 0.03 * torch.sin(6 * torch.pi * even)
    (shape,) = deviation_shapes(reliability_curve(z.unsqueeze(-1)), reliability_band(N, level=0.01))
    assert shape == (True, 0, 0)


def test_components_are_read_one_by_one():
    z = torch.stack([forecast(TRUTH) for _, forecast, _ in CASES], -1)
    band = reliability_band(N)
    together = deviation_shapes(reliability_curve(z), band)
    assert together == [
        deviation_shapes(reliability_curve(z[:, j : j + 1]), band)[0] for j in range(len(CASES))
    ]


def test_a_curve_on_the_bound_is_inside():
    band = reliability_band(N)
    counts = (N * band.upper).round().int()
    z = torch.repeat_interleave(band.levels, torch.diff(counts, prepend=torch.zeros(1).int()))
    curve = reliability_curve(
        z.float().clamp(max=1).unsqueeze(-1) - 1e-6 * (z.float() > 0)[:, None]
    )
    torch.testing.assert_close(curve.observed[:, 0].double(), band.upper, rtol=0, atol=1e-6)
    assert not deviation_shapes(curve, band)[0].outside


@pytest.mark.parametrize(("shape", "levels"), [((3, 20, 2), 100), ((20, 2), 50)])
def test_shapes_that_do_not_fit(shape, levels):
    curve = reliability_curve(torch.rand(shape))
    with pytest.raises(ShapeError, match="observed"):
        deviation_shapes(curve, reliability_band(20, levels=levels))
