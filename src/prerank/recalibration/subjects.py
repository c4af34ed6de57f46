"""What a calibration head is fitted to: mixtures, other densities, and ensembles of samples."""

from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.mixtures import supported_log_prob
from prerank.distributions import Ensemble, GaussianMixture
from prerank.errors import InputError
from prerank.recalibration.anatomy import Anatomy
from prerank.recalibration.change import LEVELS, Change
from prerank.recalibration.copies import Copies, Moments
from prerank.scores import energy_score

__all__ = ["Subject", "subject_of"]

_BOUND = 20.0  # nats above the median, from which on a row counts by the logarithm of its excess
_MOST = 1e6  # nats of a row outside the support
_OF_DENSITIES = tuple(level for level in LEVELS if level != "tilts")  # those need components
# The mean and the principal axes of a few members are not those of the forecast. A change along
# them improves scores, but members and observation are not exchangeable any more.
_OF_SAMPLES = tuple(level for level in _OF_DENSITIES if level not in ("means", "dependence"))
_MEMBERS = 50  # of an ensemble, that a loss looks at


class Subject(Protocol):
    """Predictions of `batch_shape (*stack, N)`, their observations, and a proper score of them."""

    y: Tensor
    levels: tuple[str, ...]
    centre: Tensor
    """Mean over the rows of what is predicted, `(*stack, D)`."""

    def batch(
        self, change: Change, levels: frozenset[str], rows: Tensor
    ) -> tuple[Distribution, Tensor]:
        """Predictions through which gradients reach the change, and their observations.

        Args:
            change: parameters with the shape of the stack first.
            levels: those that are not the identity.
            rows: `(b,)`; a subject whose rows cannot be told apart answers with all of them.
        """

    def loss(self, change: Change, levels: frozenset[str], rows: Tensor) -> Tensor:
        """Score of rows `(b,)`, or of F sets `(F, b)` under F changes: a number for each."""

    def score(self, dist: Distribution, y: Tensor) -> Tensor:
        """Score of each row of a batch."""


def subject_of(dist: Distribution, y: Tensor) -> Subject:
    """The subject for a kind of distribution."""
    if isinstance(dist, GaussianMixture):
        return _Mixtures(dist, y)
    return _Samples(dist, y) if isinstance(dist, Ensemble) else _Densities(dist, y)


def _picked(values: Tensor, rows: Tensor, axis: int) -> Tensor:
    """Rows `(b,)` or `(F, b)` of values `(*stack, N, ...)`: `(F, *stack, b, ...)`."""
    return values.movedim(axis, 0)[rows].movedim(rows.dim() - 1, axis + rows.dim() - 1)


class _Likelihood:
    """Negative log-likelihood, in which single rows do not outweigh all others."""

    def __init__(self, dist: Distribution, y: Tensor) -> None:
        with torch.no_grad():
            nll = -supported_log_prob(dist, y)
            if bool(nll.isnan().any()):
                raise InputError(
                    "dist: log_prob is NaN for some rows; its parameters must be finite"
                )
            if not bool(nll.isfinite().any(-1).all()):
                raise InputError("y: every observation has density 0 under dist; compare the units")
            known = torch.where(nll.isfinite(), nll, torch.nan)
            self._limit = known.nanmedian(-1, keepdim=True).values + _BOUND
            self._least = torch.where(nll.isfinite(), nll, torch.inf).amin(-1, keepdim=True)

    def __call__(self, dist: Distribution, y: Tensor) -> Tensor:
        return self.bounded(-supported_log_prob(dist, y))

    def bounded(self, nll: Tensor) -> Tensor:
        """Let rows far above the median count by the logarithm of their excess."""
        # An infinite density, as some have at the end of their support, is no evidence.
        nll = torch.where(nll == -torch.inf, self._least, nll)
        excess = torch.log1p((nll - self._limit).clamp(0, _MOST))
        # No gain elsewhere outweighs a row that the change puts outside of the support.
        outside = torch.where(nll.isfinite(), excess, _MOST)
        return torch.minimum(nll, self._limit) + outside


