"""Data to learn from and to test against."""

from prerank.datasets.synthetic import AR1Regression

__all__ = ["AR1Regression"]
