"""Counts of PITs say what the PITs say."""

import numpy as np
import pytest
import torch

from prerank.calibration import (
    mean_pce_limits,
    pce,
    pce_limits,
    pit_histogram,
    reliability_curve,
)
from prerank.calibration.dependent_limits import dependent_limits
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.evidence import curve_shapes
from prerank.calibration.gaps import (
    band_of,
    histogram_band_of,
    limits_of,
    mean_limits_of,
    p_values_of,
)
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.rotations import dependent_evidence
from prerank.calibration.uniformity import component_p_values
from prerank.defaults import MANY_ROWS
from prerank.errors import InputError, ShapeError

N = MANY_ROWS + 900
SIZES = [[N], [30_000, 1, N - 30_001]]


def pits(dtype=torch.float32):
    """Of a calibrated component, a narrow one, and one with the values of few ranks."""
    z = torch.rand(N, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    z[:, 1] = (0.5 + 1.01 * (z[:, 1] - 0.5)).clamp(0, 1)
    z[:, 2] = (z[:, 2] * 20).round() / 20  # on the edges of bins
    return z


def counted(z, sizes, *, levels=100, dependence=None):
    counts = PITCounts(levels, dependence)
    for part in z.split(sizes):
        counts.add(part)
    return counts


def added_up(z, sizes, **options):
    whole, start = PITCounts(**options), 0
    for part in z.split(sizes):
        other = PITCounts(**options)
        other.add(part, torch.arange(start, start + len(part)))
        whole.merge(other)
        start += len(part)
    return whole


@pytest.mark.parametrize("levels", [100, 7])
@pytest.mark.parametrize("sizes", SIZES, ids=len)
def test_all_that_is_said_of_independent_rows(sizes, levels):
    z = pits()
    counts = counted(z, sizes, levels=levels)
    assert (len(counts), counts.used, counts.sizes) == (N, N, [N] * 3)
    exact = {"rtol": 1e-9, "atol": 1e-12}
    torch.testing.assert_close(counts.errors(), pce(z.double(), levels=levels), **exact)
    torch.testing.assert_close(counts.p_values(), component_p_values(z), rtol=0, atol=0)
    for mine, theirs in zip(counts.limits(), pce_limits(z, levels=levels), strict=True):
        torch.testing.assert_close(mine, theirs, **exact)
    for mine, theirs in zip(counts.mean_limits(), mean_pce_limits(z, levels=levels), strict=True):
        torch.testing.assert_close(mine, theirs, **exact)
    curve = reliability_curve(z.double(), levels=levels)
    torch.testing.assert_close(counts.curve(levels).observed, curve.observed, **exact)
    for bins in (20, 10):
        density = pit_histogram(z.double(), bins=bins).density
        torch.testing.assert_close(counts.histogram(bins).density, density, **exact)
    assert curve_shapes(counts, levels=levels) == curve_shapes(z, levels=levels)
    assert histogram_band_of(counts, None, bins=20) == histogram_band_of(z, None, bins=20)


@pytest.mark.parametrize("kind", ["time", "cluster"])
def test_all_that_is_said_of_dependent_rows(kind):
    z = pits()
    labels = np.arange(N) // 4 if kind == "time" else np.arange(N) % 300
    rows = row_units(*((labels, None) if kind == "time" else (None, labels)), N)
    for counts in (counted(z, SIZES[1], dependence=rows), added_up(z, SIZES[1], dependence=rows)):
        found, expected = dependent_evidence(counts, rows), dependent_evidence(z, rows)
        np.testing.assert_allclose(found.floors, expected.floors, rtol=1e-9)
        np.testing.assert_array_equal(found.p_values, expected.p_values)
        assert found.overall == expected.overall
        limits = zip(dependent_limits(counts, rows), dependent_limits(z, rows), strict=True)
        for mine, theirs in limits:
            torch.testing.assert_close(tuple(mine), tuple(theirs))
        mine, theirs = (band_of(one, rows) for one in (counts, z))
        torch.testing.assert_close(mine.upper, theirs.upper)
        mine, theirs = (histogram_band_of(one, rows, bins=10) for one in (counts, z))
        assert mine.upper == pytest.approx(theirs.upper)


def test_components_with_gaps_have_their_own_numbers():
    z = pits(torch.float64)
    z[: N // 3, 0] = torch.nan
    z[:, 2] = torch.nan
    counts = counted(z, SIZES[1])
    assert counts.has_gaps
    assert counts.sizes == [N - N // 3, N, 0]
    assert counts.used == N
    torch.testing.assert_close(counts.errors()[:2].isnan(), torch.tensor([False, False]))
    assert counts.errors()[2].isnan()
    for mine, theirs in zip(counts.limits(), limits_of(z, levels=100), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)
    for mine, theirs in zip(counts.mean_limits(), mean_limits_of(z, levels=100), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)
    # One has fewer than 65,536 PITs: its levels are those of so many, and not its own.
    found, expected = counts.p_values(), p_values_of(z)
    assert found[1] == expected[1]
    assert (found[0] > 0.01) == (expected[0] > 0.01)
    assert found[2].isnan()


def test_the_size_where_a_component_has_fewer_pits_than_levels_are_for():
    """4,000 p-values: a standard error of .0034 at 5 %."""
    z = torch.rand(4000, 300, generator=torch.Generator().manual_seed(1)).T
    counts = counted(z, [300])
    assert abs(float((counts.p_values() <= 0.05).double().mean()) - 0.05) < 3.5 * 0.0034


def test_counts_that_cannot_be_added_up():
    first, second = counted(pits(), SIZES[0]), counted(pits()[:, :2], SIZES[0])
    with pytest.raises(ShapeError, match="2 components and 100 levels cannot be added"):
        first.merge(second)
    rows = row_units(range(N), None, N)
    with pytest.raises(InputError, match="diagnose all of them at once"):
        counted(pits().masked_fill(pits() > 0.9, torch.nan), SIZES[0], dependence=rows)
    with pytest.raises(InputError, match="bins must divide 20"):
        first.histogram(7)
