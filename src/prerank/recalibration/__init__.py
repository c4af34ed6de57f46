"""Calibration after training: the head; recalibrated margins, regions and ensembles beside it."""

from prerank.recalibration.base import Recalibrator
from prerank.recalibration.change import Change
from prerank.recalibration.copies import Copies, Moments
from prerank.recalibration.corrections import Correction
from prerank.recalibration.couplings import Coupling, EnsembleCopulaCoupling, SchaakeShuffle, couple
from prerank.recalibration.hdr import HDRRecalibrated, HDRRecalibrator
from prerank.recalibration.head import CalibrationHead, calibrate
from prerank.recalibration.marginal import MarginalRecalibrated, MarginalRecalibrator
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
    "Recalibrator",
    "RegionalChange",
    "RegionalHead",
    "SchaakeShuffle",
    "calibrate",
    "couple",
]
