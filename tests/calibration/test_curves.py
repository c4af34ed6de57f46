"""Reliability curves and histograms."""

import numpy as np
import pytest
import torch

from prerank import pce, pit_histogram, reliability_curve


@pytest.mark.parametrize("levels", [2, 5, 100])
def test_curve_is_the_empirical_cdf(levels):
    z = torch.rand(2, 30, 3, dtype=torch.float64)
    z[0, :5, 0] = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])  # at levels of the second grid
    curve = reliability_curve(z, levels=levels)
    assert curve.observed.shape == (2, levels, 3)
    for i, level in enumerate(curve.levels):
        torch.testing.assert_close(
            curve.observed[:, i], (z <= level).double().mean(-2), rtol=0, atol=1e-15
        )


def test_curve_rises_to_one():
    curve = reliability_curve(torch.rand(30, 2))
    assert (curve.observed.diff(dim=0) >= 0).all()
    assert (curve.observed[-1] == 1).all()


def test_pce_is_the_mean_distance_from_the_diagonal():
    z = torch.rand(30, 2, dtype=torch.float64) ** 2
    levels, observed = reliability_curve(z, levels=40)
    distance = (observed - levels.unsqueeze(-1)).abs().mean(0)
    torch.testing.assert_close(pce(z, levels=40), distance, rtol=1e-12, atol=0)


SHAPES = [
    ("too narrow", [0.01, 0.02, 0.98, 0.99], [1, -1]),
    ("too wide", [0.48, 0.49, 0.51, 0.52], [-1, 1]),
    ("too low", [0.9, 0.95, 0.97, 0.99], [-1, -1]),
    ("too high", [0.01, 0.02, 0.05, 0.1], [1, 1]),
]


@pytest.mark.parametrize(("z", "signs"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_side_of_the_diagonal_tells_what_is_wrong(z, signs):
    levels, observed = reliability_curve(torch.tensor(z, dtype=torch.float64)[:, None], levels=11)
    above = (observed[:, 0] - levels).sign()
    assert above[3] == signs[0]
    assert above[7] == signs[1]


@pytest.mark.parametrize("bins", [1, 2, 7, 20])
def test_histogram_counts(bins):
    z = np.random.default_rng(0).uniform(size=(2, 50, 3))
    histogram = pit_histogram(z, bins=bins)
    assert histogram.density.shape == (2, bins, 3)
    np.testing.assert_allclose(histogram.edges, np.linspace(0, 1, bins + 1), rtol=0, atol=1e-15)
    for stack, component in np.ndindex(2, 3):
        expected, _ = np.histogram(z[stack, :, component], bins=bins, range=(0, 1), density=True)
        np.testing.assert_allclose(histogram.density[stack, :, component], expected, rtol=1e-12)


def test_edges_belong_to_the_bin_on_their_left_and_zero_to_the_first():
    z = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0, 0.6, 0.7, 0.8]).unsqueeze(-1)
    density = pit_histogram(z, bins=4).density.squeeze(-1)
    torch.testing.assert_close(density, torch.tensor([2, 1, 3, 2]) * 4 / 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept_and_densities_average_to_one(dtype):
    z = torch.rand(30, 2, dtype=dtype)
    histogram, curve = pit_histogram(z, bins=6), reliability_curve(z)
    assert {t.dtype for t in (*histogram, *curve)} == {dtype}
    torch.testing.assert_close(histogram.density.mean(0), torch.ones(2, dtype=dtype))
