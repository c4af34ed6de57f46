"""Deprecated: use `prerank.diagnosis`."""

# ruff: noqa: F822 (`__getattr__` finds the names)
from prerank.moved import forward as _forward

__all__ = ["Mood", "Verdict", "reach_verdict"]

__getattr__ = _forward(__name__, "prerank.diagnosis.verdict")
