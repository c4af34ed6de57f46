"""Deprecated: use `prerank.files`."""

from prerank.moved import forward

__getattr__ = forward(__name__, "prerank.files")
