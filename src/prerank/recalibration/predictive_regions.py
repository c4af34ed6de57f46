r"""Prediction intervals and joint prediction regions, with a conformal guarantee of coverage.

A region of row x is :math:`\{y : H(y \mid x) \ge q\}`, where H is the forecast's own probability of
points that are no more central than y (for the density: the HDR pre-rank's PIT). Under a calibrated
forecast H is uniform, and q is one minus the level. m calibration rows, which nothing was fitted
to, make the coverage independent of that: q becomes the k-th largest of their
:math:`H_i = H(y_i \mid x_i)`, :math:`k = \lceil (m + 1) \cdot \mathrm{level} \rceil`. Then H of a
new row is as likely to take any rank among them, and

.. math:: \mathrm{level} \le P(Y \in R(X)) = \frac{k}{m + 1} < \mathrm{level} + \frac{1}{m + 1},
          \qquad P\big(Y \in R(X) \mid \text{calibration rows}\big)
          \sim \mathrm{Beta}(k, m + 1 - k),

whatever the forecast, if calibration rows and new rows are exchangeable and H has no ties (Vovk et
al., 2005; Vovk, 2012). This is a statement on average over rows: regions of single rows have the
level as far as the forecast is calibrated there. Rows that depend on each other, such as
neighbours in time, are not exchangeable.
"""

from copy import copy
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.defaults import REGION_LEVEL
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import (
    as_count,
    as_generator,
    as_points,
    as_probability,
    check_distribution,
    check_observations,
    full_precision,
    parameter_of,
)
from prerank.recalibration.conformal_scores import (
    CentralScores,
    ConformalScores,
    Cut,
    conformal_rank,
    tie_breakers,
)
from prerank.recalibration.region_shapes import SHAPES, BoxShape

__all__ = ["PredictiveRegion", "predictive_interval", "predictive_region"]

Calibration = tuple[Distribution, object]
"""Forecasts and observations of rows that nothing was fitted to."""

_MIN_SAMPLES = 50


class PredictiveRegion:
    """Joint prediction regions of all rows at one level; `predictive_region` makes them.

    Attributes:
        level: the coverage that is wanted.
        n_calibration: number of calibration rows, m; 0 for the forecast's own regions.
    """

    def __init__(
        self, scores: CentralScores, conformal: ConformalScores | None, level: float, ties: Tensor
    ) -> None:
        self.level, self.n_calibration = level, 0 if conformal is None else len(conformal.scores)
        self._scores, self._conformal, self._ties = scores, conformal, ties
        if conformal is None:
            self._cut = Cut(float(torch.special.ndtri(torch.tensor(1 - level).double())), 0.0)
        else:
            self._cut = conformal.cut(level)

    @property
    def dist(self) -> Distribution:
        """The forecasts, `batch_shape (N,)`."""
        return self._scores.shape.dist

    @property
    def threshold(self) -> Tensor:
        """Log-density at the edge of each region, `(N,)`.

        That of a box is minus half of the largest squared normal score of its limits.
        """
        return self._scores.threshold(self._cut.score)

    @property
    def limits(self) -> Tensor:
        """Lower and upper end of each target, `(N, D, 2)`: all hold together with the level.

        Raises:
            NotApplicableError: for regions of another shape than `"box"`.
        """
        shape = self._scores.shape
        if not isinstance(shape, BoxShape):
            raise NotApplicableError("a density region has no limits of targets: use shape='box'")
        return shape.snapped(shape.limits(self.threshold))

    def at(self, level: float) -> Self:
        """The regions at another level, from the same calibration rows.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> dist = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
            >>> region = predictive_region(dist, level=0.9, generator=0)
            >>> bool(region.at(0.5).volume(generator=0) < region.volume(generator=0))
            True
        """
        other = copy(self)
        PredictiveRegion.__init__(
            other, self._scores, self._conformal, as_probability(level, "level"), self._ties
        )
        return other

    def contains(self, y: object) -> Tensor:
        """Whether each observation lies in the region of its row.

        Args:
            y: observations `(N, D)`.

        Returns:
            `(N,)`, of truth values.
        """
        with torch.no_grad(), full_precision():
            return self._accept(self._scores.of(check_observations(self.dist, y)))

    def contains_points(self, points: object, row: int) -> Tensor:
        """Whether points `(S, D)` lie in the region of one row: `(S,)`."""
        if as_count(row, "row", minimum=0) >= len(self._ties):
            raise InputError(f"row must be below {len(self._ties)}, the number of rows, got {row}")
        points = as_points(points, "points")
        if points.shape[1:] != self.dist.event_shape:
            raise ShapeError(
                f"points must have shape (S, {self.dist.event_shape[0]}), got {tuple(points.shape)}"
            )
        parameter = parameter_of(self.dist)
        points = points if parameter is None else points.to(parameter)
        with torch.no_grad(), full_precision():
            own = self._scores.of_row(row)
            if own is None:  # a family whose rows cannot be told apart
                wide = points.unsqueeze(1).expand(-1, len(self._ties), -1)
                return self._accept(self._scores.of(wide))[:, row]
            return self._accept(own.of(points.unsqueeze(1)), slice(row, row + 1))[:, 0]

    def volume(
        self, *, n_samples: int = 1000, generator: torch.Generator | int | None = None
    ) -> Tensor:
        r"""Volume of each region, in the units of the targets.

        .. math:: |R| = \int_R dy \approx \frac1S \sum_s \frac{1\{y_s \in R\}}{q(y_s)},
                  \qquad y_s \sim q,

        for a density region, with a proposal q that reaches beyond the forecast; unbiased, with a
        relative standard error that falls as :math:`1 / \sqrt S` (for normal forecasts 4 % with two
        targets and 7 % with eight, from 1,000 points). A box has its volume in closed form. The
        length of a discrete target is its number of values.

        Args:
            n_samples: S, for each row.
            generator: a generator or seed.

        Returns:
            `(N,)`, in float64.
        """
        as_count(n_samples, "n_samples", minimum=_MIN_SAMPLES)
        source = as_generator(generator, "volume of a region")
        with torch.no_grad(), full_precision():
            return self._scores.shape.volume(
                self.threshold,
                lambda values: self._accept(self._scores.of_values(values)),
                n_samples,
                source,
            )

    def __repr__(self) -> str:
        """Level, rows and where the coverage comes from."""
        rows = f"{len(self._ties)} rows, level {self.level:g}"
        origin = f"{self.n_calibration} calibration rows" if self.n_calibration else "the forecast"
        return f"<{type(self).__name__}: {rows}, from {origin}>"

    def _accept(self, scores: Tensor, rows: slice = slice(None)) -> Tensor:
        """Whether scores `(..., N)` are large enough."""
        tied = (scores == self._cut.score) & (self._ties[rows] >= self._cut.tie)
        return (scores > self._cut.score) | tied


