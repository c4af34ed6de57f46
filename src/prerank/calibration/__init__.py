"""Calibration errors, curves, nulls and p-values from PITs."""

from prerank.calibration.bands import ReliabilityBand, reliability_band
from prerank.calibration.curves import (
    PITHistogram,
    ReliabilityCurve,
    pit_histogram,
    reliability_curve,
)
from prerank.calibration.error import mean_spread, pce, pce_floor, pce_spread
from prerank.calibration.histograms import (
    HistogramBand,
    default_bins,
    histogram_band,
    histogram_shapes,
)
from prerank.calibration.multiplicity import holm
from prerank.calibration.nulls import component_null, null_pce, p_value
from prerank.calibration.shapes import DeviationShape, deviation_shapes
from prerank.calibration.streaming import ProjectedCalibrationError
from prerank.calibration.ties import tie_error, tie_remarks

__all__ = [
    "DeviationShape",
    "HistogramBand",
    "PITHistogram",
    "ProjectedCalibrationError",
    "ReliabilityBand",
    "ReliabilityCurve",
    "component_null",
    "default_bins",
    "deviation_shapes",
    "histogram_band",
    "histogram_shapes",
    "holm",
    "mean_spread",
    "null_pce",
    "p_value",
    "pce",
    "pce_floor",
    "pce_spread",
    "pit_histogram",
    "reliability_band",
    "reliability_curve",
    "tie_error",
    "tie_remarks",
]
