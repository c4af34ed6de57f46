"""Calibration after training: recalibrated distributions, to compare the penalty with."""

from prerank.recalibration.hdr import HDRRecalibrated, HDRRecalibrator
from prerank.recalibration.marginal import MarginalRecalibrated, MarginalRecalibrator

__all__ = [
    "HDRRecalibrated",
    "HDRRecalibrator",
    "MarginalRecalibrated",
    "MarginalRecalibrator",
]