class _Mixtures:
    """Gaussian mixtures: any rows, in closed form."""

    levels = tuple(LEVELS)

    def __init__(self, dist: GaussianMixture, y: Tensor) -> None:
        self.parts, self.y = Anatomy.of(dist), y
        self.centre = self.parts.mean.mean(-2)
        self.score = _Likelihood(dist, y)
        self._before = dist.log_prob(y).detach()

    def batch(
        self, change: Change, levels: frozenset[str], rows: Tensor
    ) -> tuple[Distribution, Tensor]:
        return self.parts.rows(rows).changed(change, levels), _picked(
            self.y, rows, self.y.dim() - 2
        )

    def loss(self, change: Change, levels: frozenset[str], rows: Tensor) -> Tensor:
        axis = self.y.dim() - 2
        y, before = (_picked(part, rows, axis) for part in (self.y, self._before))
        return self.score.bounded(-self.parts.rows(rows).log_prob(change, levels, y, before))


class _Densities:
    """Any density. Its rows cannot be told apart, so all of them are computed each time."""

    levels = _OF_DENSITIES

    def __init__(self, dist: Distribution, y: Tensor) -> None:
        self.dist, self.y, self.moments = dist, y, Moments.of(dist)
        self.centre = self.moments.mean.mean(-2)
        self.score = _Likelihood(dist, y)

    def batch(
        self, change: Change, levels: frozenset[str], rows: Tensor
    ) -> tuple[Distribution, Tensor]:
        return Copies(self.dist, change, self.moments, levels), self.y

    def loss(self, change: Change, levels: frozenset[str], rows: Tensor) -> Tensor:
        value = self.score(*self.batch(change, levels, rows))
        where = rows.reshape(*rows.shape[:-1], *[1] * (value.dim() - rows.dim()), -1)
        return value.gather(-1, where.expand(*value.shape[:-1], -1))


class _Samples:
    """Ensembles: each member in one of the copies, with a weight, and the energy score."""

    levels = _OF_SAMPLES

    def __init__(self, dist: Ensemble, y: Tensor) -> None:
        self.y, self.moments = y, Moments.of(dist)
        self.centre = self.moments.mean.mean(-2)
        members, weights = dist.samples, dist.weights
        if len(members) > _MEMBERS and weights is not None:  # with replacement, in each row anew
            members, weights = dist.sample(torch.Size((_MEMBERS,)), generator=0), None
        order = torch.randperm(len(members), generator=torch.Generator().manual_seed(0))
        kept = order[:_MEMBERS].to(y.device)
        self._members = members[kept].movedim(0, -2)  # (*stack, N, S, D)
        self._weights = None if weights is None else weights[kept].movedim(0, -1)
        everything = torch.arange(y.shape[-2], device=y.device)
        zero = Change.identity(y.shape[-1], 1, stack=tuple(y.shape[:-2]), like=y)
        # Relative to that of the forecast, the score has no units.
        self._unit = torch.ones(())
        self._unit = self.loss(zero, frozenset(), everything).mean(-1, keepdim=True).detach()

    def batch(
        self, change: Change, levels: frozenset[str], rows: Tensor
    ) -> tuple[Distribution, Tensor]:
        axis = self.y.dim() - 2
        members = _picked(self._members, rows, axis).movedim(-2, 0)
        moments = Moments(*(_picked(part, rows, axis) for part in self.moments))
        copies = Copies(Ensemble(members), change, moments, levels)
        # The same noise in every call: losses of two changes can be compared.
        draws = copies.differentiable_draws(len(members), torch.Generator().manual_seed(0))
        weights = draws.weights
        if self._weights is not None and weights is not None:
            weights = weights * _picked(self._weights, rows, axis).movedim(-1, 0)
        return Ensemble(draws.points, weights), _picked(self.y, rows, axis)

    def loss(self, change: Change, levels: frozenset[str], rows: Tensor) -> Tensor:
        return self.score(*self.batch(change, levels, rows))

    def score(self, dist: Distribution, y: Tensor) -> Tensor:
        # Members move about their own mean, so they are not independent draws: the fair estimator
        # would widen small ensembles that are calibrated.
        return energy_score(dist, y, estimator="nrg") / self._unit.to(y)
