"""Pre-ranks that compare the points of a pool with each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.checkpoint import checkpoint

from prerank.preranks.base import PreRank

__all__ = ["AverageRank", "BandDepth", "Copula", "EnergyScoreRank", "MultivariateRank"]

_CHUNK_BYTES = 2**26  # of one pairwise comparison at a time, in evaluation
_TRAINING_BYTES = 2**30  # above this, pairwise terms are recomputed in the backward pass


@dataclass(frozen=True)
class Copula(PreRank):
    r"""Joint CDF at the point, estimated from the other members of its pool.

    .. math:: T_i = \#\{ j \ne i : p_j \le p_i \text{ in every coordinate} \}.

    The observation is counted among the possible dominators of a sample, and no point dominates
    itself: only then are the S + 1 values exchangeable. In many dimensions almost no point lies
    below another, nearly all T are 0, and the check has no power; the diagnosis says so.

    Sensitive to: margins and dependence together. Free of units.
    """

    name: ClassVar[str] = "copula"
    pooled: ClassVar[bool] = True

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Count the dominated members."""
        return _by_rows(_dominated, pool, weights)

    def smooth_project(
        self, pool: Tensor, dist: Distribution, weights: Tensor | None, widths: Tensor
    ) -> Tensor:
        r"""Replace each comparison by a product of sigmoids.

        .. math:: T_i = \sum_{j \ne i} w_j \prod_d \sigma\big((p_{id} - p_{jd}) / h_d\big).
        """
        scaled = pool / widths
        needed = pool.numel() * pool.shape[0] * pool.element_size()
        if needed <= _TRAINING_BYTES:
            return _by_rows(_softly_dominated, scaled, weights, limit=_TRAINING_BYTES)

        def recomputed(points: Tensor, share: Tensor | None) -> Tensor:
            value: Tensor = checkpoint(_softly_dominated, points, share, use_reentrant=False)
            return value

        return _by_rows(recomputed, scaled, weights)


@dataclass(frozen=True)
class MultivariateRank(Copula):
    r"""Multivariate rank of Gneiting et al. (2008).

    .. math:: T_i = \#\{ j : p_j \le p_i \text{ in every coordinate} \},

    which is the copula pre-rank plus one, and so has the same ranks.
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

    with mid-ranks for ties. Sensitive to: common bias and dependence. Free of units.
    """

    name: ClassVar[str] = "average_rank"
    pooled: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Average the coordinate ranks."""
        own = 1 if weights is None else weights.unsqueeze(-1)
        return _by_rows(_below, pool, weights).mean(-1, keepdim=True) + own


@dataclass(frozen=True)
class BandDepth(PreRank):
    r"""How central the point is (Thorarinsdottir et al., 2016): larger is deeper.

    .. math:: T_i = \frac1D \sum_d (S + 1 - r_{id})(r_{id} - 1), \qquad
              r_{id} = \mathrm{rank}_d(p_i).

    Sensitive to: wrong spread, and to wrong dependence. Free of units.
    """

    name: ClassVar[str] = "band_depth"
    pooled: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Multiply the mass below by the mass above, coordinate by coordinate."""
        below = _by_rows(_below, pool, weights)
        others: Tensor | int = pool.shape[0] - 1
        if weights is not None:
            others = (weights.sum(0) - weights).unsqueeze(-1)
        return (below * (others - below)).mean(-1, keepdim=True)


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
    pooled: ClassVar[bool] = True

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Score each member against the others."""
        return _by_rows(_energy, pool, weights)


def _by_rows(
    function: Callable[[Tensor, Tensor | None], Tensor],
    pool: Tensor,
    weights: Tensor | None,
    *,
    limit: int = _CHUNK_BYTES,
) -> Tensor:
    """Apply a function of `(rows, S + 1, D)` points and `(rows, S + 1)` weights in chunks."""
    size, batch, dim = pool.shape[0], pool.shape[1:-1], pool.shape[-1]
    points = pool.reshape(size, -1, dim).movedim(0, 1)
    share = None if weights is None else weights.reshape(size, -1).mT
    rows = max(1, limit // (size * size * dim * pool.element_size()))
    parts = [
        function(
            points[start : start + rows], None if share is None else share[start : start + rows]
        )
        for start in range(0, points.shape[0], rows)
    ]
    return torch.cat(parts).movedim(0, 1).reshape(size, *batch, -1)


def _dominated(points: Tensor, share: Tensor | None) -> Tensor:
    rows, size, dim = points.shape
    lower = torch.ones(rows, size, size, dtype=torch.bool, device=points.device)
    for d in range(dim):  # keeps the comparison at (rows, size, size)
        x = points[..., d]
        lower &= x.unsqueeze(-2) <= x.unsqueeze(-1)
    if share is None:
        return (lower.sum(-1, keepdim=True) - 1).to(points.dtype)
    lower &= ~torch.eye(size, dtype=torch.bool, device=points.device)
    return (lower * share.unsqueeze(-2)).sum(-1, keepdim=True)


def _softly_dominated(points: Tensor, share: Tensor | None) -> Tensor:
    size, dim = points.shape[-2:]
    steps = points.unsqueeze(-2) - points.unsqueeze(-3)  # (rows, i, j, D)
    # Sums of logarithms: a product of many small sigmoids would underflow.
    lower = torch.nn.functional.logsigmoid(steps).sum(-1).exp()
    own = 0.5**dim * torch.eye(size, dtype=points.dtype, device=points.device)
    mass = points.new_full((1, size), 1.0 / (size - 1)) if share is None else share
    return ((lower - own) * mass.unsqueeze(-2)).sum(-1, keepdim=True)


def _below(points: Tensor, share: Tensor | None) -> Tensor:
    """Mass of the other members below each coordinate, ties counting half: `(rows, S + 1, D)`."""
    size = points.shape[1]
    mass = torch.ones_like(points[..., 0]) if share is None else share
    others = mass.unsqueeze(-2) * ~torch.eye(size, dtype=torch.bool, device=points.device)
    columns = []
    for x in points.unbind(-1):  # keeps the comparison at (rows, size, size)
        lower = (x.unsqueeze(-2) < x.unsqueeze(-1)).to(points.dtype)
        tied = (x.unsqueeze(-2) == x.unsqueeze(-1)).to(points.dtype)
        columns.append(((lower + 0.5 * tied) * others).sum(-1))
    return torch.stack(columns, -1)


def _energy(points: Tensor, share: Tensor | None) -> Tensor:
    mass = torch.ones_like(points[..., 0]) if share is None else share
    # Not the matrix-product form: it loses half of the digits for close points.
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    to_others = (distance * mass.unsqueeze(-2)).sum(-1)  # the distance to itself is 0
    between = (to_others * mass).sum(-1, keepdim=True) - 2 * mass * to_others
    others = mass.sum(-1, keepdim=True) - mass
    return (to_others / others - between / (2 * others.square())).unsqueeze(-1)
