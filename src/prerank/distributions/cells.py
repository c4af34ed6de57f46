"""Targets with few values or atoms: which part of a continuous axis stands for each value."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.inputs import as_tensor, check_finite

__all__ = ["Atoms", "Cells", "Levels", "find_cells"]

FEW_VALUES = 20
"""A target with at most this many values is discrete."""

ROWS_PER_VALUE = 5
"""Least number of rows for each of them, on average, for an atom and for a continuous part."""

ATOM_SHARE = 0.1
"""Least share of the rows that an atom beside a continuous part holds."""

HEAVY_SHARE = 1 / 3
"""A target with many values, none of them continuous, is discrete if one holds this share."""

_MOST_ODDS = 10.0  # of an atom against the continuous part, for the width of its cell


@dataclass(frozen=True, eq=False)
class Cells:
    r"""A non-decreasing map from the real line to a target: value k on a cell of the line.

    .. math:: T(z) = v_k \ \text{for}\ a_k \le z \le b_k, \qquad
              T(z) = z - (b_k - v_k) \ \text{for}\ b_k < z < a_{k+1}.

    Cells that touch leave no continuous part; between cells that do not touch the map has slope 1,
    so it does not change densities.

    Attributes:
        values: v, increasing, `(K,)`.
        lower: a, `(K,)`; the first may be minus infinity.
        upper: b, `(K,)`; the last may be infinity.

    Example:
        >>> grades = Cells.nearest([1.0, 2.0, 5.0])
        >>> grades.snap(torch.tensor([1.4, 1.6, 9.0]))
        tensor([1., 2., 5.])
    """

    values: Tensor
    lower: Tensor
    upper: Tensor

    @classmethod
    def nearest(cls, values: object) -> "Cells":
        """Cells of the points nearest to each of the values `(K,)`."""
        levels = _as_values(values)
        return cls(levels, *_touching((levels[1:] + levels[:-1]) / 2))

    def moved(self, loc: Tensor, scale: Tensor) -> "Cells":
        """The map of `loc + scale * z` to `loc + scale * T(z)`."""
        parts = (self.values, self.lower, self.upper)
        # The numbers of the moved targets themselves, in their precision: ties stay ties.
        return Cells(*(loc + scale * part.to(scale) for part in parts))

    def snap(self, points: Tensor) -> Tensor:
        """T of points of any shape."""
        values, lower, upper = (part.to(points) for part in self._parts())
        flat = points.contiguous()
        cell = torch.searchsorted(upper, flat)  # the first that does not end before the point
        inside = cell.clamp(max=len(values) - 1)
        between = flat - self._offsets(values, lower, upper)[cell]
        hit = (cell < len(values)) & (flat >= lower[inside])
        return torch.where(hit, values[inside], between)

    def preimage(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Least and largest z up to which T lies below, and not above, targets of any shape."""
        values, lower, upper = (part.to(y) for part in self._parts())
        flat, offsets = y.contiguous(), self._offsets(values, lower, upper)
        infinity = lower.new_full((1,), torch.inf)
        starts, ends = torch.cat([lower, infinity]), torch.cat([-infinity, upper])
        below = torch.searchsorted(values, flat)
        upto = torch.searchsorted(values, flat, right=True)
        # Values that the target does not take lie on an edge, or in the continuous part.
        between = torch.minimum(torch.maximum(flat + offsets[upto], ends[upto]), starts[upto])
        known = upto > below
        return torch.where(known, starts[below], between), torch.where(known, ends[upto], between)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same kind of map, with the same numbers."""
        if type(other) is not type(self):
            return NotImplemented
        return all(torch.equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((type(self), *self.values.tolist()))

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.values, self.lower, self.upper

    @staticmethod
    def _offsets(values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Differences z - T(z) before the first cell and after each, `(K + 1,)`."""
        return torch.cat([lower[:1] - values[:1], upper - values])


@dataclass(frozen=True, eq=False)
class Levels(Cells):
    r"""Cells of a target with few values, as wide as the values are frequent.

    .. math:: b_k = a_{k+1} = \Phi^{-1}(p_1 + \dots + p_k)

    for the shares p of the values. A value is spread over its cell as a standard normal that is
    confined to it, so the spread target is standard normal over all rows, whatever its values.
    """

    @classmethod
    def at(cls, values: object, edges: object) -> "Levels":
        """Values `(K,)` and the K - 1 edges between their cells."""
        levels, between = _as_values(values), _as_numbers(edges, "edges")
        if len(between) != len(levels) - 1 or bool((between.diff() <= 0).any()):
            raise InputError(f"edges must be {len(levels) - 1} increasing numbers, got {edges}")
        return cls(levels, *_touching(between))

    def spread(self, y: Tensor, uniform: Tensor) -> Tensor:
        """A point of the cell of each target, `(N,)`; other values count as the nearest."""
        place = torch.bucketize(y.contiguous(), (self.values[1:] + self.values[:-1]) / 2)
        low, high = (torch.special.ndtr(edge)[place] for edge in (self.lower, self.upper))
        tiny = torch.finfo(y.dtype).eps
        return torch.special.ndtri((low + uniform * (high - low)).clamp(tiny, 1 - tiny))

    def as_json(self) -> dict[str, Any]:
        """What `at` takes."""
        return {"values": self.values.tolist(), "edges": self.upper[:-1].tolist()}

    def words(self) -> str:
        """What it is, in words."""
        if len(self.values) == 1:
            return f"always {self.values[0].item():g}"
        return f"{len(self.values)} values"


