"""Pre-ranks that compare the points of a pool with each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.checkpoint import checkpoint

from prerank.numerics.comparisons import soft_dominance
from prerank.numerics.counts import dominated
from prerank.numerics.matrices import pair_distances
from prerank.numerics.sorting import line_places
from prerank.preranks.base import PreRank, Reference

__all__ = ["AverageRank", "BandDepth", "Copula", "EnergyScoreRank", "MultivariateRank"]

_CHUNK_BYTES = 2**26  # of one pairwise comparison at a time, in evaluation
_TRAINING_BYTES = 2**28  # above this, comparisons are recomputed in the backward pass


@dataclass(frozen=True)
class Copula(PreRank):
    r"""Joint CDF at the point, estimated from the other members of its pool.

    .. math:: T_i = \#\{ j \ne i : p_j \le p_i \text{ in every coordinate} \}.

    The observation is counted among the possible dominators of a sample, and no point dominates
    itself: only then are the S + 1 values exchangeable. In many dimensions almost no point lies
    below another, nearly all T are 0, and the check has no power; the diagnosis says so.

    On a CPU the time of a row grows with :math:`D (S \log S + S^2 / 64)`, by sorting and by sets
    of bits; with weights, and on a GPU, with :math:`D S^2`.

    Sensitive to: margins and dependence together. Free of units.
    """

    name: ClassVar[str] = "copula"
    divisible: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True
    unitless: ClassVar[bool] = True

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Count the dominated members."""
        if weights is None and pool.device.type == "cpu":
            return dominated(pool.movedim(0, -2)).movedim(-1, 0).unsqueeze(-1)
        return by_rows(_dominated, pool, weights)

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        r"""Smooth count of the references below each point, with ties broken at random.

        .. math:: T_i = \log(1 + c_i + U_i), \qquad
                  c_i = R \sum_r w_r \prod_d \sigma\big((p_{id} - q_{rd}) / h_d\big).

        The uniform U plays the part that it has in the exact rank: without it all points that lie
        above hardly any reference would share one middle rank, and a calibrated predictor would
        look wrong. The logarithm, an increasing transform, evens out the spread of T.
        """
        draws, widths = reference.draws, reference.widths
        counts = soft_dominance(points / widths, draws.points / widths, draws.weights)
        return torch.log(1 + counts + reference.uniform).unsqueeze(-1)


@dataclass(frozen=True)
class MultivariateRank(Copula):
    r"""Multivariate rank of Gneiting et al. (2008).

    .. math:: T_i = \#\{ j : p_j \le p_i \text{ in every coordinate} \},

    which is the copula pre-rank plus one: the same ranks under the name that the literature uses.
    """

    name: ClassVar[str] = "multivariate_rank"

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Count the dominated members, the point itself included."""
        own = 1 if weights is None else weights.unsqueeze(-1)
        return super().project(pool, dist, weights) + own


@dataclass(frozen=True)
class AverageRank(PreRank):
    r"""Mean over targets of the rank within the pool (Thorarinsdottir et al., 2016).

    .. math:: T_i = \frac1D \sum_d \mathrm{rank}_d(p_i),

    with mid-ranks for ties. The time of a row grows with :math:`D S \log S`, by sorting; with
    weights, with :math:`D S^2`. Sensitive to: common bias and dependence. Free of units.
    """

    name: ClassVar[str] = "average_rank"
    divisible: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True
    unitless: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Average the coordinate ranks."""
        below = _mass_below(pool, weights).mean(-1, keepdim=True)
        return below + 1 if weights is None else _without_rounding(below + weights.unsqueeze(-1))


@dataclass(frozen=True)
class BandDepth(PreRank):
    r"""How central the point is (Thorarinsdottir et al., 2016): larger is deeper.

    .. math:: T_i = \frac1D \sum_d (S + 1 - r_{id})(r_{id} - 1), \qquad
              r_{id} = \mathrm{rank}_d(p_i).

    Sensitive to: wrong spread, and to wrong dependence. Free of units.
    """

    name: ClassVar[str] = "band_depth"
    divisible: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True
    unitless: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Multiply the mass below by the mass above, coordinate by coordinate."""
        below = _mass_below(pool, weights)
        if weights is None:
            return (below * (pool.shape[0] - 1 - below)).mean(-1, keepdim=True)
        above = (weights.sum(0) - weights).unsqueeze(-1) - below
        return _without_rounding((below * above).mean(-1, keepdim=True))


@dataclass(frozen=True)
class EnergyScoreRank(PreRank):
    r"""Energy score of the point against the other members of its pool.

    .. math:: T_i = \frac1S \sum_{j \ne i} |p_j - p_i|
              - \frac{1}{2 S^2} \sum_{j \ne i} \sum_{k \ne i} |p_j - p_k|.

    For the observation this is its energy score against the samples; leaving the point itself
    out gives the samples the same treatment. Sensitive to: bias, spread, outlying shape.
    Depends on units.
    """

    name: ClassVar[str] = "energy_score"
    divisible: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Score each member against the others."""
        return by_rows(_energy, pool, weights)

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        """Mean distance to the references: the energy score up to a constant of the row."""
        draws = reference.draws
        return _against(_distance, points, draws.points, draws.weights).unsqueeze(-1)


