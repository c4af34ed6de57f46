"""What is done to discrete, mixed and bounded targets before training, and to forecasts after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions.bounded import Link, bounded, link_columns
from prerank.distributions.cells import Atoms, Levels, find_cells
from prerank.distributions.rounded import rounded, snap_columns
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_generator, as_points

__all__ = ["Rounding"]


@dataclass(frozen=True)
class Rounding:
    r"""Spread discrete targets for training, and round the forecasts of the spread ones.

    Targets with bounds are taken to the real line, and their forecasts back.

    .. math:: y_i \mapsto z_i \in T^{-1}(y_i) \ \text{at random}, \qquad
              F(z \mid x) \mapsto F_T(y \mid x) \ \text{with}\ y = T(z).

    A forecast that is calibrated for the spread targets gives every value, rounded, its right
    probability. Targets with few values become standard normal over the training rows, atoms
    get room beside the continuous part, and continuous targets stay as they are. A bound that is a
    value of some rows is an atom; towards one that is not, a `Link` makes room without end.

    Args:
        cells: for each target `Levels`, `Atoms` or None; `Rounding.of` finds them.
        links: for each target a `Link` or None; none by default.

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
    links: tuple[Link | None, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", self.links or (None,) * len(self.cells))

    @classmethod
    def of(
        cls,
        y: object,
        *,
        bounds: Mapping[int, tuple[float, float]] | None = None,
        names: Sequence[str] | None = None,
        discrete: bool = True,
    ) -> "Rounding":
        """Find what the targets of the training rows need; see `find_cells`.

        Args:
            y: targets `(N, D)`.
            bounds: lower and upper bound by the number of the target; infinite where it has none.
            names: of the targets, for messages.
            discrete: False looks for no values or atoms.

        Raises:
            InputError: for targets beyond their bounds, and on them if discrete is False.
        """
        columns, ends = _columns(y), bounds or {}
        names = [f"y{d}" for d in range(len(columns))] if names is None else names
        cells, links = [], []
        for d, (name, column) in enumerate(zip(names, columns, strict=True)):
            own = ends.get(d)
            if own is not None:
                _check_within(column, own, name)
            cells.append(find_cells(column, own) if discrete else None)
            links.append(None if own is None else _link(column, cells[d], own, name))
        return cls(tuple(cells), tuple(links))

    @classmethod
    def none(cls, targets: int) -> "Rounding":
        """Leave all targets as they are."""
        return cls((None,) * targets)

    def __bool__(self) -> bool:
        """Whether any target is treated."""
        return any(self.treated)

    @property
    def treated(self) -> tuple[bool, ...]:
        """Whether each target is treated."""
        pairs = zip(self.cells, self.links, strict=True)
        return tuple(cells is not None or link is not None for cells, link in pairs)

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
        spread = [c.spread(column, u) if c else column for c, column, u in parts]
        pairs = zip(self.links, spread, strict=True)
        return torch.stack([link.points(part) if link else part for link, part in pairs], 1)

    def __call__(self, dist: Distribution) -> Distribution:
        """The forecast of the targets, from one of the spread targets.

        `Rounded`, whose `base` is dist, or the `Bounded` distribution of dist; that alone where no
        target is discrete; an `Ensemble` for an ensemble, and dist itself where no target is
        treated.
        """
        if any(self.links):
            dist = bounded(dist, self.links)
        return rounded(dist, self.cells) if any(self.cells) else dist

    def snap(self, points: Tensor) -> Tensor:
        """Values of spread targets `(..., D)`; quantiles of each target move likewise."""
        return snap_columns(link_columns(points, self.links), self.cells)

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """For each target that is treated what it was found to be."""
        treated = zip(names, self.cells, strict=True)
        return tuple(f"{name}: {cells.words()}" for name, cells in treated if cells)

    def as_json(self) -> list[dict[str, Any] | None]:
        """Lists of numbers, for `from_json`."""
        stored: list[dict[str, Any] | None] = []
        for cells, link in zip(self.cells, self.links, strict=True):
            own = {} if cells is None else cells.as_json()
            stored.append(own | ({} if link is None else {"link": link.as_json()}) or None)
        return stored

    @classmethod
    def from_json(cls, stored: Sequence[dict[str, Any] | None]) -> "Rounding":
        """Read what `as_json` gave.

        Raises:
            InputError: for anything else.
        """
        cells: list[Levels | Atoms | None] = []
        links: list[Link | None] = []
        if not isinstance(stored, list | tuple):
            raise InputError(f"stored must be a list with an entry for each target, got {stored!r}")
        for part in stored:
            if part is None:
                cells.append(None)
                links.append(None)
                continue
            if not isinstance(part, dict):
                raise InputError(
                    f"cannot read the cells of a target: they must be a dict or None, got {part!r}"
                )
            own = {key: value for key, value in part.items() if key != "link"}
            kind = Levels if set(own) == {"values", "edges"} else Atoms
            try:
                links.append(Link.from_json(part["link"]) if "link" in part else None)
                cells.append(kind.at(**own) if own or "link" not in part else None)
            except TypeError as error:
                raise InputError(f"cannot read the cells of a target: {error}") from error
        return cls(tuple(cells), tuple(links))


def _columns(y: object) -> Tensor:
    """Targets `(N, D)` in float64, target by target: `(D, N)`."""
    points = as_points(y, "y").double()
    if points.dim() != 2:
        raise ShapeError(f"y must be (N, D), got {tuple(points.shape)}")
    return points.mT.contiguous()


def _check_within(column: Tensor, ends: tuple[float, float], name: str) -> None:
    """Refuse values of a target beyond its bounds."""
    low, high = ends
    outside = (column < low) | (column > high)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise InputError(
            f"{name!r} has {int(outside.sum())} values outside its bounds {low:g} to {high:g}, the "
            f"first in row {row} ({float(column[row]):g}): correct them, leave these rows out or "
            "widen the bounds"
        )


def _link(
    column: Tensor, cells: Levels | Atoms | None, ends: tuple[float, float], name: str
) -> Link | None:
    """What keeps a target within the bounds towards which its cells leave it free."""
    low, high = ends
    if isinstance(cells, Levels):  # forecasts take the values that were seen
        return None
    if cells is None:
        reached = [end for end in ends if bool((column == end).any())]
        if reached:
            raise InputError(
                f"{name!r} has rows on its bound {reached[0]:g}, so that this value has a "
                "probability of its own: leave discrete at 'auto', or widen the bounds"
            )
    else:  # atoms push the values above them aside
        low = -inf if cells.lower[0].isinf() else _start(cells, low)
        high = inf if cells.upper[-1].isinf() else _start(cells, high)
    if not (isfinite(low) or isfinite(high)):
        return None
    return Link(low, high, float(column.std(correction=0)) or 1.0)


def _start(cells: Atoms, end: float) -> float:
    """Where a bound lies on the axis of spread targets."""
    return float(cells.preimage(cells.values.new_tensor([end]))[0]) if isfinite(end) else end