def predictive_region(
    dist: Distribution,
    level: float = REGION_LEVEL,
    *,
    calibration: Calibration | None = None,
    shape: str = "density",
    n_samples: int = 512,
    generator: torch.Generator | int | None = None,
) -> PredictiveRegion:
    """Joint prediction regions of all targets.

    Without calibration rows they are the forecast's own, and cover as much as it promises if it is
    calibrated. With m calibration rows (split-conformal prediction), they cover a new observation
    with a probability of at least the level and less than 1 / (m + 1) more, whatever the forecast
    (see `prerank.recalibration.predictive_regions`): on average over rows, not for each row alone.
    Ties of discrete targets are broken at random, so that this stays exact; boxes keep them, and
    cover more.

    Args:
        dist: forecasts, `batch_shape (N,)`, `event_shape (D,)`.
        level: in (0, 1).
        calibration: `(dist, y)` of rows that nothing was fitted to: neither the predictor nor its
            calibration. They must be exchangeable with the rows of `dist`; a level of .9 needs 9 of
            them at least, and a few hundred to be near it in every calibration sample.
        shape: `"density"`, the smallest region for a given forecast; `"box"`, intervals of the
            targets that hold together, also for an `Ensemble`.
        n_samples: draws per row, for the ranks of densities and for margins without closed form.
            From 512 draws the level of a single row is off by some .02; the coverage is not.
        generator: a generator or seed.

    References:
        Vovk, V., Gammerman, A., Shafer, G. (2005). Algorithmic learning in a random world.
        Izbicki, R., Shimizu, G., Stern, R. (2022). CD-split and HPD-split: efficient conformal
        regions in high dimensions. Journal of Machine Learning Research.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> truth = MultivariateNormal(torch.zeros(800, 2), torch.eye(2))
        >>> narrow = MultivariateNormal(torch.zeros(800, 2), 0.2 * torch.eye(2))
        >>> _ = torch.manual_seed(0)
        >>> y, y_cal = truth.sample(), truth.sample()
        >>> own = predictive_region(narrow, 0.9, generator=0)
        >>> bool(own.contains(y).double().mean() < 0.5)
        True
        >>> safe = predictive_region(narrow, 0.9, calibration=(narrow, y_cal), generator=0)
        >>> bool((safe.contains(y).double().mean() - 0.9).abs() < 0.05)
        True
    """
    wanted = as_probability(level, "level")
    if shape not in SHAPES:
        raise InputError(f"shape must be {' or '.join(map(repr, SHAPES))}, got {shape!r}")
    as_count(n_samples, "n_samples", minimum=_MIN_SAMPLES)
    source = as_generator(generator, "predictive region")
    with torch.no_grad(), full_precision():
        kind = SHAPES[shape]
        scores = CentralScores.made(_one_predictor(dist), kind, n_samples, source)
        conformal = None
        if calibration is not None:
            held_out, y = _calibration_pair(calibration, dist)
            known = CentralScores.made(held_out, kind, n_samples, source).of(y)
            conformal = ConformalScores(known, tie_breakers(known, kind, source))
        rows = torch.zeros(dist.batch_shape, dtype=torch.float64, device=scores.device)
        return PredictiveRegion(scores, conformal, wanted, tie_breakers(rows, kind, source))


