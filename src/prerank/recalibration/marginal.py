"""Recalibration of single targets."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution, constraints
from torch.distributions.transforms import Transform

from prerank.distributions import Ensemble
from prerank.distributions.density import in_support
from prerank.inputs import as_generator
from prerank.pits import pit
from prerank.recalibration.base import Recalibrator
from prerank.recalibration.corrections import Correction, fit_correction
from prerank.recalibration.margins import MarginTable, member_scores

__all__ = ["MarginalRecalibrated", "MarginalRecalibrator"]

_FARTHEST = 30.0


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
            found: Tensor = self.base_dist.log_prob(before) - stretch
            return found
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
