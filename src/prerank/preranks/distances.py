"""Pre-ranks from distances between points: spanning trees, and reference points."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor, check_finite
from prerank.numerics.matrices import pair_distances
from prerank.preranks.base import PreRank
from prerank.preranks.pooled import by_rows

__all__ = ["MinimumSpanningTree", "ReferenceDistance"]

_STREAM = 0x7A52F  # observations that are simulated with the same small seed are not the points


@dataclass(frozen=True)
class MinimumSpanningTree(PreRank):
    r"""Length of the shortest tree through the other members of the pool.

    .. math:: T_i = \min_{\text{trees on } j \ne i} \sum_{(j, k) \in \text{tree}} |p_j - p_k|

    (Smith and Hansen, 2004; Wilks, 2004). A point far from the others leaves a short tree behind:
    a small Z means that the observation is an outlier of its ensemble.

    Sensitive to: bias and too small a spread alike, in all directions at once. Depends on units.
    """

    name: ClassVar[str] = "minimum_spanning_tree"
    divisible: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Leave every member out in turn; weights do not change a tree."""
        return by_rows(_trees, pool, None)


@dataclass(frozen=True, eq=False)
class ReferenceDistance(PreRank):
    r"""Distance of the point to a reference point: :math:`T = |y - r(x)|`.

    The test of accuracy with random points (TARP; Lemos et al., 2023) where r is drawn at random.
    A random r has the mean and the standard deviations of the pool of its row, and so treats the
    observation and the samples alike.

    Sensitive to: bias and wrong spread. Depends on units.

    Args:
        seed: of the random points, which are drawn for all rows at once: that of a row depends on
            how many there are.
        points: `(D,)`, or `(*batch_shape, D)`, instead of random ones. They may depend on the
            inputs, r(x), but not on the observations.

    A forecast that ignores the inputs, such as a climatology, passes with every r that ignores them
    too. A point r(x) on the side to which the inputs lead finds it out.

    Example:
        >>> from prerank.preranks import parse
        >>> parse("reference_distance")[0].label
        'reference_distance'
    """

    seed: int = 0
    points: Tensor | None = None
    name: ClassVar[str] = "reference_distance"
    pooled: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert and check the points."""
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"{self.name} seed must be an int >= 0, got {self.seed!r}")
        if self.points is not None:
            object.__setattr__(self, "points", as_tensor(self.points, "points"))
            check_finite(self.points, "points")

    def check(self, dist: Distribution) -> None:
        """Raise where the points do not fit the targets."""
        if self.points is None:
            return
        shape, dim = self.points.shape, dist.event_shape[0]
        if not shape or shape[-1] != dim or shape[:-1] not in ((), dist.batch_shape):
            raise ShapeError(
                f"{self.name} has points of shape {tuple(shape)}, but dist has batch_shape "
                f"{tuple(dist.batch_shape)} and event_shape ({dim},): points must be (D,) or "
                "(*batch_shape, D)"
            )

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Measure the distance of every member of the pool."""
        at = self._random(pool) if self.points is None else self.points.to(pool)
        squares = (pool - at).double().square()
        return squares.sum(-1, keepdim=True).sqrt().to(pool.dtype)

    def _random(self, pool: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(_STREAM + self.seed)
        # The same for every member of a stack.
        noise = torch.randn(pool.shape[-2:], generator=source, dtype=torch.float64)
        return pool.mean(0) + pool.std(0) * noise.to(pool)

    def __eq__(self, other: object) -> bool:
        """Compare by identity of the points."""
        return (
            isinstance(other, ReferenceDistance)
            and (other.points is self.points)
            and other.seed == self.seed
        )

    def __hash__(self) -> int:
        """Hash by identity of the points."""
        return hash((id(self.points), self.seed))

    @property
    def of_rows(self) -> bool:
        """Whether there is a given point for each row."""
        return self.points is not None and self.points.dim() > 1

    def for_rows(self, rows: Tensor) -> "ReferenceDistance":
        """The distance to the given points of some rows."""
        if self.points is None or not self.of_rows:
            return self
        return replace(self, points=self.points[rows.to(self.points.device)])

    @property
    def label(self) -> str:
        """The name, with the seed of random points where it is not 0."""
        return f"{self.name}({self.seed})" if self.seed else self.name


def _trees(points: Tensor, share: Tensor | None) -> Tensor:
    """Lengths of the trees without each member, by the method of Prim: `(rows, S + 1, 1)`."""
    exact = points.double()  # and rounded: equal trees added in another order must stay tied
    distance = pair_distances(exact, exact)
    rows, size, _ = distance.shape
    left_out = torch.arange(size, device=points.device)
    start = (left_out == 0).long()  # the first member that is not left out
    reached = torch.eye(size, dtype=torch.bool, device=points.device).repeat(rows, 1, 1)
    reached[:, left_out, start] = True
    nearest = distance[:, start]  # (rows, left out, member): distance to the tree
    total = distance.new_zeros(rows, size)
    for _ in range(size - 2):
        gap, member = nearest.masked_fill(reached, torch.inf).min(-1)
        total += gap
        reached.scatter_(-1, member.unsqueeze(-1), value=True)
        new = distance.gather(1, member.unsqueeze(-1).expand(-1, -1, size))
        nearest = torch.minimum(nearest, new)
    unit = 2.0**-40 * distance.amax((-2, -1)).clamp_min(torch.finfo(torch.float64).tiny)
    rounded = (total / unit.unsqueeze(-1)).round() * unit.unsqueeze(-1)
    return rounded.to(points.dtype).unsqueeze(-1)
