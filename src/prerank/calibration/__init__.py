"""Calibration errors, curves, nulls, p-values and what they decide, from PITs."""

from prerank.calibration.bands import (
    HistogramBand,
    ReliabilityBand,
    default_bins,
    histogram_band,
    reliability_band,
)
from prerank.calibration.curves import (
    PITHistogram,
    ReliabilityCurve,
    pit_histogram,
    reliability_curve,
)
from prerank.calibration.error import (
    ProjectedCalibrationError,
    mean_spread,
    pce,
    pce_floor,
    pce_spread,
    tie_error,
    tie_remarks,
)
from prerank.calibration.intervals import ErrorLimits, mean_pce_limits, pce_limits
from prerank.calibration.member_remarks import member_remarks
from prerank.calibration.nulls import component_null, holm, null_pce, p_value
from prerank.calibration.omnibus import OmnibusTest, omnibus_test
from prerank.calibration.shapes import DeviationShape, deviation_shapes, histogram_shapes

__all__ = [
    "DeviationShape",
    "ErrorLimits",
    "HistogramBand",
    "OmnibusTest",
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
    "mean_pce_limits",
    "mean_spread",
    "member_remarks",
    "null_pce",
    "omnibus_test",
    "p_value",
    "pce",
    "pce_floor",
    "pce_limits",
    "pce_spread",
    "pit_histogram",
    "reliability_band",
    "reliability_curve",
    "tie_error",
    "tie_remarks",
]
