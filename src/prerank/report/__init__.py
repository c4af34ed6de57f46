"""Figures from finished results."""

from typing import TYPE_CHECKING

from prerank.lazy_names import names_from

if TYPE_CHECKING:
    from prerank.report.corners import CornerDisplay
    from prerank.report.evidence_paths import EvidenceDisplay
    from prerank.report.histogram_display import PITHistogramDisplay
    from prerank.report.prediction_maps import PredictionDisplay
    from prerank.report.reliability import ReliabilityDisplay, ReliabilityGrid
    from prerank.report.small_multiples import HistogramGrid
    from prerank.report.station_map import StationDisplay
    from prerank.report.timelines import TimelineDisplay
    from prerank.report.traces import SelectionDisplay
    from prerank.report.wording import reliability_caption

__all__ = [
    "CornerDisplay",
    "EvidenceDisplay",
    "HistogramGrid",
    "PITHistogramDisplay",
    "PredictionDisplay",
    "ReliabilityDisplay",
    "ReliabilityGrid",
    "SelectionDisplay",
    "StationDisplay",
    "TimelineDisplay",
    "reliability_caption",
]

__getattr__ = names_from(
    __name__,
    "wording",
    "corners",
    "evidence_paths",
    "histogram_display",
    "prediction_maps",
    "reliability",
    "small_multiples",
    "station_map",
    "timelines",
    "traces",
)
