r"""Margins of predictive laws on the normal scale.

For each row and target a piecewise linear table joins values y and scores
:math:`w = \Phi^{-1}(F_d(y))`. It is exact at its nodes where the margins have a closed form, and
made of draws for other laws.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Ensemble, draw
from prerank.pits import ProjectedCDF, closed_form
from prerank.preranks import Marginal
from prerank.recalibration.piecewise import extend, interpolate

__all__ = ["MarginTable", "member_scores"]

_EXACT_END, _DRAWN_END, _STEP = 4.4, 2.6, 0.2
_HALVINGS = 60


@dataclass(frozen=True)
class MarginTable:
    """Values at normal scores.

    Args:
        scores: ascending, `(N, D, L)`.
        values: ascending, `(N, D, L)`, in float64.
    """

    scores: Tensor
    values: Tensor

    @classmethod
    def of(
        cls, dist: Distribution, *, n_samples: int, generator: torch.Generator | None
    ) -> "MarginTable":
        """Tabulate the margins of a law.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            n_samples: draws per row for laws without a closed form; an `Ensemble` has its members.
            generator: source of these draws.
        """
        if isinstance(dist, Ensemble):
            ordered, shares = _ordered(dist)
            return cls._continued(torch.special.ndtri(shares), ordered)
        cdf = closed_form(dist, Marginal())
        points = draw(dist, n_samples, generator=generator).points
        end = _DRAWN_END if cdf is None else _EXACT_END
        scores = torch.linspace(-end, end, 2 * round(end / _STEP) + 1, dtype=torch.float64)
        scores = scores.to(points.device)
        if cdf is None:
            ordered, shares = _ordered(Ensemble(points))
            wanted = scores.reshape(-1, 1, 1).expand(-1, *ordered.shape[:-1])
            values, _ = interpolate(wanted, torch.special.ndtri(shares), ordered)
        else:
            values = _quantiles(cdf, scores, points).double()
        return cls._continued(scores.expand(*points.shape[1:], -1), values.movedim(0, -1))

    @classmethod
    def _continued(cls, scores: Tensor, values: Tensor) -> "MarginTable":
        """Go on beyond the ends with the slopes of the outer tenths of the table."""
        # Values that coincide would have no slope.
        unit = (values[..., -1:] - values[..., :1]).clamp_min(torch.finfo(values.dtype).tiny)
        places = torch.arange(values.shape[-1]).to(values) / values.shape[-1]
        values = values.cummax(-1).values + 1e-9 * unit * places
        tenth = max(1, values.shape[-1] // 10)
        rise, run = values.diff(n=1, dim=-1), scores.diff(dim=-1)
        low = rise[..., :tenth].sum(-1, keepdim=True) / run[..., :tenth].sum(-1, keepdim=True)
        high = rise[..., -tenth:].sum(-1, keepdim=True) / run[..., -tenth:].sum(-1, keepdim=True)
        return cls(*extend(scores, values, low, high))

    def score(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Score and slope dw / dy at points `(..., N, D)`."""
        return interpolate(y.to(self.values), self.values, self.scores)

    def quantile(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope dy / dw at scores `(..., N, D)`."""
        return interpolate(w.to(self.values), self.scores, self.values)


def member_scores(ensemble: Ensemble) -> Tensor:
    """Normal scores of the members of an ensemble in their own margins, `(S, N, D)`."""
    ordered, shares = _ordered(ensemble)
    members = ensemble.samples.double().movedim(0, -1).contiguous()
    first = torch.searchsorted(ordered, members)
    last = torch.searchsorted(ordered, members, right=True) - 1
    middle = 0.5 * (shares.gather(-1, first) + shares.gather(-1, last))  # of ties
    return torch.special.ndtri(middle).movedim(-1, 0)


def _ordered(ensemble: Ensemble) -> tuple[Tensor, Tensor]:
    """Members in order, and the share of the weight up to the middle of each: `(N, D, S)`."""
    ordered, index = ensemble.samples.double().movedim(0, -1).sort(-1)
    if ensemble.weights is None:
        weights = torch.ones_like(ordered)
    else:
        # Members without weight still need a place of their own.
        weights = ensemble.weights.double().movedim(0, -1).unsqueeze(-2) + 1e-9
        weights = weights.expand_as(ordered).gather(-1, index)
    weights = weights / weights.sum(-1, keepdim=True)
    return ordered.contiguous(), weights.cumsum(-1) - weights / 2


def _quantiles(cdf: ProjectedCDF, scores: Tensor, points: Tensor) -> Tensor:
    r"""Quantiles `(L, N, D)` at normal scores, by bisection.

    By Cantelli's inequality a quantile at the level p lies within :math:`\sqrt{1 / p}` standard
    deviations of the mean, here those of draws `(S, N, D)`, doubled to be safe.
    """
    levels = torch.special.ndtr(scores).to(points).reshape(-1, 1, 1)
    reach = 2 / levels[0].sqrt() * points.std(0)
    low = (points.mean(0) - reach).expand(len(scores), -1, -1)
    high = (points.mean(0) + reach).expand(len(scores), -1, -1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = cdf(middle) < levels
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)
