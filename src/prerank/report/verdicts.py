"""Deprecated: use `prerank.diagnosis`."""

from prerank.moved import forward

__getattr__ = forward(__name__, "prerank.diagnosis.verdict")
