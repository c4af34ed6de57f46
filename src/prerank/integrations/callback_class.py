"""A callback of Lightning that diagnoses the forecasts of the validation rows."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.distributions import Distribution

from prerank.diagnosis import Diagnoser, Diagnosis
from prerank.extras import library
from prerank.inputs import as_count
from prerank.integrations.trackers import tracked_numbers

__all__ = ["lightning_callback"]

Forecast = Callable[[Any, Any], tuple[Distribution, object]]


def lightning_callback(
    *,
    forecast: Forecast | None = None,
    every: int = 1,
    prefix: str = "calibration",
    **options: Any,
) -> Any:
    """A `lightning.Callback` that diagnoses all validation rows at the end of an epoch.

    It logs what `tracked_numbers` names, to whatever logger the trainer has; early stopping and
    checkpoints can monitor `calibration/excess`. The last `Diagnosis` is its `diagnosis`.

    Args:
        forecast: from the module and a batch to a distribution of N rows and observations `(N, D)`;
            by default the batch is `(x, y)`, and the module called with x gives the distribution.
        every: epochs from one diagnosis to the next.
        prefix: of the logged names.
        options: keywords of `Diagnoser`, such as `preranks` and `names`.

    Returns:
        A callback, for `Trainer(callbacks=[...])`.

    Example:
        >>> callback = lightning_callback(preranks="marginal+scale", every=5)
        >>> callback.diagnosis is None
        True
    """
    Diagnoser(**options)  # an option that is wrong is named now
    return _callback_class()(
        forecast or _called, as_count(every, "every", minimum=1), prefix, options
    )


def _called(module: Any, batch: Any) -> tuple[Distribution, object]:
    x, y = batch
    return module(x), y


@cache
def _callback_class() -> type:
    lightning = library("lightning", "lightning_callback")

    class CalibrationCallback(lightning.Callback):  # type: ignore[misc, name-defined]
        """Diagnoses validation rows; `lightning_callback` makes it."""

        def __init__(
            self, forecast: Forecast, every: int, prefix: str, options: dict[str, Any]
        ) -> None:
            self.forecast, self.every, self.prefix, self.options = forecast, every, prefix, options
            self.diagnosis: Diagnosis | None = None
            self._diagnoser: Diagnoser | None = None

        def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            """Forget the rows of earlier epochs."""
            due = not trainer.sanity_checking and (trainer.current_epoch + 1) % self.every == 0
            self._diagnoser = Diagnoser(**self.options) if due else None

        def on_validation_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *place: Any
        ) -> None:
            """Add the rows of a batch."""
            if self._diagnoser is not None:
                with torch.no_grad():
                    self._diagnoser.update(*self.forecast(pl_module, batch))

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            """Diagnose, and log the numbers."""
            if self._diagnoser is not None:
                found = self.diagnosis = self._diagnoser.result()
                pl_module.log_dict(tracked_numbers(found, prefix=self.prefix), on_epoch=True)

    CalibrationCallback.__qualname__ = "CalibrationCallback"  # where pickle finds it
    return CalibrationCallback


def __getattr__(name: str) -> Any:
    """The class, for pickle: lightning is not imported before it is needed."""
    if name == "CalibrationCallback":
        return _callback_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