def by_rows(
    function: Callable[[Tensor, Tensor | None], Tensor], pool: Tensor, weights: Tensor | None
) -> Tensor:
    """Apply a function of `(rows, S + 1, D)` points and `(rows, S + 1)` weights in chunks."""
    size, batch, dim = pool.shape[0], pool.shape[1:-1], pool.shape[-1]
    points = pool.reshape(size, -1, dim).movedim(0, 1)
    rows = max(1, _CHUNK_BYTES // (size * size * dim * pool.element_size()))
    parts = points.split(rows)
    shares = [None] * len(parts) if weights is None else weights.reshape(size, -1).mT.split(rows)
    values = [function(part, share) for part, share in zip(parts, shares, strict=True)]
    return torch.cat(values).movedim(0, 1).reshape(size, *batch, -1)


def _against(
    function: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    points: Tensor,
    reference: Tensor,
    weights: Tensor | None,
) -> Tensor:
    """Compare points `(S + 1, ..., D)` with references `(R, ..., D)`; recompute if it is large."""
    needed = points.shape[0] * reference.numel() * points.element_size()
    if needed <= _TRAINING_BYTES:
        return function(points, reference, weights)
    parts = points.split(max(1, points.shape[0] * _TRAINING_BYTES // needed))
    values = [checkpoint(function, part, reference, weights, use_reentrant=False) for part in parts]
    return torch.cat(values)


def _distance(points: Tensor, reference: Tensor, weights: Tensor | None) -> Tensor:
    """Mean distance of each point to the references: `(S + 1, ...)`."""
    # Target by target: norms over a short axis are slow. Equal points have no slope.
    pairs = zip(points.unbind(-1), reference.unbind(-1), strict=True)
    squares = torch.stack([(p.unsqueeze(1) - q).square() for p, q in pairs]).sum(0)
    equal = squares == 0
    distance = torch.where(equal, 0, torch.where(equal, 1, squares).sqrt())
    return distance.mean(1) if weights is None else (weights * distance).sum(1)


def _dominated(points: Tensor, share: Tensor | None) -> Tensor:
    rows, size, dim = points.shape
    lower = torch.ones(rows, size, size, dtype=torch.bool, device=points.device)
    for d in range(dim):  # keeps the comparison at (rows, size, size)
        x = points[..., d]
        lower &= x.unsqueeze(-2) <= x.unsqueeze(-1)
    if share is None:
        return (lower.sum(-1, keepdim=True) - 1).to(points.dtype)
    lower &= ~torch.eye(size, dtype=torch.bool, device=points.device)
    return _without_rounding((lower * share.unsqueeze(-2)).sum(-1, keepdim=True))


def _mass_below(pool: Tensor, weights: Tensor | None) -> Tensor:
    """Mass of the other members below each coordinate, ties counting half: the shape of `pool`."""
    if weights is not None:
        return by_rows(_below, pool, weights)
    first, last = line_places(pool.movedim(0, -1))
    return ((first + last).to(pool.dtype) / 2).movedim(-1, 0)


def _below(points: Tensor, share: Tensor | None) -> Tensor:
    """Mass of the other members below each coordinate: `(rows, S + 1, D)`."""
    assert share is not None
    size = points.shape[1]
    others = share.unsqueeze(-2) * ~torch.eye(size, dtype=torch.bool, device=points.device)
    columns = []
    for x in points.unbind(-1):  # keeps the comparison at (rows, size, size)
        lower = (x.unsqueeze(-2) < x.unsqueeze(-1)).to(points.dtype)
        tied = (x.unsqueeze(-2) == x.unsqueeze(-1)).to(points.dtype)
        columns.append(((lower + 0.5 * tied) * others).sum(-1))
    return torch.stack(columns, -1)


def _without_rounding(mass: Tensor) -> Tensor:
    """Round sums of weights, so that equal masses added in another order stay tied."""
    unit = 2.0**8 * torch.finfo(mass.dtype).eps
    return (mass / unit).round() * unit


def _energy(points: Tensor, share: Tensor | None) -> Tensor:
    # In float64 and then rounded: sums of equal distances in another order must stay tied.
    exact = points.double()
    mass = torch.ones_like(exact[..., 0]) if share is None else share.double()
    distance = pair_distances(exact, exact)
    to_others = (distance * mass.unsqueeze(-2)).sum(-1)  # the distance to itself is 0
    between = (to_others * mass).sum(-1, keepdim=True) - 2 * mass * to_others
    others = mass.sum(-1, keepdim=True) - mass
    score = to_others / others - between / (2 * others.square())
    unit = 2.0**-40 * distance.amax((-2, -1)).clamp_min(torch.finfo(torch.float64).tiny)
    return (
        ((score / unit.unsqueeze(-1)).round() * unit.unsqueeze(-1)).to(points.dtype).unsqueeze(-1)
    )
