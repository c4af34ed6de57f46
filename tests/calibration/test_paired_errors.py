"""Intervals of differences cover the truth, whether forecasts are calibrated or not."""

import math

import numpy as np
import pytest
import torch

from calibration.test_dependent_rows import CLUSTERED, IN_ORDER, N, clustered, pits, series, unequal
from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.paired_errors import pce_difference, score_difference

ALONE = DependentRows("row", np.arange(N))
DRAWS = {
    "row": (lambda seed: series(0.0, seed), ALONE),
    "time": (lambda seed: series(0.6, seed), IN_ORDER),
    "cluster": (clustered, CLUSTERED),
}


def true_error(shift, spread):
    levels = torch.linspace(0, 1, 100, dtype=torch.float64)
    observed = torch.special.ndtr((torch.special.ndtri(levels) - shift) / spread)
    return float((observed - levels).abs().mean())


PAIRS = [
    ((0, 1), (0, 1)),
    ((0.3, 1), (0, 1)),
    ((0.1, 1), (-0.1, 1)),
    ((0, 1.4), (0.2, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("pair", PAIRS)
def test_coverage(kind, pair):
    draw, rows = DRAWS[kind]
    truth = true_error(*pair[0]) - true_error(*pair[1])
    covered = 0
    for seed in range(40):
        x, other = draw(seed), draw(1000 + seed)
        moved = [s + r * one for (s, r), one in zip(pair, (x, 0.8 * x + 0.6 * other), strict=True)]
        found = pce_difference([pits(moved[0])], [pits(moved[1])], rows)
        covered += found.lower <= truth <= found.upper
        assert found.lower <= found.difference + 0.05
        assert (found.p_value < 0.05) == (found.lower > 0 or found.upper < 0) or (
            0.04 < found.p_value < 0.06  # quantiles between two draws
        )
    assert covered / 40 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 40)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWS)
def test_coverage_of_scores(kind):
    draw, rows = DRAWS[kind]
    inside = []
    for seed in range(200):
        x, other = draw(seed)[:, 0], draw(1000 + seed)[:, 0]
        found = score_difference(x.square(), (1.1 * other).square(), rows)
        inside.append(found.lower <= 1 - 1.21 <= found.upper)
    assert np.mean(inside) >= 0.94 - 3 * math.sqrt(0.95 * 0.05 / 200)


@pytest.mark.slow
def test_coverage_with_unequal_clusters():
    """Of scores and of errors; 150 data sets, 5 % and 2.6 standard errors; 10 % before."""
    missed = np.zeros(2)
    for seed in range(150):
        (x, rows), (other, _) = unequal(seed), unequal(1000 + seed)
        score = score_difference(x.square(), other.square(), rows)
        error = pce_difference(
            [pits(x + 0.8).unsqueeze(-1)], [pits(other + 0.8).unsqueeze(-1)], rows
        )
        missed += [not one.lower <= 0 <= one.upper for one in (score, error)]
    assert missed.max() / 150 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 150)


def test_a_clear_difference_is_found():
    x = series(0.0, 5)
    found = pce_difference([pits(2 * x)], [pits(x)], ALONE)
    assert found.p_value < 0.01
    assert 0 < found.lower < true_error(0, 2) < found.upper


def test_scores_of_independent_rows_have_the_usual_interval():
    from scipy import stats

    x = series(0.0, 3)[:200, 0]
    rows = DependentRows("row", np.arange(200))
    found = score_difference(x, torch.zeros(200), rows)
    usual = stats.ttest_1samp(x.numpy(), 0)
    assert found.p_value == pytest.approx(usual.pvalue)
    low, high = usual.confidence_interval(0.95)
    assert (found.lower, found.upper) == pytest.approx((low, high))


def test_equal_forecasts_do_not_differ():
    z = pits(series(0.0, 4))
    found = pce_difference([z], [z], ALONE)
    assert (found.difference, found.p_value) == (0, 1)
    assert found.lower <= 0 <= found.upper
    same = score_difference(z[:, 0], z[:, 0], ALONE)
    assert (same.difference, same.p_value) == (0, 1)
