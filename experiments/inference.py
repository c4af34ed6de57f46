r"""Tests and intervals for means over splits of one dataset, and over datasets.

Seeds split one dataset again, so their test rows overlap and their results depend on each other.
With J splits, a ratio r of test rows to fitted rows and the standard deviation s of a difference
over the splits, Nadeau and Bengio (2003) take

.. math:: t = \frac{\bar d}{s \, (1/J + r)^{1/2}}

as Student's t with J - 1 degrees of freedom.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from prerank.datasets import find_dataset, published_split

LEVEL = 0.05
REPLICATES = 10_000


@cache
def split_ratio(dataset: str) -> float:
    r"""Rows that a study judges over those that it fits, :math:`n_{test} / (n_{train} + n_{val})`.

    Validation rows stop the training and choose the strength: they have a part in the fit.

    Example:
        >>> round(split_ratio("air"), 3)
        0.411
    """
    split = published_split(find_dataset(dataset).n_rows, seed=0)
    return len(split.test) / (len(split.train) + len(split.validation))


def overlap_p(mean: object, error: object, runs: int, ratio: object) -> NDArray[np.float64]:
    """Two-sided p-values of means over overlapping splits.

    Args:
        mean: of a difference over the runs.
        error: its standard error, were the runs independent.
        runs: J.
        ratio: of test rows to fitted rows.

    Example:
        >>> overlap_p([1.0, 0.0], [0.2, 0.0], 5, 0.4).round(3)
        array([0.045, 1.   ])
    """
    found, spread, r = (np.asarray(value, float) for value in (mean, error, ratio))
    scale = spread * np.sqrt(1 + runs * r)
    t = np.divide(found, scale, out=np.zeros_like(found), where=found != 0)
    return np.asarray(2 * stats.t.sf(np.abs(t), runs - 1))


def adjusted(p_values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """P-values after Benjamini and Hochberg: below .05, the false discovery rate is."""
    return np.asarray(stats.false_discovery_control(p_values))


def judged_gains(after: pd.DataFrame) -> pd.DataFrame:
    """Trained cells of an `after` table, with the `p_value` of the gain.

    Args:
        after: `dataset`, `strength`, `gain`, `gain_se` and `runs`, as `prerank.study.tables.after`
            has them. Where no strength was selected there is nothing to test.
    """
    cells = after[after.gain.notna() & (after.strength > 0)].copy()
    ratios = cells.dataset.map(split_ratio)
    cells["p_value"] = overlap_p(cells.gain, cells.gain_se, int(cells.runs.iloc[0]), ratios)
    return cells


def dataset_interval(values: pd.Series, statistic: str = "median") -> tuple[float, float]:
    """95 % interval of a statistic of cells, from a bootstrap that draws whole datasets.

    Args:
        values: of the cells, whose index has a level `dataset`.
        statistic: `"median"` or `"mean"`.

    Example:
        >>> names = pd.Index(["a", "a", "b", "c"], name="dataset")
        >>> dataset_interval(pd.Series([1.0, 2.0, 3.0, 4.0], names))
        (1.5, 4.0)
    """
    groups = [group.to_numpy() for _, group in values.groupby("dataset")]
    draws = np.random.default_rng(0).integers(len(groups), size=(REPLICATES, len(groups)))
    reduce = {"median": np.median, "mean": np.mean}[statistic]
    found = [reduce(np.concatenate([groups[place] for place in draw])) for draw in draws]
    low, high = np.quantile(found, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)
