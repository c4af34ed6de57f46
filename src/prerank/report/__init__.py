"""Figures from finished results."""

from prerank.report.captions import reliability_caption
from prerank.report.reliability import ReliabilityDisplay, ReliabilityGrid

__all__ = ["ReliabilityDisplay", "ReliabilityGrid", "reliability_caption"]
