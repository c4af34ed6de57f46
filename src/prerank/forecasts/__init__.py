"""Predictions made elsewhere, read from files."""

from prerank.forecasts.reading import read_forecasts
from prerank.forecasts.records import Forecasts
from prerank.forecasts.writing import write_samples

__all__ = ["Forecasts", "read_forecasts", "write_samples"]
