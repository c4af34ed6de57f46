"""Rows in groups of the same available targets, each with the forecast of these.

A target of a row is available where the observation has a value and so has every sample. What is
left out of the observation is left out of the samples too: if both are exchangeable, and whether a
value is missing does not depend on the values, so are their available parts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
)

from prerank.distributions.bounded import Bounded
from prerank.distributions.draws import draw
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture
from prerank.distributions.noise import Noise
from prerank.distributions.rounded import Rounded
from prerank.distributions.row_slices import rows_of
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_generator, as_missing, check_distribution, check_observations

__all__ = ["Division", "SubEvents", "divided", "has_gaps", "separable", "sub_events", "targets_of"]


class SubEvents(NamedTuple):
    """Rows that have the same targets available.

    Attributes:
        rows: their numbers, `(n,)`.
        targets: numbers of the available targets, `(d,)`.
        dist: the forecast of these, `batch_shape (n,)`, `event_shape (d,)`.
        y: their observations, `(n, d)`.
    """

    rows: Tensor
    targets: Tensor
    dist: Distribution
    y: Tensor


def has_gaps(dist: Distribution, y: Tensor) -> bool:
    """Whether an observation or a sample is missing; in a stack, that raises."""
    found = bool(getattr(dist, "has_gaps", False)) or bool(y.isnan().any())
    if found and len(dist.batch_shape) != 1:
        raise ShapeError(
            f"values are missing, and dist has batch_shape {tuple(dist.batch_shape)}: it must be "
            "(N,), so give the members of a stack one by one"
        )
    return found


def sub_events(dist: Distribution, y: Tensor) -> list[SubEvents]:
    """Divide rows by which of their targets are available; rows without any are left out.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`, of a family that `separable` gives.
        y: observations `(N, D)`, NaN where there are none.

    Example:
        >>> nan = float("nan")
        >>> y = torch.tensor([[1.0, 2.0], [3.0, nan], [nan, nan], [5.0, 6.0]])
        >>> dist = MultivariateNormal(torch.zeros(4, 2), torch.eye(2))
        >>> [(part.rows.tolist(), part.targets.tolist()) for part in sub_events(dist, y)]
        [([1], [0]), ([0, 3], [0, 1])]
    """
    available = ~y.isnan()
    if isinstance(dist, Ensemble):
        available &= ~dist.samples.isnan().any(0)
    patterns, number, counts = available.unique(dim=0, return_inverse=True, return_counts=True)
    parts = []
    groups = number.argsort(stable=True).split(counts.tolist())
    for pattern, rows in zip(patterns, groups, strict=True):
        if not pattern.any():
            continue
        targets = pattern.nonzero().flatten()
        own = rows_of(dist, rows)
        own = None if own is None else targets_of(own, targets)
        assert own is not None  # separable sees to that
        parts.append(SubEvents(rows, targets, own, y[rows][:, targets]))
    return parts


@dataclass(frozen=True)
class Division:
    """Rows in groups of the same available targets, for values that are made group by group.

    Attributes:
        parts: the groups.
        shape: `(N, D)`.
        noise: arguments `n_samples` and `generator`, whose stream runs on from group to group.
    """

    parts: list[SubEvents]
    shape: torch.Size
    noise: dict[str, Any]

    def scattered(
        self, value: Callable[[SubEvents], Tensor], *, fewest: int = 1, of_targets: bool = False
    ) -> Tensor:
        """Values of all rows, `(N,)` or `(N, D)`, NaN where there is none.

        Args:
            value: of the rows of a group, `(n,)`, or of their targets, `(n, d)`.
            fewest: targets that a row must have.
            of_targets: whether there is a value for each target.
        """
        parts = [part for part in self.parts if len(part.targets) >= fewest]
        if not parts:
            raise InputError(f"y has no row with {fewest} values that dist has, too")
        values = [value(part) for part in parts]
        whole = values[0].new_full(self.shape if of_targets else self.shape[:1], torch.nan)
        for part, own in zip(parts, values, strict=True):
            at = (part.rows.unsqueeze(-1), part.targets) if of_targets else (part.rows,)
            whole = whole.index_put(at, own)
        return whole


def divided(
    dist: Distribution, y: object, missing: str, *, n_samples: int, generator: Noise | int = None
) -> Division | None:
    """Divide the rows of the arguments of a function; None where all values are there.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        y: observations `(N, D)`.
        missing: the function's argument of this name.
        n_samples: draws per row, where these are needed.
        generator: a generator or seed.
    """
    if not as_missing(missing):
        return None
    check_distribution(dist, gaps=True)
    observed = check_observations(dist, y, gaps=True)
    if not has_gaps(dist, observed):
        return None
    source = as_generator(generator, "draw") if isinstance(generator, int) else generator
    known = separable(dist, n_samples=n_samples, generator=source)
    noise = {"n_samples": n_samples, "generator": source}
    return Division(sub_events(known, observed), observed.shape, noise)


def separable(dist: Distribution, *, n_samples: int, generator: Noise | int = None) -> Distribution:
    """A distribution that `sub_events` can divide: the same, or an ensemble of its draws.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        n_samples: draws per row of a family whose margins are not known here.
        generator: source of these draws.
    """
    if type(dist) is Ensemble:
        return dist
    first = rows_of(dist, slice(0, 1))
    known = None if first is None else targets_of(first, torch.zeros(1, dtype=torch.int64))
    if known is not None:
        return dist
    return Ensemble(draw(dist, n_samples, generator=generator).points)


def targets_of(dist: Distribution, targets: Tensor) -> Distribution | None:
    """The distribution of some of the targets.

    None for a family that is not known here, and for subclasses.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        targets: numbers of the targets, `(d,)`.

    Example:
        >>> covariance = torch.tensor([[4.0, 1.0, 0.0], [1.0, 9.0, 2.0], [0.0, 2.0, 1.0]])
        >>> dist = MultivariateNormal(torch.arange(3.0).expand(1, 3), covariance)
        >>> part = targets_of(dist, torch.tensor([0, 2]))
        >>> part.loc, part.variance
        (tensor([[0., 2.]]), tensor([[4., 1.]]))
    """
    part: Distribution | None = None
    if type(dist) is Ensemble:
        part = Ensemble(dist.samples[..., targets], dist.weights)
    elif len(targets) == dist.event_shape[0] and bool((targets.diff() > 0).all()):
        part = dist
    elif type(dist) is GaussianMixture:
        loc, factor = dist.loc[..., targets], _factor(dist.scale_tril, targets)
        part = GaussianMixture(dist.logits, loc, factor, validate_args=False)
        part.logits = dist.logits  # to the last digit, which normalising again would change
    elif type(dist) is MultivariateNormal:
        loc, factor = dist.loc[..., targets], _factor(dist.scale_tril, targets)
        part = MultivariateNormal(loc, scale_tril=factor, validate_args=False)
    elif type(dist) is LowRankMultivariateNormal:
        factor, diagonal = dist.cov_factor[..., targets, :], dist.cov_diag[..., targets]
        loc = dist.loc[..., targets]
        part = LowRankMultivariateNormal(loc, factor, diagonal, validate_args=False)
    elif isinstance(dist, Independent) and type(dist.base_dist) is Normal:
        parameters = (dist.base_dist.loc[..., targets], dist.base_dist.scale[..., targets])
        part = Independent(Normal(*parameters, validate_args=False), 1, validate_args=False)
    elif isinstance(dist, Rounded):
        base = targets_of(dist.base, targets)
        cells = [dist.cells[d] for d in targets.tolist()]
        part = None if base is None else Rounded(base, cells)
    elif isinstance(dist, Bounded):
        base = targets_of(dist.base, targets)
        links = [dist.links[d] for d in targets.tolist()]
        part = base if base is None or not any(links) else Bounded(base, links)
    return part


def _factor(scale_tril: Tensor, targets: Tensor) -> Tensor:
    """Lower-triangular factor of the covariance of some targets, which is not squared for it."""
    upper = torch.linalg.qr(scale_tril[..., targets, :].mT, mode="r").R
    return (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT
