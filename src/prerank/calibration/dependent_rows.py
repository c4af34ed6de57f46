r"""Rows that depend on each other, in time or within clusters, and their cosine projections.

Let :math:`s_u(\alpha) = \sum_{i \in u} (1\{Z_i \le \alpha\} - \alpha)` be the deviation of unit u
(all rows of one time, or one cluster), for U units in order. Its cosine projections

.. math:: \Lambda_b(\alpha) = \frac{\sqrt 2}{n} \sum_{u=1}^{U}
          \cos\Big(\pi b \frac{u - 1/2}{U}\Big) s_u(\alpha), \qquad b = 1, \dots, B,

have about the variance of :math:`\Lambda_0 = \hat F_Z(\alpha) - \alpha` and are independent of it
and of each other: of a stationary series where B is small beside U (Müller 2007), and of
independent clusters for B = U - 1.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.curves import level_grid, level_index
from prerank.defaults import LEVELS
from prerank.errors import InputError
from prerank.inputs import as_labels, as_ranks

__all__ = ["CountedUnits", "DependentRows", "UnitCounts", "columns_of", "row_units"]

FEWEST_UNITS = 10
"""Fewest different times or clusters for which there are p-values."""

_FEWEST_EQUAL = 5  # equal clusters that clusters of different sizes are worth
_TIMES, _MOST_COSINES = 20, 16  # of a series: more cosines are biased by its dependence
_MOST_CELLS = {"time": 2048, "cluster": 256, "row": 256}  # units are added up to so many


@dataclass(frozen=True, eq=False)
class DependentRows:
    """Which rows may depend on each other.

    Attributes:
        kind: `"time"` where rows of equal and of neighbouring times may depend on each other,
            `"cluster"` where those of one cluster may, `"row"` where none do.
        units: `(N,)`, number of the time, in order, or of the cluster of each row, from 0.

    Example:
        >>> rows = row_units(["2024-01-02", "2024-01-01"] * 50, None, 100)
        Traceback (most recent call last):
        prerank.errors.InputError: time has 2 different values, and p-values need at least 10: ...
        >>> rows = row_units(range(500), None, 500)
        >>> rows.count, rows.degrees, rows.assumption
        (500, 16, 'rows in time order, 500 times, 16 degrees of freedom')
    """

    kind: Literal["time", "cluster", "row"]
    units: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """Number of units."""
        return int(self.units.max()) + 1

    @cached_property
    def cells(self) -> Tensor:
        """`(N,)`, units added up where there are many: neighbours in time, any clusters."""
        most, count = _MOST_CELLS[self.kind], self.count
        if count <= most:
            return torch.from_numpy(self.units)
        folded = self.units * most // count if self.kind == "time" else self.units % most
        return torch.from_numpy(folded)

    @property
    def degrees(self) -> int:
        """B, the number of cosines: for a series U / 20, from 2 to 16, for clusters U - 1."""
        if self.kind == "time":
            return max(2, min(_MOST_COSINES, self.count // _TIMES))
        return min(self.count, _MOST_CELLS[self.kind]) - 1

    @cached_property
    def width(self) -> tuple[int, float]:
        r"""Degrees of freedom of widths around the estimate, and their factor.

        .. math:: \nu = E - 1, \qquad \sqrt{\frac{E}{E - 1} \cdot \frac{U - 1}{U}}, \qquad
                  E = \frac{(\sum_u n_u^2)^2}{\sum_u n_u^4}

        for clusters of sizes :math:`n_u`: large ones decide the estimate around which they vary.
        Equal ones have E = U. For times these are B and 1.
        """
        if self.kind != "cluster":
            return self.degrees, 1.0
        equal, count = _equal_clusters(torch.bincount(self.cells).numpy()), self.degrees + 1
        return max(1, round(equal) - 1), math.sqrt(equal / (equal - 1) * (count - 1) / count)

    @property
    def assumption(self) -> str:
        """What is assumed, in words."""
        if self.kind == "row":
            return "independent rows"
        start = "rows in time order" if self.kind == "time" else "rows in clusters"
        return f"{start}, {self.count:,} {self.kind}s, {self.degrees} degrees of freedom"

    @property
    def method(self) -> str:
        """The assumption in short, for a table."""
        words = {"time": "time order", "cluster": "clusters", "row": "independent rows"}
        return words[self.kind]

    def of_rows(
        self, rows: Tensor, place: str = "", remedy: str = "leave it out,"
    ) -> "DependentRows":
        """Some of the rows, by their numbers.

        Args:
            rows: their numbers.
            place: where they are, for the message if they are of too few units.
            remedy: what to do then, likewise.
        """
        chosen = self.units[rows.cpu().numpy()]
        units = np.unique(chosen, return_inverse=True)[1].astype(np.int64)
        _check_count(self.kind, units, place, remedy)
        return DependentRows(self.kind, units)

    def projections(self, values: Tensor, *, total: float | None = None) -> Tensor:
        """Cosine projections of values of the rows, `(N, ...)`, as `(B + 1, ...)`.

        Args:
            values: their first axis is that of the rows.
            total: divisor of the sums; the number of rows by default.
        """
        cells = int(self.cells.max()) + 1
        sums = values.new_zeros(cells, *values.shape[1:])
        sums.index_add_(0, self.cells.to(values.device), values)
        cosines = _cosines(cells, self.degrees).to(values)
        return torch.tensordot(cosines, sums, 1) / (len(values) if total is None else total)

    def row_cosines(self) -> Tensor:
        """Value of each cosine in each row, `(B + 1, N)`; the first is 1."""
        return _cosines(int(self.cells.max()) + 1, self.degrees)[:, self.cells]

    def curves(
        self, z: "Tensor | UnitCounts", *, levels: int = LEVELS, centred: bool = False
    ) -> Tensor:
        """Projections of the deviations of one component's PITs, `(N,)`, as `(B + 1, L)`.

        Args:
            z: PITs, or their counts.
            levels: number of levels.
            centred: around the empirical CDF; the first row stays the deviation from uniform.
        """
        counts = self._counts_below(z, levels) if isinstance(z, Tensor) else z.below(levels)
        rows = counts[:, -1]
        n = rows.sum()
        grid = level_grid(levels).to(counts.device)
        observed = counts.sum(0) / n
        centre = observed if centred else grid
        deviations = counts - rows.unsqueeze(-1) * centre
        projected = _cosines(len(counts), self.degrees).to(deviations) @ deviations / n
        projected[0] = observed - grid
        return projected

    def _counts_below(self, z: Tensor, levels: int) -> Tensor:
        """Number of the PITs `(N,)` of each unit at or below each level, `(units, L)`."""
        cells = self.cells.to(z.device)
        size = int(cells.max()) + 1
        keys = cells * levels + level_index(z, levels)
        counts = torch.bincount(keys, minlength=size * levels).reshape(size, levels)
        return counts.double().cumsum(-1)


class UnitCounts(NamedTuple):
    """How many PITs of one component each unit has between edges.

    Attributes:
        counts: `(units, L)`, of `DependentRows.cells`; a PIT on an edge counts below it.
        edges: upper ends of the cells, `(L,)`.
    """

    counts: Tensor
    edges: Tensor

    def below(self, levels: int) -> Tensor:
        """Number at or below each level of an even grid that is among the edges."""
        at = torch.searchsorted(self.edges, level_grid(levels))
        return self.counts.double().cumsum(-1)[:, at]


def columns_of(z: "Tensor | CountedUnits") -> Iterable["Tensor | UnitCounts"]:
    """Each component of PITs `(N, J)`, or of their counts."""
    return z.double().unbind(-1) if isinstance(z, Tensor) else z.in_units()


class CountedUnits(Protocol):
    """Counts of PITs of several components by unit."""

    def __len__(self) -> int: ...

    def in_units(self) -> Iterable[UnitCounts]:
        """Those of each component."""


def row_units(time: object, cluster: object, n: int, place: str = "") -> DependentRows | None:
    """Read the arguments `time` and `cluster` of a diagnosis; None where both are left out.

    Args:
        time: of each row: numbers or dates, also as text.
        cluster: label of each row.
        n: number of rows.
        place: which rows these are, for messages.
    """
    if time is not None and cluster is not None:
        raise InputError(
            "time and cluster exclude each other. time allows rows of the same and of neighbouring "
            "times to depend on each other, whatever they have in common besides; cluster allows "
            "any dependence within a cluster, and none between clusters: give the one that holds"
        )
    if time is not None:
        units = as_ranks(as_labels(time, "time", n), "time")
        return _check_count("time", units, place)
    if cluster is not None:
        labels = as_labels(cluster, "cluster", n).astype(str)
        codes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        return _check_count("cluster", codes, place)
    return None


def _check_count(
    kind: Literal["time", "cluster", "row"],
    units: npt.NDArray[np.int64],
    place: str,
    remedy: str = "leave it out,",
) -> DependentRows:
    count = len(np.unique(units))
    if count < FEWEST_UNITS:
        raise InputError(
            f"{kind} has {count} different values{place}, and p-values need at least "
            f"{FEWEST_UNITS}: {remedy} and judge by the size of the excess"
        )
    equal = _equal_clusters(np.bincount(units))
    if kind == "cluster" and equal < _FEWEST_EQUAL:
        raise InputError(
            f"cluster sizes{place} are too unequal for valid p-values: the effective number of "
            f"clusters is {equal:.1f}, and at least {_FEWEST_EQUAL} are needed; judge by the size "
            "of the excess"
        )
    return DependentRows(kind, units)


def _equal_clusters(sizes: npt.NDArray[np.int64]) -> float:
    """E, the number of equal clusters whose squared sizes vary as these do."""
    squares = np.square(sizes.astype(float))
    return float(squares.sum() ** 2 / np.square(squares).sum())


@lru_cache(maxsize=32)
def _cosines(cells: int, degrees: int) -> Tensor:
    """`(degrees + 1, cells)`, the first row of ones."""
    place = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    order = torch.arange(degrees + 1, dtype=torch.float64).unsqueeze(-1)
    waves = math.sqrt(2) * torch.cos(math.pi * order * place)
    waves[0] = 1
    return waves
