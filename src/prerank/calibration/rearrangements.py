"""PITs of rows put beside the inputs of others, as they might be where both are independent."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from prerank.calibration.dependent_rows import DependentRows

__all__ = ["rearrangements"]


def rearrangements(
    n: int, count: int, rows: DependentRows | None, generator: torch.Generator | None
) -> Iterator[Tensor]:
    r"""Which row's PITs stand beside the inputs of each row, `(n,)`, for each replicate.

    Independent rows are permuted. Times are shifted by one random number of times, no number
    twice, the end of the series followed by its start: what is stationary keeps its dependence.

    .. math:: Z^*_{t,k} = Z_{(t + s) \bmod U, \, k}

    Clusters are permuted as wholes, and the rows of each are shifted in the same way by a number of
    their own: rows that are exchangeable within their cluster, or stationary in the given order,
    keep their dependence. A time or cluster with fewer rows than the one whose place it takes is
    repeated there.

    Args:
        n: number of rows.
        count: of replicates; of times there are one less than times at most.
        rows: which of them depend on each other.
        generator: source of the permutations and shifts.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> hours = row_units([k // 2 for k in range(20)], None, 20)
        >>> [order] = rearrangements(20, 1, hours, torch.Generator().manual_seed(0))
        >>> order[:6]
        tensor([18, 19,  0,  1,  2,  3])
    """
    if rows is None:
        for _ in range(count):
            yield torch.randperm(n, generator=generator)
        return
    units = torch.from_numpy(np.unique(rows.units, return_inverse=True)[1])
    sizes = units.bincount()
    starts, order = sizes.cumsum(0) - sizes, units.argsort(stable=True)
    place = torch.empty_like(units)  # of a row in its unit
    place[order] = torch.arange(n) - starts[units[order]]
    every, turns = torch.arange(len(sizes)), torch.zeros_like(units)
    shifts = torch.randperm(len(sizes) - 1, generator=generator) + 1
    for replicate in range(min(count, len(shifts)) if rows.kind == "time" else count):
        if rows.kind == "time":
            source = (every + shifts[replicate]) % len(sizes)
        else:
            source = torch.randperm(len(sizes), generator=generator)
            turns = (torch.rand(len(sizes), generator=generator) * sizes[source]).long()[units]
        taken = source[units]
        yield order[starts[taken] + (place + turns) % sizes[taken]]
