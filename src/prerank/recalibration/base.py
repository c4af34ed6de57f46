"""What every recalibrator does: learn corrections on calibration rows, then apply them."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.defaults import CALIBRATION_ROWS
from prerank.distributions import Rounded
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import (
    as_count,
    as_generator,
    check_distribution,
    check_observations,
    full_precision,
)
from prerank.recalibration.corrections import Correction

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
    """

    def __init__(
        self, *, n_samples: int = 512, generator: torch.Generator | int | None = None
    ) -> None:
        self.n_samples = n_samples
        self.generator = generator

    def fit(self, dist: Distribution, y: object) -> Self:
        """Learn from calibration rows, which the predictor was not trained on.

        Args:
            dist: predictions, `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`.
        """
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

    def __call__(self, dist: Distribution) -> Distribution:
        """Recalibrate predictions; where no correction was found they are returned as they are.

        Args:
            dist: as for `fit`, any number of rows.
        """
        name = type(self).__name__
        if not hasattr(self, "corrections_"):
            raise InputError(
                f"this {name} is not fitted: call fit(dist, y) on calibration rows first"
            )
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
