"""Data to learn from and to test against."""

from prerank.datasets.dataset_tables import Table, data_folder, load_table, save_table
from prerank.datasets.description import Dataset, Origin
from prerank.datasets.discrete import snap, spread_ties
from prerank.datasets.fetching import FetchError, fetch
from prerank.datasets.importing import Imported, import_table
from prerank.datasets.opening import SYNTHETIC, open_dataset
from prerank.datasets.registry import DATASETS, find_dataset
from prerank.datasets.splits import PUBLISHED_SEEDS, Split, published_split
from prerank.datasets.synthetic import AR1Regression, OutlierRegression

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
