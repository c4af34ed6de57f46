"""Correlation between neighbouring rows is found, and independent rows are left in peace."""

import math

import numpy as np
import torch

from calibration.test_dependent_rows import pits, series
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.serial_correlation import serial_correlation


def test_false_alarms_and_power():
    wrong = seen = 0
    for seed in range(300):
        z = torch.rand(200, 4, generator=torch.Generator().manual_seed(seed))
        wrong += serial_correlation({"marginal": z**2}) is not None  # also if miscalibrated
        seen += serial_correlation({"marginal": pits(series(0.4, seed, (200, 4)))}) is not None
    # Level 1 %, 300 data sets: .01 + 3 sqrt(.01 * .99 / 300).
    assert wrong / 300 <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 300)
    assert seen / 300 > 0.99


def test_order_is_that_of_the_times():
    z = pits(series(0.6, 0))
    other = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    shuffled = {"scale": z[other]}
    assert serial_correlation(shuffled) is None
    found = serial_correlation(shuffled, row_units(other.numpy(), None, 500))
    assert found.prerank == "scale"
    assert found.lag == 1
    assert abs(found.correlation - 0.58) < 0.12  # of PITs: 6/pi asin(.3); standard error .04
    assert serial_correlation(shuffled, row_units(None, np.arange(500) // 5, 500)) is None
    assert serial_correlation({"scale": z[:20]}) is None
