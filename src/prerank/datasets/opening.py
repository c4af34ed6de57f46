"""Datasets by name: those of known law, and tables in files."""

from prerank.datasets.dataset_tables import Table, load_table
from prerank.datasets.synthetic import AR1Regression, OutlierRegression

__all__ = ["SYNTHETIC", "open_dataset"]

SYNTHETIC: dict[str, AR1Regression | OutlierRegression] = {
    "ar1": AR1Regression(dim=3),
    "outliers": OutlierRegression(dim=3, share=0.05, factor=5.0),
}
"""Problems of known law that need no file, by the names that plans and `open_dataset` use."""

_ROWS, _SEED = 3000, 0


def open_dataset(name: str) -> Table:
    """A table by its name: one of `SYNTHETIC`, with 3,000 rows, or a file in the data folder.

    Example:
        >>> open_dataset("ar1").y.shape
        (3000, 3)
    """
    if name not in SYNTHETIC:
        return load_table(name)
    x, y = (part.float().numpy() for part in SYNTHETIC[name].sample(_ROWS, generator=_SEED))
    inputs, targets = (
        tuple(f"{kind}{i}" for i in range(part.shape[1])) for kind, part in (("x", x), ("y", y))
    )
    return Table(name, x, y, inputs, targets)
