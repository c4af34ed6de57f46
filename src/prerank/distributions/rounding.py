"""What is done to discrete and mixed targets before training, and to forecasts after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions.cells import Atoms, Levels, find_cells
from prerank.distributions.rounded import rounded, snap_columns
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_generator, as_points

__all__ = ["Rounding"]


@dataclass(frozen=True)
class Rounding:
    r"""Spread discrete targets for training, and round the forecasts of the spread ones.

    .. math:: y_i \mapsto z_i \in T^{-1}(y_i) \ \text{at random}, \qquad
              F(z \mid x) \mapsto F_T(y \mid x) \ \text{with}\ y = T(z).

    A forecast that is calibrated for the spread targets gives every value, rounded, its right
    probability. Targets with few values become standard normal over the training rows, atoms
    get room beside the continuous part, and continuous targets stay as they are.

    Args:
        cells: for each target `Levels`, `Atoms` or None; `Rounding.of` finds them.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> y = torch.stack([torch.arange(9999.0).remainder(3), torch.linspace(0, 1, 9999)], 1)
        >>> rounding = Rounding.of(y)
        >>> rounding.words(["grade", "share"])
        ('grade: 3 values',)
        >>> spread = rounding.spread(y, generator=0)  # what to train on
        >>> forecast = MultivariateNormal(spread.mean(0).expand(3, 2), spread.mT.cov())
        >>> rounding(forecast).probabilities(0)[0].round(decimals=1)
        tensor([0.3000, 0.3000, 0.3000], dtype=torch.float64)
        >>> Rounding.from_json(rounding.as_json()).words(["grade", "share"])
        ('grade: 3 values',)
    """

    cells: tuple[Levels | Atoms | None, ...]

    @classmethod
    def of(cls, y: object) -> "Rounding":
        """Find what the targets `(N, D)` of the training rows need; see `find_cells`."""
        return cls(tuple(find_cells(column) for column in _columns(y)))

    @classmethod
    def none(cls, targets: int) -> "Rounding":
        """Leave all targets as they are."""
        return cls((None,) * targets)

    def __bool__(self) -> bool:
        """Whether any target is treated."""
        return any(cells is not None for cells in self.cells)

    def spread(self, y: object, *, generator: torch.Generator | int | None = None) -> Tensor:
        """Continuous targets for rows `(N, D)`, in float64: fresh ones in every call.

        Args:
            y: targets in original units; values that the training rows do not have count as the
                nearest.
            generator: a generator or seed.
        """
        columns = _columns(y)
        if len(columns) != len(self.cells):
            raise ShapeError(f"y has {len(columns)} targets, but {len(self.cells)} were seen")
        source = as_generator(generator, "spread")
        device = columns.device if source is None else source.device
        noise = torch.rand(columns.shape, dtype=columns.dtype, device=device, generator=source)
        parts = zip(self.cells, columns, noise.to(columns.device), strict=True)
        return torch.stack([c.spread(column, u) if c else column for c, column, u in parts], 1)

    def __call__(self, dist: Distribution) -> Distribution:
        """The forecast of the targets, from one of the spread targets.

        `Rounded`, whose `base` is dist; an `Ensemble` of rounded members for an ensemble, and dist
        itself where no target is treated.
        """
        return rounded(dist, self.cells) if self else dist

    def snap(self, points: Tensor) -> Tensor:
        """Values of spread targets `(..., D)`; quantiles of each target move likewise."""
        return snap_columns(points, self.cells)

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """For each target that is treated what it was found to be."""
        treated = zip(names, self.cells, strict=True)
        return tuple(f"{name}: {cells.words()}" for name, cells in treated if cells)

    def as_json(self) -> list[dict[str, Any] | None]:
        """Lists of numbers, for `from_json`."""
        return [None if cells is None else cells.as_json() for cells in self.cells]

    @classmethod
    def from_json(cls, stored: Sequence[dict[str, Any] | None]) -> "Rounding":
        """Read what `as_json` gave.

        Raises:
            InputError: for anything else.
        """
        cells: list[Levels | Atoms | None] = []
        if not isinstance(stored, list | tuple):
            raise InputError(f"stored must be a list with an entry for each target, got {stored!r}")
        for part in stored:
            if part is None:
                cells.append(None)
                continue
            if not isinstance(part, dict):
                raise InputError(
                    f"cannot read the cells of a target: they must be a dict or None, got {part!r}"
                )
            kind = Levels if set(part) == {"values", "edges"} else Atoms
            try:
                cells.append(kind.at(**part))
            except TypeError as error:
                raise InputError(f"cannot read the cells of a target: {error}") from error
        return cls(tuple(cells))


def _columns(y: object) -> Tensor:
    """Targets `(N, D)` in float64, target by target: `(D, N)`."""
    points = as_points(y, "y").double()
    if points.dim() != 2:
        raise ShapeError(f"y must be (N, D), got {tuple(points.shape)}")
    return points.mT.contiguous()
