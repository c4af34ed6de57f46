"""Recalibration of highest-density regions."""

import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.distributions.noise import standard_uniform
from prerank.errors import NotApplicableError
from prerank.inputs import Shape, as_generator, full_precision
from prerank.preranks import HDR
from prerank.recalibration.base import Recalibrator
from prerank.recalibration.corrections import Correction, fit_correction
from prerank.recalibration.level_sets import DensityMap, LevelTable
from prerank.recalibration.proposals import Proposal

__all__ = ["HDRRecalibrated", "HDRRecalibrator"]

_MAX_ROUNDS = 500
_DEFENCE = 0.1  # of the draws come from the proposal whatever the regression says
_HEADROOM = 0.4  # above the largest log-ratio of the fixed points, for points not among them
_FEW = 5  # points on which the integral of a row should rest at least
_RAREST = 3.0  # log-ratio at which draws are cut off, so that one in 20 is kept at least


class HDRRecalibrator(Recalibrator):
    r"""Give every highest-density region the coverage that it has on calibration rows.

    .. math:: f_{new}(y \mid x) = f(y \mid x) \, g\big(H(y \mid x)\big), \qquad
              H(y \mid x) = P\big(f(Y' \mid x) \le f(y \mid x)\big), \quad Y' \sim f(\cdot \mid x),

    with g the density of H on the calibration rows: uniform, and nothing changes, where the
    predictor is calibrated for `"hdr"`. H is uniform under f, so the new density integrates to one,
    and it gives H the law that it was seen to have. Chung et al. (2024) do this to samples: they
    sort draws of f into bins of H and keep as many of each bin as it should have. Here the new law
    has a density, and its draws reach beyond those of f.

    *Order.* The HDR pre-rank of the new law orders points by :math:`f_{new}`. Where that is an
    increasing function of f, the new PIT is G(H), uniform on average over rows whatever H depends
    on. Elsewhere it would be uniform only if H has the same law at every x. So the order is
    enforced, row by row: density levels at which :math:`f g(H)` falls as f rises are pooled with
    their neighbours into a plateau of the same mass and volume.

    One function of one number is corrected: bias, wrong dependence and wrong margins remain as far
    as level sets of f cannot express them.

    Args:
        n_samples: points per row from which H is estimated.
        generator: a seed, or a generator from which one is taken at `fit`.

    Attributes:
        corrections_: one, the estimated law of H (see `prerank.recalibration.corrections`).

    References:
        Chung, Y., Char, I., Schneider, J. (2024). Sampling-based multi-dimensional recalibration.
        International Conference on Machine Learning.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> import prerank
        >>> truth = MultivariateNormal(torch.zeros(500, 2), torch.eye(2))
        >>> narrow = MultivariateNormal(torch.zeros(500, 2), 0.3 * torch.eye(2))
        >>> _ = torch.manual_seed(0)
        >>> recalibrator = HDRRecalibrator(generator=0).fit(narrow, truth.sample())
        >>> wider, y = recalibrator(narrow), truth.sample()
        >>> before = prerank.pce(prerank.pit(narrow, y, "hdr", generator=0))
        >>> after = prerank.pce(prerank.pit(wider, y, "hdr", generator=0))
        >>> bool(before > 0.2), bool(after < 0.04)
        (True, True)
    """

    def _fitted(
        self, dist: Distribution, y: Tensor, source: torch.Generator | None
    ) -> list[Correction]:
        proposal = Proposal(dist, generator=source)
        table = LevelTable.of(proposal.draw(self.n_samples, generator=source))
        uniform = standard_uniform(y.shape[:1], like=y, generator=source)
        return [fit_correction(table.score(proposal.log_density(y), uniform), generator=source)]

    def _recalibrated(self, dist: Distribution) -> Distribution:
        return HDRRecalibrated(
            dist, self.corrections_[0], n_samples=self.n_samples, generator=self.seed_
        )

    def _checked(self, dist: object) -> Distribution:
        checked = super()._checked(dist)
        try:
            HDR().check(checked)
        except NotApplicableError as error:
            raise NotApplicableError(
                f"HDR recalibration needs a density and {type(dist).__name__} has none: use "
                "MarginalRecalibrator, which works by ranks, or fit a distribution with log_prob "
                "to the samples"
            ) from error
        return checked


