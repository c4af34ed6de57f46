"""What a perfect forecast scores on the overlapping test sets of several seeds.

The forecast is a normal distribution with correlations .5, .25, ... between targets, and the
observations are drawn from it. Its PITs, of all pre-ranks that `head.py` judges, are made exactly
uniform over a pool of rows by their ranks, which keeps the dependence between pre-ranks. A
replicate draws a table from the pool, splits it by the seeds as published, and averages the
errors of the test sets as a results table does.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from head import MAX_ROWS, TEST_ROWS, judged_preranks
from prerank import GaussianMixture, pce_floor
from prerank.datasets import published_split
from prerank.pits import project_pits
from prerank.preranks import Projection

POOL, REPLICATES, LEVELS = 10_000, 1_000, 100


@cache
def table_rows(judged: int) -> int:
    """Rows of the table that leaves `judged` test rows, to about 1 in 200.

    Example:
        >>> table_rows(212), table_rows(3_000)
        (1060, 20000)
    """
    if judged == TEST_ROWS:
        return MAX_ROWS
    sizes = ((n, len(published_split(n, seed=0).test)) for n in range(5 * judged, judged, -1))
    return next(n for n, test in sizes if test == judged)


def overlap(judged: int) -> float:
    r"""Judged rows over fitted ones, :math:`n_{test} / n_{train}`.

    Fitted are the rows of training, validation and calibration: all have a part in the forecast.
    """
    n = table_rows(judged)
    return judged / (n - len(published_split(n, seed=0).test))


@cache
def pool(targets: int, rows: int = POOL) -> tuple[list[str], NDArray[np.int64]]:
    """Pre-rank of each component, and the cells of its PITs between levels, `(rows, J)`."""
    place = torch.arange(targets, dtype=torch.float64)
    correlation = 0.5 ** (place[:, None] - place).abs()
    factor = torch.linalg.cholesky(correlation).expand(rows, 1, targets, targets)
    loc = torch.zeros(rows, 1, targets, dtype=torch.float64)
    dist = GaussianMixture(loc[..., 0], loc, factor)
    noise = torch.randn(
        rows, targets, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    y = (factor[:, 0] @ noise)[..., 0]
    labels, ranks = [], []
    for found in project_pits(dist, y, judged_preranks(dist, y), generator=2):
        label = "directions" if isinstance(found.prerank, Projection) else found.prerank.label
        labels += [label] * found.z.shape[-1]
        ranks.append(found.z.argsort(0).argsort(0))
    cells = (torch.cat(ranks, -1) * (LEVELS - 1)).div(rows, rounding_mode="floor")
    return labels, cells.numpy()


@cache
def perfect(
    judged: int,
    targets: int,
    seeds: tuple[int, ...],
    *,
    rows: int = POOL,
    replicates: int = REPLICATES,
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Signed excess and squared error of each pre-rank, means over the seeds.

    Args:
        judged: test rows of a seed.
        targets: D.
        seeds: of the splits.
        rows: of the pool.
        replicates: B.

    Returns:
        Labels of the pre-ranks, excess and squared error, both `(B, pre-ranks)`.
    """
    components, cells = pool(targets, rows)
    labels = list(dict.fromkeys(components))
    members = np.array([[part == label for label in labels] for part in components], float)
    members /= members.sum(0)  # (J, pre-ranks)
    table = table_rows(judged)
    tests = np.stack([published_split(table, seed).test[:judged].numpy() for seed in seeds])
    used, tests = np.unique(tests, return_inverse=True)
    codes = cells + (LEVELS - 1) * np.arange(cells.shape[-1])
    levels = np.linspace(0, 1, LEVELS)[1:]
    draw = np.random.default_rng([judged, targets])
    excess, squared = (np.zeros((replicates, len(components))) for _ in range(2))
    for b in range(replicates):
        drawn = codes[draw.integers(rows, size=len(used))]
        for test in tests.reshape(len(seeds), judged):
            counts = np.bincount(drawn[test].ravel(), minlength=codes.shape[-1] * (LEVELS - 1))
            frequency = counts.reshape(-1, LEVELS - 1).cumsum(-1) / judged
            noise = frequency * (1 - frequency) / (judged - 1)
            # Level 0 never deviates but counts in the mean.
            excess[b] += np.abs(frequency - levels).sum(-1) / LEVELS - pce_floor(judged)
            squared[b] += ((frequency - levels) ** 2 - noise).sum(-1) / LEVELS
    return labels, excess @ members / len(seeds), squared @ members / len(seeds)


def points(
    judged: int, targets: int, seeds: Sequence[int], paper: list[str], unseen: list[str]
) -> dict[str, float]:
    """95 % points of the means of a results table, and the standard deviation of the first."""
    labels, excess, squared = perfect(judged, targets, tuple(seeds))
    kept, rest = ([labels.index(label) for label in some] for some in (paper, unseen))
    mean = excess[:, kept].mean(-1)
    means = {
        "excess": mean,
        "largest": excess[:, kept].max(-1),
        "unseen": excess[:, rest].mean(-1),
        "squared": squared[:, kept].mean(-1),
    }
    return {name: float(np.quantile(x, 0.95)) for name, x in means.items()} | {
        "sd": float(mean.std(ddof=1))
    }
