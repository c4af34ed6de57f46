"""Some of many rows, evenly spread, however the rows come."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ThinnedRows"]

_KEPT_ROWS, _KEPT_VALUES = 2**15, 2**22
_MULTIPLIER, _INCREMENT, _MASK = 0x2C1B3C6D, 0x297A2D39, 2**31 - 1  # of a hash


class ThinnedRows:
    """One of every k rows, chosen at random, with k doubled whenever there would be too many.

    The choice depends on the number of the row alone: not every k-th row is taken, since rows may
    repeat, such as the stations of a day.

    Args:
        rows: most rows that are kept.
        values: most values that are kept.
        expected: number of rows that will come here and elsewhere, if it is known.

    Example:
        >>> thinned = ThinnedRows()
        >>> for block in torch.arange(100_000.0).reshape(1, -1, 1).split(30_000, 1):
        ...     thinned.add(block)
        >>> thinned.values.shape, thinned.numbers[:3]
        (torch.Size([1, 25000, 1]), tensor([0, 6, 8]))
    """

    def __init__(
        self, *, rows: int = _KEPT_ROWS, values: int = _KEPT_VALUES, expected: int = 0
    ) -> None:
        self._rows, self._values, self._expected = rows, values, expected
        self._seen, self._every = 0, 1
        self._parts: list[_Kept] = []

    @property
    def values(self) -> Tensor:
        """Those that are kept, `(R, n, J)`."""
        return torch.cat([part.values for part in self._parts], 1)

    @property
    def numbers(self) -> Tensor:
        """The numbers of their rows, `(n,)`."""
        return torch.cat([part.first + part.places for part in self._parts])

    @property
    def kept(self) -> bool:
        """Whether there are any."""
        return bool(self._parts)

    @property
    def whole(self) -> bool:
        """Whether all rows are kept."""
        return self._every == 1

    def add(self, *values: Tensor, coming: int = 0) -> None:
        """Add the values of the next rows.

        Args:
            values: `(R, N, J)`, in one part or more.
            coming: number of rows that are known to follow.
        """
        n, components = values[0].shape[1:]
        sets = sum(map(len, values))
        if self._parts and sets != len(self._parts[0].values):
            return  # they cannot stand beside the others
        most = max(1, min(self._rows, self._values // (sets * components)))
        while max(self._expected, self._seen + n + coming) > most * self._every:
            self._thin(2 * self._every)
        start = self._parts[-1].first if self._parts else 0
        places = _chosen(self._seen - start, self._seen - start + n, self._every)
        at = places - (self._seen - start)
        part = torch.cat([one if self.whole else one[:, at] for one in values])
        self._parts.append(_Kept(part, places, start))
        self._seen += n

    def merge(self, other: "ThinnedRows") -> None:
        """Add the rows that another one keeps, as those that follow."""
        self._thin(max(self._every, other._every))
        for part in other._parts:
            if not self._parts or len(part.values) == len(self._parts[0].values):
                own = part.thinned(self._every)
                self._parts.append(own._replace(first=own.first + self._seen))
        self._seen += other._seen
        sets, _, components = self._parts[0].values.shape if self._parts else (1, 0, 1)
        most = max(1, min(self._rows, self._values // (sets * components)))
        while max(self._expected, self._seen) > most * self._every:
            self._thin(2 * self._every)

    def _thin(self, every: int) -> None:
        if every == self._every:
            return
        self._every = every
        self._parts = [part.thinned(every) for part in self._parts]


class _Kept(NamedTuple):
    """Rows that are kept of a run of rows.

    Attributes:
        values: `(R, n, J)`.
        places: of the rows in the run, `(n,)`.
        first: number of the first row of the run.
    """

    values: Tensor
    places: Tensor
    first: int

    def thinned(self, every: int) -> "_Kept":
        """One of every so many rows of the run."""
        kept = _place_in(self.places // every, every) == self.places
        return self._replace(values=self.values[:, kept], places=self.places[kept])


def _chosen(start: int, stop: int, every: int) -> Tensor:
    """Numbers of the rows from start to stop that are chosen, one of every so many."""
    strata = torch.arange(start // every, -(-stop // every))
    rows = _place_in(strata, every)
    return rows[(rows >= start) & (rows < stop)]


def _place_in(strata: Tensor, every: int) -> Tensor:
    """The row that stands for each stratum of so many rows: that of a random half of it."""
    rows, size = strata, every
    while size > 1:
        mixed = (rows * _MULTIPLIER + size * _INCREMENT) & _MASK
        mixed = ((mixed ^ (mixed >> 15)) * _MULTIPLIER) & _MASK
        rows, size = 2 * rows + ((mixed >> 16) & 1), size // 2
    return rows
