"""A density pre-rank for forecasts that are samples alone."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.numerics.matrices import pair_distances, triangular_inverse
from prerank.preranks.base import PreRank, Reference
from prerank.preranks.pooled import by_rows

__all__ = ["SampleDensity"]


@dataclass(frozen=True)
class SampleDensity(PreRank):
    r"""Log-density at the point, estimated from the other members of its pool.

    .. math:: T_i = \log \sum_{j \ne i} w_j \exp\Big(-\frac{1}{2 h^2} |A (p_i - p_j)|^2\Big),
              \qquad h = (S + 1)^{-1/(D+4)}.

    A whitens the pool: :math:`A^\top A` is the inverse of its covariance, whose correlations are
    multiplied by :math:`(S + 1) / (S + 1 + D)`, so that few members suffice. The bandwidth is that
    of Scott (1992). No point counts itself, and A depends on all S + 1 points alike, so the ranks
    are exchangeable: the test has its exact size however rough the estimate is.

    A small Z means that the observation lies where few samples are. It is the pre-rank `hdr` for
    samples without a density.

    Sensitive to: overall spread and shape, in all directions at once. Free of units.
    """

    name: ClassVar[str] = "sample_density"
    divisible: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    homogeneous: ClassVar[bool] = True
    unitless: ClassVar[bool] = True

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Estimate the density at each member from the others."""
        return by_rows(_densities, pool, weights)

    def smooth_project(self, points: Tensor, dist: Distribution, reference: Reference) -> Tensor:
        """Estimate the density from the references, with a gradient."""
        draws = reference.draws
        others = draws.points.movedim(0, -2)  # (*batch, R, D)
        white = _whitening(others.detach(), None)
        distance = pair_distances(points.movedim(0, -2) @ white.mT, others @ white.mT)
        log_kernel = _log_kernel(distance, others)
        if draws.weights is not None:
            log_kernel = log_kernel + draws.weights.movedim(0, -1).log().unsqueeze(-2)
        return log_kernel.logsumexp(-1).movedim(-1, 0).unsqueeze(-1)


def _densities(points: Tensor, share: Tensor | None) -> Tensor:
    """Of `(rows, S + 1, D)` points."""
    exact = points.double()
    white = _whitening(exact, None if share is None else share.double())
    at = exact @ white.mT
    log_kernel = _log_kernel(pair_distances(at, at), exact)
    if share is not None:
        log_kernel = log_kernel + share.double().log().unsqueeze(-2)
    own = torch.eye(exact.shape[1], dtype=torch.bool, device=exact.device)
    value = log_kernel.masked_fill(own, -torch.inf).logsumexp(-1)
    # Rounded: sums in another order must stay tied.
    unit = 2.0**-36
    return ((value / unit).round() * unit).to(points.dtype).unsqueeze(-1)


def _log_kernel(distance: Tensor, points: Tensor) -> Tensor:
    size, dim = points.shape[-2:]
    width = size ** (-1 / (dim + 4))
    return -0.5 * (distance / width).square()


def _whitening(points: Tensor, share: Tensor | None) -> Tensor:
    """A of points `(..., S + 1, D)`, lower triangular `(..., D, D)`."""
    size, dim = points.shape[-2:]
    mass = points.new_full(points.shape[:-1], 1 / size) if share is None else share
    mass = (mass / mass.sum(-1, keepdim=True)).unsqueeze(-1)
    centred = points - (mass * points).sum(-2, keepdim=True)
    spread = (mass * centred.square()).sum(-2).sqrt()
    # A target without spread has no scale: any will do.
    spread = torch.where(spread > 0, spread, 1)
    standard = centred / spread.unsqueeze(-2)
    correlation = standard.mT @ (mass * standard)
    kept = size / (size + dim)
    unit = torch.eye(dim, dtype=points.dtype, device=points.device)
    factor = torch.linalg.cholesky(kept * correlation * (1 - unit) + unit)
    return triangular_inverse(factor) / spread.unsqueeze(-2)