def predictive_interval(
    dist: Distribution,
    level: float = REGION_LEVEL,
    *,
    joint: bool = False,
    calibration: Calibration | None = None,
    n_samples: int = 512,
    generator: torch.Generator | int | None = None,
) -> Tensor:
    r"""Central prediction intervals of each target, or bands that hold for all targets at once.

    .. math:: \big[F_d^{-1}(\Phi(-c_d)), F_d^{-1}(\Phi(c_d))\big]

    with :math:`\Phi(c_d) = (1 + \mathrm{level}) / 2`, or the k-th smallest
    :math:`|\Phi^{-1}(F_d(y_{id} \mid x_i))|` of the calibration rows, which then gives each target
    the level on its own. `joint=True` has the limits of `predictive_region(shape="box")`: all
    targets are inside at once with the level.

    Args:
        dist: forecasts, `batch_shape (N,)`, `event_shape (D,)`; also an `Ensemble`.
        level: in (0, 1).
        joint: whether the level is that of all targets together.
        calibration: as in `predictive_region`.
        n_samples: draws per row, where margins have no closed form.
        generator: a generator or seed.

    Returns:
        `(N, D, 2)`, in float64.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> dist = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> predictive_interval(dist, 0.9)[0, 0]
        tensor([-1.6449,  1.6449], dtype=torch.float64)
        >>> predictive_interval(dist, 0.9, joint=True, n_samples=5000, generator=0)[0, 0]
        tensor([-1.9..., 1.9...], dtype=torch.float64)
    """
    if joint:
        return predictive_region(
            dist,
            level,
            calibration=calibration,
            shape="box",
            n_samples=n_samples,
            generator=generator,
        ).limits
    wanted = as_probability(level, "level")
    as_count(n_samples, "n_samples", minimum=_MIN_SAMPLES)
    source = as_generator(generator, "predictive interval")
    with torch.no_grad(), full_precision():
        box = BoxShape(_one_predictor(dist), n_samples=n_samples, generator=source)
        half = torch.special.ndtri(torch.tensor((1 + wanted) / 2, dtype=torch.float64))
        if calibration is not None:
            held_out, y = _calibration_pair(calibration, dist)
            known = BoxShape(held_out, n_samples=n_samples, generator=source).distances(y)
            half = known.sort(0).values[conformal_rank(len(y), wanted) - 1]
        shape = dist.batch_shape + dist.event_shape
        return box.snapped(box.intervals(half.expand(shape)))


def _one_predictor(dist: object) -> Distribution:
    checked = check_distribution(dist)
    if len(checked.batch_shape) != 1:
        raise ShapeError(
            f"dist has batch_shape {tuple(checked.batch_shape)}: a region belongs to one predictor "
            "with batch_shape (N,); take the members of a stack one by one"
        )
    return checked


def _calibration_pair(calibration: object, dist: Distribution) -> tuple[Distribution, Tensor]:
    if not isinstance(calibration, tuple | list) or len(calibration) != 2:
        raise InputError("calibration must be a pair (dist, y) of forecasts and observations")
    held_out = _one_predictor(calibration[0])
    if held_out.event_shape != dist.event_shape:
        raise ShapeError(
            f"calibration has {held_out.event_shape[0]} targets, but dist has {dist.event_shape[0]}"
        )
    return held_out, check_observations(held_out, calibration[1]).detach()
