"""Calibration after training: recalibrated distributions, to compare the penalty with."""

from prerank.recalibration.base import Recalibrator
from prerank.recalibration.corrections import Correction
from prerank.recalibration.hdr import HDRRecalibrated, HDRRecalibrator
from prerank.recalibration.marginal import MarginalRecalibrated, MarginalRecalibrator

__all__ = [
    "Correction",
    "HDRRecalibrated",
    "HDRRecalibrator",
    "MarginalRecalibrated",
    "MarginalRecalibrator",
    "Recalibrator",
]
