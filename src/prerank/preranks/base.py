"""What a pre-rank is: a small frozen object that turns points into numbers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Draws
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.numerics import row_blocks

__all__ = ["Custom", "Linear", "PreRank", "Reference"]

_FEW_TARGETS = 4  # up to which torch adds in the same order


class Reference(NamedTuple):
    """What points are compared with in a smooth, pooled pre-rank.

    In evaluation the points of a pool are compared with each other. In training some of the draws
    are held out instead, as references that are not ranked themselves. Given them, T looks at one
    point at a time, so the observation and the ranked draws stay exchangeable, and the cost falls
    from S^2 comparisons to S R.

    Attributes:
        draws: R held-out draws `(R, *batch_shape, D)` and their weights; all draws for a pre-rank
            that is not pooled.
        widths: `(*batch_shape, D)`, of smooth comparisons, in units of the targets.
        uniform: `(S + 1, *batch_shape)`, to break ties.
        weights: `(S + 1, *batch_shape)`, of the points, or None where they are equal.
    """

    draws: Draws
    widths: Tensor
    uniform: Tensor
    weights: Tensor | None


@dataclass(frozen=True)
class PreRank(ABC):
    r"""Map from points to J numbers each, :math:`T = \rho(x, y)`.

    A pre-rank sees the *pool*: the observation, then the S samples of the same row. It must
    treat the members of the pool alike. Then, if y follows the predictive law, the S + 1 values
    of T are exchangeable and the rank of the observation is uniform. A pre-rank that looks at
    each point alone satisfies this trivially; one that looks at the others too (copula, depth,
    sample principal components) satisfies it by never asking which member is the observation.

    Class attributes declare what a pre-rank needs and can do.

    Attributes:
        name: the word that `parse` knows.
        needs_log_prob: T uses the predictive density.
        linear: T is a linear map of y, so a closed form may exist.
        pooled: T of one point depends on the other points of its pool.
        differentiable: `smooth_project` has a gradient with respect to the points.
        homogeneous: the ranks of T stay the same if all points of a row, and its distribution,
            are multiplied by one positive number.
        divisible: T is defined for some of the targets of an event as for all of them, if `check`
            accepts the distribution of these. Rows without all targets are left out of others.
        unitless: likewise, if each target is multiplied by a positive number of its own.
    """

    name: ClassVar[str]
    needs_log_prob: ClassVar[bool] = False
    linear: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = False
    divisible: ClassVar[bool] = False
    unitless: ClassVar[bool] = False

    @abstractmethod
    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Compute T for every member of the pool.

        Args:
            pool: `(S + 1, *batch_shape, D)`, the observation first.
            dist: the predictive distribution.
            weights: `(S + 1, *batch_shape)` where members count unequally, else None.

        Returns:
            `(S + 1, *batch_shape, J)`.
        """

    def smooth_project(self, points: Tensor, dist: Distribution, reference: "Reference") -> Tensor:
        """Compute T with useful gradients.

        Args:
            points: `(S + 1, *batch_shape, D)`, the observation first.
            dist: the predictive distribution.
            reference: what a pooled pre-rank compares the points with, and the weights of points.
        """
        return self.project(points, dist, reference.weights)

    def check(self, dist: Distribution) -> None:
        """Raise `NotApplicableError` where this pre-rank says nothing about `dist`."""

    def component_names(self, targets: Sequence[str], size: int) -> list[str]:
        """Name the J components, given the names of the targets."""
        return [str(j) for j in range(size)]

    @property
    def of_rows(self) -> bool:
        """Whether it holds something for each row, and so belongs to these rows alone."""
        return False

    def for_rows(self, rows: Tensor) -> "PreRank":
        """The same for some of the rows, by their numbers `(n,)`, where it holds something of each.

        Args:
            rows: of a distribution of `batch_shape (N,)`.
        """
        return self

    @property
    def label(self) -> str:
        """How it is called in tables; `parse` reads it, except for code and directions."""
        changed = [
            str(getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default
        ]
        return f"{self.name}({', '.join(changed)})" if changed else self.name


@dataclass(frozen=True)
class Linear(PreRank):
    r"""Pre-rank of the form :math:`T_j = v_j(x) \cdot y`."""

    linear: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True

    @abstractmethod
    def directions(
        self, dist: Distribution, pool: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor | None:
        """Return the directions v, `(J, D)` or `(*batch_shape, J, D)`, as constants.

        None where they have to be estimated and there is no pool.

        Args:
            dist: the predictive distribution.
            pool: `(S + 1, *batch_shape, D)`, for directions that have to be estimated.
            weights: `(S + 1, *batch_shape)` or None.
        """

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Compute `v . y` for every member of the pool.

        Direction by direction: a matrix product rounds equal points differently at different
        places, and would break their ties.
        """
        directions = self.directions(dist, pool, weights)
        assert directions is not None  # there is a pool
        if pool.shape[-1] > _FEW_TARGETS or pool.device.type != "cpu":
            return torch.stack([(pool * v).sum(-1) for v in directions.unbind(-2)], -1)
        # Members last in memory, as in the pool.
        values = pool.new_empty(*pool.shape[1:-1], directions.shape[-2], len(pool))
        for rows in row_blocks(pool.shape[-2], pool[..., 0, :].numel(), pool):
            vectors = directions if directions.dim() == 2 else directions[..., rows, :, :]
            columns = pool[..., rows, :].unbind(-1)
            for j, v in enumerate(vectors.unbind(-2)):
                values[..., rows, j, :] = _combined(columns, v).movedim(0, -1)
        return values.movedim(-1, 0)

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        """Compute `v . y` in one product."""
        directions = self.directions(dist, points, reference.weights)
        assert directions is not None  # there is a pool
        return torch.einsum("...d,...jd->...j", points, directions)


@dataclass(frozen=True)
class Custom(PreRank):
    """Any function of the points, one at a time.

    Args:
        function: maps `(..., D)` to `(...)` or `(..., J)`; it must treat rows independently.
        title: how it is called in tables; the function's own name by default.

    Example:
        >>> from prerank import preranks
        >>> preranks.parse(lambda y: y.amax(-1))[0].label
        '<lambda>'
    """

    function: Callable[..., Tensor]
    title: str | None = field(default=None)
    name: ClassVar[str] = "custom"

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Apply the function to every member of the pool."""
        return self._components(self.function(pool), pool)

    def _components(self, value: object, pool: Tensor) -> Tensor:
        """What the function returned, with an axis for its components."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise InputError(
                f"pre-rank {self.label!r} must return a floating-point tensor, "
                f"got {getattr(value, 'dtype', type(value).__name__)}"
            )
        if value.shape == pool.shape[:-1]:
            return value.unsqueeze(-1)
        if value.shape[:-1] == pool.shape[:-1] and value.shape[-1] > 0:
            return value
        raise ShapeError(
            f"pre-rank {self.label!r} got points of shape {tuple(pool.shape)} and returned "
            f"{tuple(value.shape)}: it must return {tuple(pool.shape[:-1])} or that with a "
            "last axis of components"
        )

    @property
    def label(self) -> str:
        """The title, or the function's name."""
        return self.title or str(getattr(self.function, "__name__", type(self.function).__name__))


def _combined(columns: Sequence[Tensor], v: Tensor) -> Tensor:
    """Sum of the columns `(..., N)` times the entries of v, `(D,)` or `(..., N, D)`, in order."""
    first, *others = zip(columns, v.unbind(-1), strict=True)
    total = first[0] * first[1]
    for column, entry in others:
        total += column * entry
    return total


def require_dim(dist: Distribution, minimum: int, name: str, instead: str) -> None:
    """Raise where a pre-rank needs more targets than there are."""
    dim = dist.event_shape[0]
    if dim < minimum:
        raise NotApplicableError(
            f"{name} needs at least {minimum} targets and is constant for D = {dim}: {instead}"
        )


def refuse_given_rows(preranks: Sequence[PreRank], but: str) -> None:
    """Raise where a pre-rank belongs to given rows, and will see others or see them reordered."""
    for prerank in preranks:
        if prerank.of_rows:
            raise InputError(
                f"pre-rank {prerank.label!r} holds values for given rows, but {but}: "
                "prerank.diagnose and prerank.pit take all rows at once"
            )
