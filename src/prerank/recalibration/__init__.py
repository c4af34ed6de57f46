"""Calibration after training: the head, recalibrated margins and ensembles, conformal regions."""

from prerank.recalibration.base import Recalibrator
from prerank.recalibration.change import Change
from prerank.recalibration.copies import Copies, Moments
from prerank.recalibration.corrections import Correction
from prerank.recalibration.couplings import Coupling, EnsembleCopulaCoupling, SchaakeShuffle, couple
from prerank.recalibration.hdr import HDRRecalibrated, HDRRecalibrator
from prerank.recalibration.head import CalibrationHead, calibrate
from prerank.recalibration.marginal import MarginalRecalibrated, MarginalRecalibrator
from prerank.recalibration.predictive_regions import (
    PredictiveRegion,
    predictive_interval,
    predictive_region,
)
from prerank.recalibration.regional_head import RegionalChange, RegionalHead

__all__ = [
    "CalibrationHead",
    "Change",
    "Copies",
    "Correction",
    "Coupling",
    "EnsembleCopulaCoupling",
    "HDRRecalibrated",
    "HDRRecalibrator",
    "MarginalRecalibrated",
    "MarginalRecalibrator",
    "Moments",
    "PredictiveRegion",
    "Recalibrator",
    "RegionalChange",
    "RegionalHead",
    "SchaakeShuffle",
    "calibrate",
    "couple",
    "predictive_interval",
    "predictive_region",
]
