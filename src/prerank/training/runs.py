"""What a training run is given, says on its way and leaves."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from prerank import defaults
from prerank.errors import InputError
from prerank.inputs import as_count, as_positive
from prerank.moved import old_arguments, warn_of_end

__all__ = ["Progress", "Run", "Settings", "TrainingResult"]

_TUNING_STEPS = 10
_STOPS = ("objective", "score")


@dataclass(frozen=True)
class Run:
    """One training run: a seed, a split of the data and a strength of the penalty."""

    seed: int
    split: int = 0
    strength: float = 0.0

    def __post_init__(self) -> None:
        """Check the strength."""
        if self.strength < 0:
            raise InputError(f"strength must not be negative, got {self.strength}")


@old_arguments(shift="holdout_offset")
@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes:
        lr: learning rate of Adam.
        batch_size: rows per step.
        last_batch: make a step of the rows of an epoch that fill no batch, too. They are left out
            by default: which ones they are changes with every epoch, and their gradient would be a
            noisy one of full weight.
        min_steps: least number of steps in an epoch, which on few rows passes over them several
            times: otherwise a run on a handful of batches would be judged, and stopped, after a
            handful of steps.
        max_epochs: upper limit.
        patience: epochs without improvement after which a run stops.
        min_delta: least decrease of the objective on the validation rows that counts as one.
        gradient_bound: largest norm of a run's gradient; infinite for none.
        fine_tune: train without the penalty first, and go on with it from there: each time to the
            stop, and for `max_epochs` at most. A run of strength 0 is then the first part alone.
        stop_on: what decides on the validation rows when to stop and which epoch is best: the whole
            `"objective"`, or its `"score"` alone.
        holdout_offset: let a `CalibrationPenalty` aim at calibration on the validation rows, by an
            offset (`CalibrationPenalty.shift`) that is measured after each epoch. Plans call it
            `shift`.
        tuning_patience: how many times the patience the second part has.
        tuning_rate: its learning rate, as a multiple of lr.
        first_patience: epochs that a run has for its first improvement, where these are more than
            its patience; None for no more.
    """

    lr: float = defaults.LEARNING_RATE
    batch_size: int = defaults.BATCH_SIZE
    last_batch: bool = False
    min_steps: int = 1
    max_epochs: int = defaults.MAX_EPOCHS
    patience: int = defaults.PATIENCE
    min_delta: float = 1e-4
    gradient_bound: float = 10.0
    fine_tune: bool = True
    holdout_offset: bool = True
    stop_on: str = "objective"
    tuning_patience: int = 3
    tuning_rate: float = 1.0
    first_patience: int | None = field(default=None, repr=False)  # checkpoints keep their names

    @property
    def shift(self) -> bool:
        """Deprecated name of `holdout_offset`."""
        warn_of_end("Settings.shift", "use holdout_offset")
        return self.holdout_offset

    @property
    def tuning(self) -> "Settings":
        """Settings of the second part, with the penalty.

        It has ten steps in an epoch at least, for its progress on few rows to be seen.
        """
        return replace(
            self,
            lr=self.tuning_rate * self.lr,
            patience=self.tuning_patience * self.patience,
            min_steps=max(_TUNING_STEPS, self.min_steps),
        )

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("batch_size", "min_steps", "max_epochs", "patience", "tuning_patience"):
            as_count(getattr(self, name), name, minimum=1)
        if self.first_patience is not None:
            as_count(self.first_patience, "first_patience", minimum=1)
        for name in ("lr", "tuning_rate"):
            as_positive(getattr(self, name), name)
        if not self.gradient_bound > 0:
            raise InputError(f"gradient_bound must be positive, got {self.gradient_bound}")
        if self.stop_on not in _STOPS:
            raise InputError(f"stop_on must be one of {_STOPS}, got {self.stop_on!r}")
        if not self.min_delta >= 0:
            raise InputError(f"min_delta must not be negative, got {self.min_delta}")


@dataclass(frozen=True)
class Progress:
    """What a progress callback sees after each epoch.

    Attributes:
        epoch: epochs so far.
        max_epochs: at most.
        running: runs that have not stopped.
        runs: in all.
        steps: optimiser steps so far, each of all runs that go on.
        part: of the path to a calibrated model: `training`, then `penalty` or `head`. That of a
            head is reported when it begins.
    """

    epoch: int
    max_epochs: int
    running: int
    runs: int
    steps: int
    part: str = "training"


@dataclass(frozen=True)
class TrainingResult:
    """Best parameters of each run.

    Attributes:
        theta: `(M, P)`, at the epoch with the lowest objective on the validation rows.
        epochs: epochs trained, `(M,)`.
        best_epoch: `(M,)`, counted from 1; 0 where no epoch was better than the start, and `theta`
            are the parameters there.
        objective: at that epoch, on the validation rows, `(M,)`.
        history: objective on the validation rows, `(epochs, M)`, NaN after a run has stopped.
    """

    theta: Tensor
    epochs: Tensor
    best_epoch: Tensor
    objective: Tensor
    history: Tensor

    @classmethod
    def untrained(cls, theta: Tensor) -> "TrainingResult":
        """Parameters `(M, P)` as they are given: no epochs, and an objective that is not known."""
        none = torch.zeros(len(theta), dtype=torch.int64, device=theta.device)
        unknown = torch.full((len(theta),), torch.nan, dtype=theta.dtype, device=theta.device)
        return cls(theta, none, none, unknown, theta.new_zeros(0, len(theta)))

    def select(self, runs: Tensor | slice) -> "TrainingResult":
        """Results of some of the runs."""
        parts = {n: v[:, runs] if n == "history" else v[runs] for n, v in vars(self).items()}
        return TrainingResult(**parts)
