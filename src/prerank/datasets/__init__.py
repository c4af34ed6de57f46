"""Data to learn from and to test against."""

from prerank.datasets.splits import PUBLISHED_SEEDS, Split, published_split
from prerank.datasets.synthetic import AR1Regression, OutlierRegression
from prerank.datasets.tables import Table, load_table

__all__ = [
    "PUBLISHED_SEEDS",
    "AR1Regression",
    "OutlierRegression",
    "Split",
    "Table",
    "load_table",
    "published_split",
]
