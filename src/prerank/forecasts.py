"""Deprecated: use `prerank.files`."""

# ruff: noqa: F822 (`__getattr__` finds the names)
from prerank.moved import forward as _forward

__all__ = ["Forecasts", "read_forecasts", "write_samples"]

__getattr__ = _forward(__name__, "prerank.files")
