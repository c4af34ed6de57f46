"""Folds of rows: at random, of whole groups, or of neighbours in time."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.inputs import as_count, as_labels, as_ranks

__all__ = ["copied_rows", "draw_folds", "fewer_folds"]

_COPIED = 0.05  # share of rows that are copies, below which what they give away is little
_DIFFERENT = 0.95  # share of different values from which on a target is continuous
_FEWEST = 10  # different rows that can be divided


def draw_folds(
    n: int,
    *,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    groups: object = None,
    time: object = None,
) -> Tensor:
    """Number of the fold of each row, `(repeats, n)`.

    Rows are spread at random, another time for each repeat. Rows of one group share a fold: the
    largest group goes first, each into the fold with the fewest rows. With `time`, a fold is one
    block of neighbouring rows, and rows of one time share a fold; in repeats after the first the
    blocks begin elsewhere, and one of them holds both ends.

    Args:
        n: number of rows.
        folds: K, at least 2.
        repeats: R.
        seed: of the order of rows.
        groups: name of each row's group, `(n,)`.
        time: time of each row, `(n,)`: numbers or dates.

    Example:
        >>> draw_folds(7, folds=3)[0].bincount()
        tensor([3, 2, 2])
    """
    as_count(folds, "folds", minimum=2)
    as_count(repeats, "repeats", minimum=1)
    if groups is not None and time is not None:
        raise InputError("give groups or time, not both")
    if n < 2 * folds:
        raise InputError(f"{n} rows are too few for {folds} folds: each needs at least 2")
    draw = torch.Generator().manual_seed(seed)
    if time is not None:
        rank = torch.as_tensor(as_ranks(as_labels(time, "time", n), "time"))
        if int(rank.max()) + 1 < folds:
            raise InputError(
                f"time has {int(rank.max()) + 1} different values, fewer than the {folds} parts "
                "that the rows are divided into: give finer times, or leave time out"
            )
        place = (rank.bincount().cumsum(0) - rank.bincount())[rank]  # rows of one time share it
        starts = [int(torch.randint(n, (), generator=draw)) if r else 0 for r in range(repeats)]
        return torch.stack([(place + start) % n * folds // n for start in starts])
    if groups is None:
        orders = [torch.randperm(n, generator=draw) for _ in range(repeats)]
        return torch.stack([order.argsort() % folds for order in orders])
    _, member = np.unique(as_labels(groups, "groups", n).astype(str), return_inverse=True)
    group = torch.as_tensor(member)
    sizes = group.bincount()
    if len(sizes) < folds:
        raise InputError(
            f"groups has {len(sizes)} groups, fewer than the {folds} folds: give finer groups, "
            "fewer folds, or leave groups out"
        )
    return torch.stack([_spread(sizes, folds, draw)[group] for _ in range(repeats)])


def fewer_folds(folds: int, groups: object) -> int:
    """As many folds as there are groups, where these are fewer; at least 3.

    Example:
        >>> fewer_folds(5, ["a", "b", "c", "d", "a"]), fewer_folds(5, None)
        (4, 5)
    """
    if groups is None:
        return folds
    return max(3, min(folds, len(set(map(str, np.atleast_1d(np.asarray(groups)))))))


def copied_rows(
    inputs: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64] | None:
    """Label of each row that it shares with its copies, `(n,)`; None where rows are no copies.

    Rows that are equal by chance are legitimate: they have discrete targets, which are also equal
    in rows that are not. Where the values of a target differ between rows that differ at all, equal
    rows are copies, and a copy among held-out rows says nothing of what is new.

    Args:
        inputs: `(n, L)`.
        targets: `(n, D)`.

    Example:
        >>> x, y = np.zeros((24, 1)), np.arange(24.0)[:, None] % 12
        >>> copied_rows(x, y)[[0, 1, 12, 13]], copied_rows(np.arange(24.0)[:, None], y)
        (array([0, 1, 0, 1]), None)
    """
    n = len(targets)
    if any(len(np.unique(column)) > (1 - _COPIED) * n for column in targets.T):
        return None
    together = np.column_stack([targets, inputs])
    rows, label = np.unique(together, axis=0, return_inverse=True)
    values = max(len(np.unique(column)) for column in rows[:, : targets.shape[1]].T)
    copied = max(_FEWEST, _DIFFERENT * len(rows)) <= values and len(rows) < n
    return label.ravel() if copied else None


def _spread(sizes: Tensor, folds: int, draw: torch.Generator) -> Tensor:
    """Fold of each group; groups of one size come in random order."""
    order = torch.randperm(len(sizes), generator=draw)
    order = order[sizes[order].argsort(descending=True, stable=True)]
    filled, fold = torch.zeros(folds, dtype=torch.int64), torch.empty_like(sizes)
    for group in order.tolist():
        least = int(filled.argmin())
        fold[group] = least
        filled[least] += sizes[group]
    return fold
