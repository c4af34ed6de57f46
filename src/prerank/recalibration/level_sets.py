r"""Density levels of each row: how much mass lies below them, and what it should become.

Row by row, node l of a table is the log-density :math:`e_l` below which a share
:math:`h_l = \Phi(w_l)` of the forecast's own mass lies. The same shares serve all rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.recalibration.corrections import Correction, extend, interpolate
from prerank.recalibration.proposals import Pool

__all__ = ["DensityMap", "LevelTable", "increasing"]

_LOWEST, _HIGHEST = -14.0, 6.0
_FLAT_FROM = 1.0
_FALL = 1e12  # of the log-density, beyond which points tie
_OUTER, _INNER = 0.5, 0.125  # steps of the scores beyond and within 4


@dataclass(frozen=True)
class LevelTable:
    """Log-densities at given shares of the mass.

    Args:
        scores: w, normal scores of the shares, `(L,)`.
        levels: e, ascending, `(N, L)`, in float64.
    """

    scores: Tensor
    levels: Tensor

    @classmethod
    def of(cls, pool: Pool) -> "LevelTable":
        r"""Weighted quantiles of the log-density over a pool.

        The share below the i-th smallest of S values is
        :math:`\sum_{j \le i} w_j - w_i / 2`. Below the smallest, the log of the share falls as the
        log-density does, as in normal tails (exactly so for two targets).
        """
        scores = _score_grid().to(pool.points.device)
        values, order = pool.log_density.mT.sort(-1)  # (N, S)
        weights = (pool.log_density - pool.log_q).mT.softmax(-1).gather(-1, order)
        tiny = torch.finfo(torch.float64).tiny
        share = (weights.cumsum(-1) - weights / 2).clamp_min(tiny).log().cummax(-1).values
        # Outside the support there is no mass: such points only mark the lowest level.
        inside = values.isfinite()
        lowest = torch.where(inside, values, torch.inf).amin(-1, keepdim=True)
        values = torch.where(inside, values, lowest)
        wanted = torch.special.log_ndtr(scores).unsqueeze(-1).expand(-1, len(values))
        levels, _ = interpolate(wanted, *extend(share, values, 1.0, 0.0))
        return cls(scores, levels.mT.cummax(-1).values.contiguous())

    def score(self, log_density: Tensor, uniform: Tensor) -> Tensor:
        r"""Normal score of the mass below a density, ties at random.

        Below the lowest node the share follows the density, and
        :math:`\log \Phi(w) \approx -w^2 / 2`.

        Args:
            log_density: `(..., N)`, in float64.
            uniform: for ties, `(..., N)`.
        """
        lowest, highest = self.levels[:, 0], self.levels[:, -1]
        inner = log_density.maximum(lowest).minimum(highest)
        first, _ = interpolate(inner, self.levels, self.scores, right=False)
        last, _ = interpolate(inner, self.levels, self.scores)
        low, high = torch.special.ndtr(first), torch.special.ndtr(last)
        tied = torch.special.ndtri(low + uniform.to(low) * (high - low))
        score = torch.where(high - low > 1e-9, tied, first)
        fall = (lowest - log_density).clamp(0, _FALL)
        return torch.where(log_density < lowest, -(_LOWEST**2 + 2 * fall).sqrt(), score)


@dataclass(frozen=True)
class DensityMap:
    """Increasing, piecewise linear maps from old to new log-densities, of slope 1 beyond the ends.

    Args:
        nodes: ascending, `(N, L)`, in float64.
        values: ascending, `(N, L)`.
    """

    nodes: Tensor
    values: Tensor

    @classmethod
    def of(cls, table: LevelTable, correction: Correction) -> "DensityMap":
        r"""Multiply the density at level l by what the correction says of the share below it.

        .. math:: m_l = e_l + \log g(h_l),

        with g constant near the mode, above the highest knot of the correction (and above a score
        of 1): a straight line would put a spike there. Where the result falls as the density rises,
        neighbouring levels are pooled (see `increasing`).
        """
        scores = table.scores.clamp_max(max(correction.highest_knot, _FLAT_FROM))
        new = table.levels + correction.log_ratio(scores)
        falls = (new.diff(dim=-1) < 0).any(-1)
        if bool(falls.any()):
            new[falls] = increasing(new[falls], _shell_masses(table.scores, correction))
        return cls(table.levels, new)

    def __call__(self, log_density: Tensor) -> Tensor:
        """New log-densities `(..., N)`; minus infinity stays what it is."""
        inner = log_density.maximum(self.nodes[:, 0]).minimum(self.nodes[:, -1])
        return interpolate(inner, self.nodes, self.values)[0] + (log_density - inner)

    def normalised(self, pool: Pool) -> tuple["DensityMap", Tensor]:
        """Shift the maps, so that the new densities integrate to one over a pool.

        The pool must have points of its own: over those of the table the integral comes out too
        small.

        Returns:
            The maps, and the coefficients of the new densities in the laws of the pool, `(N, J)`.
        """
        new = self(pool.log_density)
        unit = (new - pool.log_q).amax(0)
        coefficients = pool.coefficients(new - unit)
        plain = (new - unit - pool.log_q).exp().mean(0)
        # A regression through the few points that count could go anywhere.
        total = coefficients.sum(-1).clamp(0.5 * plain, 2 * plain)
        shift = (unit + total.log()).unsqueeze(-1)
        return DensityMap(self.nodes, self.values - shift), coefficients / total.unsqueeze(-1)


def _shell_masses(scores: Tensor, correction: Correction) -> Tensor:
    """New mass between the midpoints of neighbouring nodes."""
    middle = 0.5 * (scores[1:] + scores[:-1])
    below = torch.special.ndtr(correction.forward(middle)[0])
    ends = below.new_tensor([0.0, 1.0])
    return torch.cat([ends[:1], below, ends[1:]]).diff().clamp_min(1e-300)


def _score_grid() -> Tensor:
    low, high = torch.arange(_LOWEST, -4, _OUTER), torch.arange(4, _HIGHEST + 0.1, _OUTER)
    return torch.cat([low, torch.arange(-4, 4, _INNER), high]).double()


def increasing(log_density: Tensor, masses: Tensor) -> Tensor:
    r"""Pool neighbouring shells whose densities are in the wrong order.

    Shell l holds the mass :math:`p_l` and, by its density :math:`f_l`, the volume
    :math:`v_l = p_l / f_l`. Shells that are pooled keep their mass and volume, so their density is
    the ratio of the sums: the isotonic regression of f with weights v, by the formula

    .. math:: \max_{j \le l} \min_{k \ge l} \frac{p_j + \dots + p_k}{v_j + \dots + v_k}.

    Args:
        log_density: `(rows, L)`, in the order of the shells.
        masses: p, `(L,)`.

    Example:
        >>> falling = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64).log1p()
        >>> increasing(falling, torch.full((3,), 1 / 3, dtype=torch.float64)).exp()
        tensor([[1.0000, 1.3333, 1.3333]], dtype=torch.float64)
    """
    unit = log_density.amax(-1, keepdim=True)
    volumes = masses * (unit - log_density).exp()
    density = torch.zeros_like(log_density)
    for j in range(log_density.shape[-1]):
        means = masses[j:].cumsum(-1) / volumes[:, j:].cumsum(-1)
        least = means.flip(-1).cummin(-1).values.flip(-1)
        density[:, j:] = torch.maximum(density[:, j:], least)
    return density.log() + unit
