r"""Recalibration of single targets.

For each row and target a piecewise linear table joins values y and normal scores
:math:`w = \Phi^{-1}(F_d(y))`. It is exact at its nodes where the margins have a closed form, and
estimated from draws for other distributions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution, constraints
from torch.distributions.transforms import Transform

from prerank.distributions import Ensemble, draw
from prerank.distributions.densities import in_support
from prerank.inputs import as_generator
from prerank.pits import ProjectedCDF, closed_form, pit
from prerank.preranks import Marginal
from prerank.recalibration.base import Recalibrator
from prerank.recalibration.corrections import Correction, extend, fit_correction, interpolate

__all__ = ["MarginTable", "MarginalRecalibrated", "MarginalRecalibrator", "member_scores"]

_FARTHEST = 30.0
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


class MarginalRecalibrator(Recalibrator):
    r"""Give every quantile of a target the coverage that it has on calibration rows.

    .. math:: F_{new,d}(y \mid x) = R_d\big(F_d(y \mid x)\big), \qquad
              R_d(u) = P\big(F_d(Y_d \mid X) \le u\big),

    with :math:`R_d` estimated on calibration rows, strictly increasing, and the identity where the
    margin is calibrated (Kuleshov et al., 2018, for one target). The copula of the forecast is
    kept: a draw y' becomes :math:`y_d = F_d^{-1}(R_d^{-1}(F_d(y'_d)))`, target by target, so a
    wrong dependence between targets stays wrong.

    The new law is a `MarginalRecalibrated`. An `Ensemble` becomes another one, by ranks: each
    member moves to the quantile that its rank should stand for, interpolated between members and,
    beyond the outer ones, continued with the slope of the outer tenth of them on the normal scale.
    Ranks and weights are kept. With few members the tails rest on that continuation.

    Args:
        n_samples: draws per row for laws whose margins have no closed form.
        generator: a seed, or a generator from which one is taken at `fit`.

    Attributes:
        corrections_: one for each target (see `prerank.recalibration.corrections`).

    References:
        Kuleshov, V., Fenner, N., Ermon, S. (2018). Accurate uncertainties for deep learning using
        calibrated regression. International Conference on Machine Learning.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> truth = MultivariateNormal(torch.zeros(1000, 2), torch.eye(2))
        >>> wide = MultivariateNormal(torch.zeros(1000, 2), 4 * torch.eye(2))
        >>> _ = torch.manual_seed(0)
        >>> recalibrator = MarginalRecalibrator(generator=0).fit(wide, truth.sample())
        >>> deviation = recalibrator(wide).sample((500,)).std()
        >>> bool((deviation - 1).abs() < 0.1)
        True
    """

    def _fitted(
        self, dist: Distribution, y: Tensor, source: torch.Generator | None
    ) -> list[Correction]:
        if isinstance(dist, Ensemble):
            # How far beyond all members an observation lies cannot be told from ranks.
            least = 0.25 / (len(dist.samples) + 1)
            z = pit(dist, y, "marginal", generator=source).double().clamp(least, 1 - least)
            scores = torch.special.ndtri(z)
        else:
            scores = self._table(dist, source).score(y)[0].clamp(-_FARTHEST, _FARTHEST)
        return [fit_correction(column.contiguous(), generator=source) for column in scores.mT]

    def _recalibrated(self, dist: Distribution) -> Distribution:
        table = self._table(dist, as_generator(self.seed_, "margins"))
        change = MarginMap(table, self.corrections_)
        if isinstance(dist, Ensemble):
            return Ensemble(change.moved(dist.samples, member_scores(dist)), dist.weights)
        return MarginalRecalibrated(dist, [change], validate_args=False)

    def _table(self, dist: Distribution, source: torch.Generator | None) -> MarginTable:
        return MarginTable.of(dist, n_samples=self.n_samples, generator=source)


class MarginalRecalibrated(TransformedDistribution):
    r"""The law of a forecast's draws after an increasing map of each target (see `MarginMap`).

    The margins are tabulated, exactly so where they have a closed form. The density belongs to the
    draws whatever the table. Beyond its ends the table goes on as a straight line: targets with a
    bounded support may leave it, and observations near its ends may have no density.
    """

    has_rsample = False  # the table passes no gradient on

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density, -inf where no draw of the forecast becomes such a value."""
        change: Any = self.transforms[0]
        before = change.inv(value)
        stretch = change.log_abs_det_jacobian(before, value)
        inside = in_support(self.base_dist, before)
        if inside is None:
            log_density: Tensor = self.base_dist.log_prob(before) - stretch
            return log_density
        middle = change.table.quantile(torch.zeros_like(before))[0].to(before)
        safe = torch.where(inside.unsqueeze(-1), before, middle)
        return torch.where(inside, self.base_dist.log_prob(safe) - stretch, -torch.inf)


class MarginMap(Transform):
    r"""Increasing maps of each target, that leave the order of draws as it is.

    With :math:`w = W(y) = \Phi^{-1}(F(y))` and :math:`A = \Phi^{-1} \circ R \circ \Phi`, both per
    target, :math:`R(F(y)) = F(y')` says :math:`A(W(y)) = W(y')`. So the draw y' becomes y by

    .. math:: y = W^{-1}\big(A^{-1}(W(y'))\big), \qquad
              \log \Big|\frac{dy'}{dy}\Big| = \sum_d \log \frac{W'(y_d) \, A'(W(y_d))}{W'(y'_d)}.

    Args:
        table: W, for each row and target.
        corrections: A, one for each target.
    """

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, table: MarginTable, corrections: list[Correction]) -> None:
        super().__init__()
        self.table = table
        self.corrections = corrections

    def moved(self, points: Tensor, scores: Tensor) -> Tensor:
        """Send points with the scores w to the values at A^-1(w), or nowhere where A changes none.

        Args:
            points: `(..., N, D)`.
            scores: `(..., N, D)`.
        """
        columns = zip(self.corrections, scores.unbind(-1), strict=True)
        wanted = torch.stack([c.inverse(column) for c, column in columns], -1)
        return self._where_changed(self.table.quantile(wanted)[0], points)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Log dy / dy' at draws x = y' and what they became: `(..., N)`."""
        _, slope_after = self.table.score(y)
        _, slope_before = self.table.score(x)
        stretch = slope_before.log() - slope_after.log() - self._forward(y)[1]
        return self._where_changed(stretch, torch.zeros_like(x)).sum(-1)

    def _call(self, x: Tensor) -> Tensor:
        return self.moved(x, self.table.score(x)[0])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._where_changed(self.table.quantile(self._forward(y)[0])[0], y)

    def _forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """A(W(y)) and log A'(W(y)), `(..., N, D)`."""
        scores, _ = self.table.score(y)
        columns = zip(self.corrections, scores.unbind(-1), strict=True)
        values, slopes = zip(*(c.forward(column) for c, column in columns), strict=True)
        return torch.stack(values, -1), torch.stack(slopes, -1)

    def _where_changed(self, new: Tensor, old: Tensor) -> Tensor:
        """New values for targets that have a correction, in the dtype of the old ones."""
        still = torch.tensor([c.is_identity for c in self.corrections], device=old.device)
        return torch.where(still, old, new.to(old.dtype))