class HDRRecalibrated(Distribution):
    r"""The law with density f g(H), for given f and g.

    .. math:: \log f_{new}(y) = M_x(\log f(y)),

    with an increasing, piecewise linear map :math:`M_x` for each row, made of the density levels of
    two fixed sets of points (see `prerank.recalibration.level_sets`), up to whose error each row
    integrates to one. Draws follow this density, by rejection, with a bound that is taken from the
    same points; where it would leave less than one draw in 20, it is cut off there.

    Args:
        base: f, `batch_shape (N,)`, `event_shape (D,)`, with `log_prob`.
        correction: G, by `HDRRecalibrator.fit`.
        n_samples: points per row.
        generator: a generator or seed for the points.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector
    has_rsample = False

    def __init__(
        self,
        base: Distribution,
        correction: Correction,
        *,
        n_samples: int = 512,
        generator: torch.Generator | int | None = None,
    ) -> None:
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)
        source = as_generator(generator, "hdr recalibrated")
        self.base = base
        with torch.no_grad(), full_precision():
            self._proposal = Proposal(base, reach=correction.reach, generator=source)
            table = LevelTable.of(self._proposal.draw(n_samples, generator=source))
            pool = self._proposal.draw(n_samples, generator=source)
            self._map, sizes = DensityMap.of(table, correction).normalised(pool)
            # The laws that make up the new density are the ones to draw it from.
            sizes = sizes.clamp_min(1e-9)
            sizes = (1 - _DEFENCE) * sizes / sizes.sum(-1, keepdim=True)
            self._shares = sizes + _DEFENCE * self._proposal.shares
            log_q = (pool.log_components + self._shares.log().mT.unsqueeze(1)).logsumexp(0)
            log_ratio = self._map(pool.log_density) - log_q
            self._bound = (log_ratio.amax(0) + _HEADROOM).clamp_max(_RAREST)
            _warn_of_few((self._map(pool.log_density) - pool.log_q).softmax(0))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, N, D)`; minus infinity outside the support of f."""
        shape = torch.broadcast_shapes(value.shape, self.batch_shape + self.event_shape)
        return self._map(self._proposal.log_density(value.expand(shape))).to(value.dtype)

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw by rejection, without gradients: `(*sample_shape, N, D)`."""
        n = torch.Size(sample_shape).numel()
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        points, filled = None, None
        with torch.no_grad(), full_precision():
            for _ in range(_MAX_ROUNDS):
                pool = self._proposal.draw(max(n, 16), shares=self._shares, generator=source)
                uniform = standard_uniform(pool.log_q.shape, like=pool.log_q, generator=source)
                chance = self._map(pool.log_density) - pool.log_q - self._bound
                accepted = uniform.log() < chance
                points = pool.points if points is None else torch.cat([points, pool.points])
                filled = accepted if filled is None else torch.cat([filled, accepted])
                # Accepted ones first, in the order of their drawing.
                order = filled.to(torch.uint8).argsort(dim=0, descending=True, stable=True)[:n]
                points = points.gather(0, order.unsqueeze(-1).expand(-1, -1, points.shape[-1]))
                filled = filled.gather(0, order)
                if bool(filled.all()):
                    return points.reshape(*sample_shape, *self.batch_shape, *self.event_shape)
        raise NotApplicableError(
            f"no {n} draws in {_MAX_ROUNDS} rounds: the correction is too far from the forecast to "
            "sample from it"
        )

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Distribution:
        """Return itself: rows have a table each, and one predictor no further axes."""
        if torch.Size(batch_shape) != self.batch_shape:
            raise NotApplicableError(
                f"a recalibrated law with batch_shape {tuple(self.batch_shape)} does not expand to "
                f"{tuple(batch_shape)}: expand the forecast first, then recalibrate it"
            )
        return self


def _warn_of_few(shares: Tensor) -> None:
    """Warn where few of the points, with shares `(S, N)` of the new mass, make up most of it."""
    count = int((1 / shares.square().sum(0) < _FEW).sum())
    if count:
        warnings.warn(
            f"in {count} of {shares.shape[1]} rows the recalibrated density rests on fewer than "
            f"{_FEW} of {len(shares)} points, and does not integrate to one: raise n_samples, or "
            "recalibrate the forecast itself where its margins were recalibrated before",
            stacklevel=2,
        )
