"""Deprecated: use `prerank.study.engines`."""

from prerank.moved import forward

__getattr__ = forward(__name__, "prerank.study.engines")