@dataclass(frozen=True, eq=False)
class Atoms(Cells):
    r"""Cells of single values beside a continuous part, which they push apart.

    A value with share p of the rows gets a cell of width :math:`\sqrt{2 \pi} s \, p / q`, with the
    share q and the standard deviation s of the continuous part (and p / q of 10 at most): spread
    evenly over it, it is as dense as a normal continuous part is in its middle. The cell of an atom
    that is the least or the largest of all values has no end on that side.

    Attributes:
        widths: of the cells, `(K,)`.
    """

    widths: Tensor

    @classmethod
    def at(cls, values: object, widths: object, *, least: bool, largest: bool) -> "Atoms":
        """Atoms `(K,)`, the widths of their cells, and whether they end the range of the target."""
        atoms, width = _as_values(values), _as_numbers(widths, "widths")
        if width.shape != atoms.shape or not bool((width > 0).all()):
            raise InputError(f"widths must be {len(atoms)} positive numbers, got {widths}")
        pushed = width.cumsum(0)
        lower, upper = atoms + (pushed - width), atoms + pushed
        if least:
            lower[0] = -torch.inf
        if largest:
            upper[-1] = torch.inf
        return cls(atoms, lower, upper, width)

    def spread(self, y: Tensor, uniform: Tensor) -> Tensor:
        """A point of the cell of each atom in targets `(N,)`; other values move aside."""
        least = torch.where(self.lower[0].isinf(), self.values[0], -torch.inf)
        largest = torch.where(self.upper[-1].isinf(), self.values[-1], torch.inf)
        known = y.clamp(least, largest)
        start, _ = self.preimage(known)
        start = torch.where(start.isinf(), known, start)  # open cells are filled beside the others
        place = torch.searchsorted(self.values, known.contiguous()).clamp(max=len(self.values) - 1)
        return start + uniform * torch.where(self.values[place] == known, self.widths[place], 0.0)

    def as_json(self) -> dict[str, Any]:
        """What `at` takes."""
        return {
            "values": self.values.tolist(),
            "widths": self.widths.tolist(),
            "least": bool(self.lower[0].isinf()),
            "largest": bool(self.upper[-1].isinf()),
        }

    def words(self) -> str:
        """What it is, in words."""
        return f"atoms at {', '.join(f'{value:g}' for value in self.values.tolist())}"


def find_cells(y: Tensor, ends: tuple[float, float] | None = None) -> Levels | Atoms | None:
    r"""The cells that a target needs, from its training rows `(N,)`.

    Bounds of the target are atoms if a row has one of them as its value.

    1. At most 20 values, and 5 rows for each on average: the values are `Levels`.
    2. Values with a tenth of the rows, beside more distinct values than half of the other rows (5
       rows of each kind at least): `Atoms` beside a continuous part.
    3. Other repeated values, one of them in a third of the rows, such as counts: `Levels`.
    4. All others, such as finely rounded measurements, are left alone (None): the ties of a value
       with a share p move the PCE of a continuous forecast by about :math:`p^2 / 4`, twice that if
       values are rounded down.

    A constant target is the first case, with one cell: its forecast is that value.

    Example:
        >>> find_cells(torch.arange(100.0).remainder(3)).words()
        '3 values'
        >>> find_cells(torch.cat([torch.zeros(50), torch.linspace(1, 2, 50)])).words()
        'atoms at 0'
        >>> find_cells(torch.linspace(1, 2, 50)) is None
        True
    """
    values, counts = y.double().unique(return_counts=True)
    shares = counts.double() / len(y)
    forced = torch.isin(values, values.new_tensor(ends or ()))
    heavy = (shares >= ATOM_SHARE) & (counts >= ROWS_PER_VALUE) | forced
    few = len(values) <= min(FEW_VALUES, len(y) / ROWS_PER_VALUE)
    rest = int(counts[~heavy].sum())
    repeated = int((~heavy).sum()) <= rest / 2
    if few or (repeated and float(shares.max()) >= HEAVY_SHARE):
        return Levels.at(values, torch.special.ndtri(shares.cumsum(0)[:-1]))
    if repeated:
        heavy, rest = forced, int(counts[~forced].sum())
    if rest < ROWS_PER_VALUE or not bool(heavy.any()):
        return None
    spread = y.double()[~torch.isin(y.double(), values[heavy])].std(correction=0)
    odds = (shares[heavy] / (1 - shares[heavy].sum())).clamp(max=_MOST_ODDS)
    widths = (2 * torch.pi) ** 0.5 * spread * odds
    return Atoms.at(values[heavy], widths, least=bool(heavy[0]), largest=bool(heavy[-1]))


def _as_values(values: object) -> Tensor:
    levels = _as_numbers(values, "values")
    if len(levels) == 0 or bool((levels.diff() <= 0).any()):
        raise InputError(f"values must be increasing numbers, at least one, got {values}")
    return levels


def _as_numbers(values: object, name: str) -> Tensor:
    numbers = as_tensor(values, name).double().reshape(-1)
    check_finite(numbers, name, "leave them out")
    return numbers


def _touching(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of the cells between edges `(K - 1,)`."""
    infinity = edges.new_full((1,), torch.inf)
    return torch.cat([-infinity, edges]), torch.cat([edges, infinity])
