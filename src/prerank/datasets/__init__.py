"""Data to learn from and to test against."""

from prerank.datasets.acquisition import Imported, fetch, import_table
from prerank.datasets.collection import data_folder, load_table, open_dataset, save_table
from prerank.datasets.discrete import snap, spread_ties
from prerank.datasets.preprocessing import PUBLISHED_SEEDS, Split, published_split
from prerank.datasets.registry import DATASETS, Dataset, Origin, find_dataset
from prerank.datasets.synthetic import SYNTHETIC, AR1Regression, OutlierRegression
from prerank.files.dataset_tables import Table
from prerank.files.downloads import FetchError

__all__ = [
    "DATASETS",
    "PUBLISHED_SEEDS",
    "SYNTHETIC",
    "AR1Regression",
    "Dataset",
    "FetchError",
    "Imported",
    "Origin",
    "OutlierRegression",
    "Split",
    "Table",
    "data_folder",
    "fetch",
    "find_dataset",
    "import_table",
    "load_table",
    "open_dataset",
    "published_split",
    "save_table",
    "snap",
    "spread_ties",
]
