"""A forecast, its observations and draws, and the same in units in which squares are numbers."""

from collections.abc import Callable
from functools import cache, cached_property

from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from prerank.distributions import Draws
from prerank.distributions.magnitudes import (
    RowFactors,
    Spans,
    check_ratio,
    check_resolution,
    row_factors,
    sample_spans,
    spans,
    times,
)
from prerank.pits.closed_forms import closed_form
from prerank.preranks import PCA, PreRank, Projection

__all__ = ["Frame", "Frames"]


class Frame:
    """What a pre-rank looks at.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        observed: `(..., N, D)`.
        draws: makes the draws, which are kept.
    """

    def __init__(self, dist: Distribution, observed: Tensor, draws: Callable[[], Draws]) -> None:
        self.dist, self.observed, self.draws = dist, observed, cache(draws)

    def times(self, factor: Tensor) -> "Frame":
        """The same in other units, `(..., N, 1)` or `(..., N, D)` of them in one of these."""

        def draws() -> Draws:
            points, weights = self.draws()
            return Draws(factor * points, weights)

        return Frame(times(self.dist, factor), factor * self.observed, draws)


class Frames:
    """The frame of each pre-rank, in other units where numbers would have no square.

    Args:
        frame: in the units of the targets.
        rescale: False keeps these units.
        check: raise where most forecasts are finer than the precision of their numbers.
    """

    def __init__(self, frame: Frame, *, rescale: bool = True, check: bool = True) -> None:
        self._frame, self._spans = frame, spans(frame.dist)
        self._rescale, self._check = rescale, check

    def of(self, prerank: PreRank) -> Frame:
        """The frame that a pre-rank is to look at."""
        frame = self._frame
        if self._spans is None and closed_form(frame.dist, prerank) is not None:
            return frame  # nothing is drawn that could tell how large the numbers are
        scaled = self._by_target if prerank.unitless else self._by_row
        if isinstance(prerank, PCA | Projection) and self._factors.targets is not None:
            check_ratio(self._found, frame.observed)  # it may look along a small target alone
        if scaled is None or not prerank.homogeneous:
            return frame
        # Densities rank alike in all units: those of other families stay as they are. So do their
        # closed forms, which the distribution in other units no longer has.
        wrapped = isinstance(scaled.dist, TransformedDistribution)
        own = wrapped and (prerank.needs_log_prob or closed_form(frame.dist, prerank) is not None)
        return frame if own else scaled

    @cached_property
    def _found(self) -> Spans:
        return self._spans or sample_spans(self._frame.draws().points)

    @cached_property
    def _factors(self) -> RowFactors:
        if not self._rescale:
            return RowFactors(None, None)
        if self._check:
            check_resolution(self._found, self._frame.observed, bounded=True)
        return row_factors(self._found, self._frame.observed)

    @cached_property
    def _by_row(self) -> Frame | None:
        factor = self._factors.rows
        return None if factor is None else self._frame.times(factor)

    @cached_property
    def _by_target(self) -> Frame | None:
        factor = self._factors.targets
        return None if factor is None else self._frame.times(factor)
