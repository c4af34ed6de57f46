"""Training M runs at once: different strengths, seeds and splits in one stack."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from prerank.distributions.noise import RunNoise
from prerank.errors import InputError
from prerank.inputs import as_count
from prerank.models import Network
from prerank.training.data import TrainingData
from prerank.training.graphs import Replay
from prerank.training.objective import Objective
from prerank.training.state import State

__all__ = ["Progress", "Run", "Settings", "Trainer", "TrainingResult", "train"]

_CHUNK_ROWS = 2048  # of the validation rows; noise is drawn by chunk, so not a matter of M


@dataclass(frozen=True)
class Run:
    """One training run: a seed, a split of the data and a strength of the penalty."""

    seed: int
    split: int = 0
    strength: float = 0.0


@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes:
        lr: learning rate of Adam.
        batch_size: rows per step. The last, smaller batch of an epoch is left out: which rows it
            holds changes with every epoch, and its gradient would be a noisy one of full weight.
        min_steps: least number of steps in an epoch, which on few rows passes over them several
            times: otherwise a run on a handful of batches would be judged, and stopped, after a
            handful of steps.
        max_epochs: upper limit.
        patience: epochs without improvement after which a run stops.
        min_delta: least decrease of the objective on the validation rows that counts as one.
        gradient_bound: largest norm of a run's gradient.
    """

    lr: float = 1e-3
    batch_size: int = 256
    min_steps: int = 1
    max_epochs: int = 1000
    patience: int = 15
    min_delta: float = 1e-4
    gradient_bound: float = 10.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("batch_size", "min_steps", "max_epochs", "patience"):
            as_count(getattr(self, name), name, minimum=1)
        for name in ("lr", "gradient_bound"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")
        if not self.min_delta >= 0:
            raise InputError(f"min_delta must not be negative, got {self.min_delta}")


@dataclass(frozen=True)
class Progress:
    """What a progress callback sees after each epoch."""

    epoch: int
    max_epochs: int
    running: int
    runs: int


@dataclass(frozen=True)
class TrainingResult:
    """Best parameters of each run.

    Attributes:
        theta: `(M, P)`, at the epoch with the lowest objective on the validation rows.
        epochs: epochs trained, `(M,)`.
        best_epoch: `(M,)`, counted from 1; 0 where no epoch had a finite objective, and `theta` are
            the initial parameters.
        objective: at that epoch, on the validation rows, `(M,)`.
        history: objective on the validation rows, `(epochs, M)`, NaN after a run has stopped.
    """

    theta: Tensor
    epochs: Tensor
    best_epoch: Tensor
    objective: Tensor
    history: Tensor


class Trainer:
    """Trains a stack of runs, step by step.

    Every run is a function of its own seed, split and strength: neither its place in the stack nor
    the other runs, nor an interruption, changes it (up to rounding). Runs stop one by one on the
    objective that they are trained on, computed on all validation rows at once with fixed noise,
    and leave the stack.

    Args:
        network: maps parameters and inputs to distributions.
        data: standardised rows of each split.
        runs: what to train.
        objective: what to minimise.
        settings: how.
        graphs: on a GPU, record steps as CUDA graphs where that is possible; the results are the
            same.

    Example:
        >>> from prerank.datasets import AR1Regression, published_split
        >>> from prerank.models import MixtureNetwork
        >>> x, y = AR1Regression(dim=2).sample(500, generator=0)
        >>> split = published_split(500, seed=0)
        >>> data = TrainingData.build(x, y, [(split.train, split.validation)])
        >>> network = MixtureNetwork(2, 2, n_components=1, hidden=(8,))
        >>> trainer = Trainer(network, data, [Run(0), Run(1)], settings=Settings(max_epochs=2))
        >>> while not trainer.done:
        ...     trainer.step()
        >>> trainer.result().theta.shape[0]
        2
    """

    def __init__(
        self,
        network: Network,
        data: TrainingData,
        runs: Sequence[Run],
        *,
        objective: Objective | None = None,
        settings: Settings | None = None,
        graphs: bool = True,
    ) -> None:
        if not runs:
            raise InputError("runs is empty: there is nothing to train")
        if len(runs) > 1 and not network.stackable:
            raise InputError("this network cannot be stacked: use train(), which goes one by one")
        if not all(0 <= run.split < len(data.x) for run in runs):
            raise InputError(f"runs name splits outside 0..{len(data.x) - 1}")
        self.network = network
        self.data = data
        self.runs = tuple(runs)
        self.objective = objective or Objective()
        self.settings = settings or Settings()
        self._seeds = self._tensor([run.seed for run in runs], torch.int64)
        self._splits = self._tensor([run.split for run in runs], torch.int64)
        self._strengths = self._tensor([run.strength for run in runs], data.x.dtype)
        self._size = min(self.settings.batch_size, data.train.shape[1])
        self._batches = data.train.shape[1] // self._size  # in one pass over the rows
        self._steps = max(self._batches, self.settings.min_steps)  # in one epoch
        # A module of the user's may change itself from call to call, which a graph would not see.
        self._graphs = graphs and network.stackable
        theta = torch.stack([network.initial(run.seed) for run in runs])
        self._adopt(State.start(theta.to(data.x)), steps=0)

    @property
    def done(self) -> bool:
        """Whether every run has stopped."""
        return self._running == 0 or self._epoch >= self.settings.max_epochs

    @property
    def theta(self) -> Tensor:
        """Present parameters of the runs that are still in the stack, `(m, P)`."""
        return self._state.adam.theta

    @property
    def recorded(self) -> bool:
        """Whether steps replay a CUDA graph; where one has to wait for the device, it cannot."""
        return self._advance.recorded

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        running = 0 if self.done else self._running
        return Progress(self._epoch, self.settings.max_epochs, running, len(self.runs))

    def step(self) -> None:
        """Make one optimiser step for every run, and close the epoch where it is complete."""
        if self.done:
            raise InputError("every run has stopped: there is nothing left to train")
        if self._number % self._batches == 0:
            self._shuffle(self._number // self._batches)
        self._advance()
        self._number += 1
        if self._number % self._steps == 0:
            self._review()
            self._close_epoch()

    def result(self) -> TrainingResult:
        """Best parameters so far."""
        state, found = self._state, self._state.results()
        history = torch.stack(state.history) if state.history else state.best.new_zeros(0, 0)
        return TrainingResult(
            found["best"], found["epochs"], found["best_epoch"], found["objective"], history
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint, from which `load` goes on at exactly this step."""
        self._state.save(path, self._signature())

    def load(self, path: str | PathLike[str]) -> None:
        """Go on from a checkpoint of the same runs, network and settings."""
        state = State.load(path, self._signature(), self.data.x.device)
        self._adopt(state, steps=int(state.number))
        if self._number % self._batches:
            self._shuffle(self._number // self._batches)

    @property
    def _epoch(self) -> int:
        return self._number // self._steps

    def _adopt(self, state: State, *, steps: int) -> None:
        """Work on this state from now on: graphs are bound to its tensors."""
        self._state, self._number = state, steps
        self._running = int(state.going.sum())
        self._split = self._splits[state.place].unsqueeze(1)
        self._strength, self._seed = self._strengths[state.place], self._seeds[state.place]
        self._order = self.data.train[self._split.squeeze(1)]
        device = self.data.x.device
        self._advance = Replay(self._make_step, device, enabled=self._graphs)
        self._review = Replay(self._validate, device, enabled=self._graphs)

    def _shuffle(self, number: int) -> None:
        """Bring the training rows of each run in the order of one pass, `(m, n_train)`."""
        noise = self._noise(_ORDER, number)
        # Stable, so that rare ties fall alike on every device.
        keys = noise.uniform(self._order.shape[1:], torch.float64)
        rows = self.data.train[self._split.squeeze(1)]
        self._order.copy_(rows.gather(1, keys.argsort(dim=1, stable=True)))

    def _make_step(self) -> None:
        """One optimiser step, without waiting for the device."""
        state, settings = self._state, self.settings
        places = torch.arange(self._size, device=self._order.device)
        rows = self._order[:, state.number % self._batches * self._size + places]
        theta = state.adam.theta.detach().requires_grad_()
        x, y = self._gather(rows)
        value = self.objective(
            self.network(theta, x),
            y,
            self._strength,
            self._noise(_STEP, state.number),
        )
        (gradient,) = torch.autograd.grad(value.sum(), theta)
        state.adam.update(gradient, lr=settings.lr, bound=settings.gradient_bound)
        state.number += 1

    def _validate(self) -> None:
        """Judge all validation rows at once, with the same noise in every epoch."""
        state, objective = self._state, self.objective
        rows = self.data.validation[self._split.squeeze(1)]
        scores: list[Tensor] = []
        tally: Any = None
        with torch.no_grad():
            for number, part in enumerate(rows.split(_CHUNK_ROWS, dim=1)):
                x, y = self._gather(part)
                dist = self.network(state.adam.theta, x)
                noise = self._noise(_VALIDATION, number)
                scores.append(objective.scores(dist, y, noise).sum(1))
                counted = objective.tally(dist, y, noise)
                tally = counted if tally is None or counted is None else tally.plus(counted)
            value = torch.stack(scores).sum(0) / rows.shape[1]
            if tally is not None:
                value = value + self._strength * objective.penalised(tally)
        state.record(value, patience=self.settings.patience, min_delta=self.settings.min_delta)

    def _close_epoch(self) -> None:
        """Let stopped runs leave the stack: all of them on a CPU, on a GPU by halves.

        A smaller stack costs a GPU a new graph and saves it little.
        """
        state = self._state
        state.note()
        self._running = int(state.going.sum())
        limit = len(state.going) // 2 if state.going.is_cuda else len(state.going) - 1
        if 0 < self._running <= limit:
            self._adopt(state.compacted(), steps=self._number)
            if self._number % self._batches:
                self._shuffle(self._number // self._batches)

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.data.x[self._split, rows], self.data.y[self._split, rows]

    def _noise(self, purpose: int, number: int | Tensor) -> RunNoise:
        return RunNoise(self._seed, len(_PURPOSES) * number + purpose)

    def _signature(self) -> str:
        """Text that identifies what is trained."""
        what = (self.runs, self.settings, self.objective, self.network, self.data.signature)
        return repr(what)

    def _tensor(self, values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.data.x.device)


_PURPOSES = _STEP, _ORDER, _VALIDATION = range(3)


def train(
    network: Network,
    data: TrainingData,
    runs: Sequence[Run],
    *,
    objective: Objective | None = None,
    settings: Settings | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Train runs to their stop: together where the network can be stacked, else one by one."""
    groups = [tuple(runs)] if network.stackable else [(run,) for run in runs]
    results = []
    for group in groups:
        trainer = Trainer(network, data, group, objective=objective, settings=settings)
        epoch = 0
        while not trainer.done:
            trainer.step()
            if on_epoch is not None and trainer.progress.epoch > epoch:
                epoch = trainer.progress.epoch
                on_epoch(trainer.progress)
        results.append(trainer.result())
    if len(results) == 1:
        return results[0]
    longest = max(len(result.history) for result in results)
    padded = [
        torch.cat([r.history, r.history.new_full((longest - len(r.history), 1), torch.nan)])
        for r in results
    ]
    return TrainingResult(
        theta=torch.cat([r.theta for r in results]),
        epochs=torch.cat([r.epochs for r in results]),
        best_epoch=torch.cat([r.best_epoch for r in results]),
        objective=torch.cat([r.objective for r in results]),
        history=torch.cat(padded, dim=1),
    )
