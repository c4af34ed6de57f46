"""Joint probabilities of values of discrete targets, by importance sampling in their cells."""

import math

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from prerank.distributions import Rounded
from prerank.recalibration.marginal import MarginTable
from prerank.recalibration.mixture_margins import normal_cdf
from prerank.recalibration.proposals import Proposal

__all__ = ["ValueMasses"]

_TINY = 1e-300
_LOG_ROOT_2PI = 0.9189385332046727


class ValueMasses:
    r"""Probability of the values of discrete targets, times the density of continuous ones.

    .. math:: p(y) = \int_{T(z) = y} f(z) \, dz
              = E \Big[\frac{f(Z)}{\prod_d q_d(Z_d)}\Big], \qquad
              q_d(z) = \frac{m_d(z)}{M_d(y_d)} \ \text{on the cell of}\ y_d,

    for a base density f with margins :math:`m_d`, which give the cell the mass :math:`M_d`. A
    target without cells, or between them, keeps its value and has no factor. The points Z come from
    the same Sobol points for every value and row: an estimate, but a fixed function of y, and
    nearly exact where targets depend little on each other.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        margins: of its base.
        proposal: of its base, for the log-density.
        n_points: number of the points.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> from prerank.distributions import Cells
        >>> base = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> dist = Rounded(base, [Cells.nearest([-1.0, 0.0, 1.0])] * 2)
        >>> margins = MarginTable.of(base, n_samples=64, generator=None)
        >>> masses = ValueMasses(dist, margins, Proposal(base, generator=None))
        >>> masses.log_prob(torch.tensor([[0.0, 1.0]])).exp()  # 0.3829 * 0.3085
        tensor([0.118], dtype=torch.float64)
    """

    def __init__(
        self, dist: Rounded, margins: MarginTable, proposal: Proposal, *, n_points: int = 8
    ) -> None:
        self.dist, self.margins, self.proposal = dist, margins, proposal
        dim = dist.event_shape[0]
        noise = SobolEngine(dim, scramble=True, seed=0).draw(n_points, dtype=torch.float64)
        self._noise = noise.clamp(1e-6, 1 - 1e-6).to(margins.values.device)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log p at values `(..., N, D)`: `(..., N)`, in float64."""
        start, low, high, log_mass = self._cells(y)
        total = torch.full(y.shape[:-1], -torch.inf, dtype=torch.float64, device=y.device)
        for uniform in self._noise:  # one at a time: all together would take much memory
            w = _between(low, high, uniform)
            z, stretch = self.margins.quantile(w)
            log_q = -w.square() / 2 - _LOG_ROOT_2PI - stretch.log() - log_mass
            inside = low < high
            z = torch.where(inside, z, start)
            # A value that a target does not take may stand for no point at all.
            log_f = self.proposal.log_density(z.to(y)).nan_to_num(nan=-torch.inf)
            total = torch.logaddexp(total, log_f - torch.where(inside, log_q, 0).sum(-1))
        return total - math.log(len(self._noise))

    def log_share(self, z: Tensor) -> Tensor:
        """Log of the product of q at points of the base `(..., N, D)`: it integrates to 1 in cells.

        So its integral over the base's points of a set of values is the size of that set: the
        number of values, times the length of what is continuous.
        """
        _, low, high, log_mass = self._cells(self.dist.snap(z))
        w, slope = self.margins.score(z)
        log_q = -w.square() / 2 - _LOG_ROOT_2PI + slope.log() - log_mass
        return torch.where(low < high, log_q, 0).sum(-1)

    def _cells(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where the cells begin, the normal scores of both ends, and the log-mass between."""
        start, end = preimages(self.dist, y)
        low, high = (self.margins.score(edge)[0] for edge in (start, end))
        first, last = _in_lower_tail(low, high)
        mass = normal_cdf(last) - normal_cdf(first)
        return start.double(), low, high, mass.clamp_min(_TINY).log()


def preimages(dist: Rounded, y: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of the cells of values `(..., D)`: equal ones where a target is continuous."""
    columns = [
        cells.preimage(column) if cells else (column, column)
        for cells, column in zip(dist.cells, y.unbind(-1), strict=True)
    ]
    start, end = (torch.stack(part, -1) for part in zip(*columns, strict=True))
    return start, end


def _in_lower_tail(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """An interval or its mirror image, of which the normal CDF has all digits."""
    flip = low + high > 0
    return torch.where(flip, -high, low), torch.where(flip, -low, high)


def _between(low: Tensor, high: Tensor, uniform: Tensor) -> Tensor:
    """Quantiles of a standard normal that is confined to an interval."""
    first, last = _in_lower_tail(low, high)
    below, upto = normal_cdf(first), normal_cdf(last)
    w = torch.special.ndtri((below + uniform * (upto - below)).clamp_min(_TINY))
    w = w.maximum(first).minimum(last)
    return torch.where(low + high > 0, -w, w)
