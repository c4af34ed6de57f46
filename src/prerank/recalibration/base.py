"""What every recalibrator does: learn corrections on calibration rows, then apply them."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Self, overload

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import Names, named_forecast
from prerank.adapters.named_arguments import refuse_names
from prerank.defaults import CALIBRATION_ROWS
from prerank.distributions import Rounded
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import (
    as_count,
    as_generator,
    check_distribution,
    check_observations,
    column_names,
    full_precision,
    is_named,
)
from prerank.recalibration.corrections import Correction
from prerank.recalibration.named_members import changed_members

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Recalibrator", "refuse_discrete"]

_MIN_SAMPLES = 50


def refuse_discrete(dist: Distribution) -> None:
    """Raise for distributions of discrete targets: what is recalibrated has a density."""
    try:
        discrete = dist.support is not None and dist.support.is_discrete
    except NotImplementedError:  # a distribution that does not say
        discrete = False
    if discrete or isinstance(dist, Rounded):
        raise NotApplicableError(
            f"{type(dist).__name__} is a distribution of discrete targets, and what is calibrated "
            "would have mass between their values: calibrate the distribution before rounding, on "
            "spread targets"
        )


class Recalibrator(ABC):
    r"""Estimates on calibration rows which law PITs have, and corrects predictions by it.

    A recalibrator names the PITs in question by `_fitted`, and by `_recalibrated` the law under
    which they are uniform. It works on one predictor at a time, with `batch_shape (N,)`.

    Args:
        n_samples: draws per row, where a law needs them.
        generator: a seed, or a generator from which one is taken at `fit`.

    Attributes:
        corrections_: one for each kind of PIT (see `prerank.recalibration.corrections`).
        target_names_: of the targets.
        dimensions_: those of the members and of an event, where it was fitted to arrays of xarray.
    """

    dimensions_: tuple[Hashable | None, tuple[Hashable, ...]] | None

    def __init__(
        self, *, n_samples: int = 512, generator: torch.Generator | int | None = None
    ) -> None:
        self.n_samples = n_samples
        self.generator = generator

    def fit(
        self,
        dist: "Distribution | xr.DataArray | xr.Dataset",
        y: object,
        *,
        member: Hashable | None = None,
        target: Names | None = None,
        rows: Names | None = None,
    ) -> Self:
        """Learn from calibration rows, which the predictor was not trained on.

        Args:
            dist: predictions, `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
            member: the dimension of the samples, where `dist` and `y` are of xarray: they are
                matched as by `prerank.adapters.named_forecast`.
            target: the dimensions that form one event, likewise.
            rows: the other dimensions, likewise.
        """
        if is_named(dist):
            found = named_forecast(dist, y, member=member, target=target, rows=rows)
            self.fit(found.dist, found.y)
            self.dimensions_ = (found.samples.member, found.samples.target)
            return self
        refuse_names(member=member, target=target, rows=rows)
        checked = self._checked(dist)
        observed = check_observations(checked, y).detach()
        if len(observed) < CALIBRATION_ROWS:
            raise InputError(
                f"y has {len(observed)} rows: recalibration needs at least "
                f"{CALIBRATION_ROWS} that the predictor was not trained on, and some hundreds "
                "to be of use"
            )
        as_count(self.n_samples, "n_samples", minimum=_MIN_SAMPLES)
        source = as_generator(self.generator, type(self).__name__)
        with torch.no_grad(), full_precision():
            self.corrections_: list[Correction] = self._fitted(checked, observed, source)
        self.n_targets_: int = observed.shape[-1]
        self.target_names_ = tuple(map(str, column_names(y, self.n_targets_)))
        self.dimensions_ = None
        device = "cpu" if source is None else source.device
        self.seed_ = int(torch.randint(2**31, (), generator=source, device=device))
        return self

    def __repr__(self) -> str:
        """The arguments, and what was found where it is fitted."""
        call = f"{type(self).__name__}(n_samples={self.n_samples}, generator={self.generator})"
        if not hasattr(self, "corrections_"):
            return f"<{call}, not fitted>"
        changed = sum(not correction.is_identity for correction in self.corrections_)
        return (
            f"<{call}, fitted to {self.n_targets_} targets: {changed} of "
            f"{len(self.corrections_)} PITs corrected>"
        )

    @overload
    def __call__(self, dist: Distribution) -> Distribution: ...

    @overload
    def __call__(self, dist: "xr.DataArray | xr.Dataset") -> Any: ...

    def __call__(self, dist: Any) -> Any:
        """Recalibrate predictions; where no correction was found they are returned as they are.

        Args:
            dist: as for `fit`, any number of rows.

        Returns:
            Samples of xarray with the dimensions, coordinates and attributes of `dist`; otherwise a
            distribution.
        """
        name = type(self).__name__
        if not hasattr(self, "corrections_"):
            raise InputError(
                f"this {name} is not fitted: call fit(dist, y) on calibration rows first"
            )
        if is_named(dist):
            return changed_members(
                dist,
                self._applied,
                of=f"this {name}",
                dimensions=self.dimensions_,
                targets=self.target_names_,
            )
        return self._applied(dist)

    def _applied(self, dist: Distribution) -> Distribution:
        """Recalibrate a distribution."""
        name = type(self).__name__
        checked = self._checked(dist)
        if checked.event_shape[0] != self.n_targets_:
            raise ShapeError(
                f"dist has event_shape {tuple(checked.event_shape)}, but this {name} was fitted "
                f"for {self.n_targets_} targets"
            )
        if all(correction.is_identity for correction in self.corrections_):
            return checked
        with torch.no_grad(), full_precision():
            return self._recalibrated(checked)

    @abstractmethod
    def _fitted(
        self, dist: Distribution, y: Tensor, source: torch.Generator | None
    ) -> list[Correction]:
        """Corrections for observations y `(N, D)`."""

    @abstractmethod
    def _recalibrated(self, dist: Distribution) -> Distribution:
        """The corrected law."""

    def _checked(self, dist: object) -> Distribution:
        """Check that `dist` holds the predictions of one predictor for continuous targets."""
        checked = check_distribution(dist)
        if len(checked.batch_shape) != 1:
            raise ShapeError(
                f"dist has batch_shape {tuple(checked.batch_shape)}: recalibration works on one "
                "predictor at a time, with batch_shape (N,); take the members of a stack one by one"
            )
        refuse_discrete(checked)
        return checked
