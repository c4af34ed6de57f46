"""Training M runs at once: different strengths, seeds and splits in one stack."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from prerank.distributions.noise import RunNoise
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.models import Network
from prerank.penalty import CalibrationPenalty, LevelCounts
from prerank.training.data import TrainingData, fingerprint
from prerank.training.graphs import Replay
from prerank.training.objective import Objective, Total
from prerank.training.runs import Progress, Run, Settings, TrainingResult
from prerank.training.state import CheckpointStore, State, as_store

__all__ = ["Trainer", "check_start"]

_CHUNK_ROWS = 2048  # of the validation rows; noise is drawn by chunk, so not a matter of M


class Trainer:
    """Trains a stack of runs, step by step.

    Every run is a function of its own seed, split and strength: neither its place in the stack nor
    the other runs, nor an interruption, changes it (up to rounding). Runs stop one by one on their
    objective (without a shift), computed on all validation rows at once with fixed noise, and leave
    the stack. Rows that stop a run, and that a shift aims at, are not fit to judge it: calibration
    there is better than on fresh rows.

    Args:
        network: maps parameters and inputs to distributions.
        data: standardised rows of each split.
        runs: what to train.
        objective: what to minimise.
        settings: how; a trainer makes one part of the training, whatever `fine_tune` says.
        start: parameters `(M, P)` to begin with; drawn from the seeds by default. Their objective
            counts, as that of an epoch 0. With a penalty, runs of strength 0 stay where they are.
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
        start: Tensor | None = None,
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
        rows = data.train.shape[1]
        self._size = min(self.settings.batch_size, rows)
        self._rest = rows % self._size if self.settings.last_batch else 0
        self._batches = rows // self._size + bool(self._rest)  # in one pass over the rows
        self._steps = max(self._batches, self.settings.min_steps)  # in one epoch
        # A module of the user's may change itself from call to call, which a graph would not see.
        self._graphs = graphs and network.stackable
        self._start = None
        if start is not None:
            check_start(start, network, runs)
            self._start = start.detach().to(data.x, copy=True)
        drawn = [network.initial(run.seed) for run in runs] if start is None else []
        theta = torch.stack(drawn).to(data.x) if self._start is None else self._start.clone()
        self._adopt(State.start(theta, self._counted(theta)), steps=0)
        if self._start is not None:
            trained = self._strengths > 0 if self.objective.penalty else self._strengths >= 0
            self._state.begin(self._judge()[0], trained)
            self._running = int(self._state.going.sum())

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
    def fingerprint(self) -> str:
        """Hash that identifies this training configuration."""
        return hashlib.sha256(self._signature.encode()).hexdigest()

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        running = 0 if self.done else self._running
        return Progress(
            self._epoch, self.settings.max_epochs, running, len(self.runs), self._number
        )

    def step(self) -> None:
        """Make one optimiser step for every run, and close the epoch where it is complete."""
        if self.done:
            raise InputError("every run has stopped: there is nothing left to train")
        if self._number % self._batches == 0:
            self._shuffle(self._number // self._batches)
        last = self._rest and self._number % self._batches == self._batches - 1
        (self._finish if last else self._advance)()
        self._number += 1
        if self._number % self._steps == 0:
            self._review()
            self._close_epoch()

    def result(self) -> TrainingResult:
        """Best parameters so far."""
        state, best = self._state, self._state.results()
        none = state.best.new_zeros(0, len(self.runs))
        history = torch.stack(state.history) if state.history else none
        return TrainingResult(
            best["best"], best["epochs"], best["best_epoch"], best["objective"], history
        )

    def save(self, store: CheckpointStore | str | PathLike[str]) -> None:
        """Keep a checkpoint, from which `load` goes on at exactly this step."""
        as_store(store).save(self._state.tensors, {"runs": self._signature})

    def load(self, store: CheckpointStore | str | PathLike[str]) -> None:
        """Go on from a checkpoint of the same runs, network and settings."""
        store = as_store(store)
        checkpoint = store.load()
        if checkpoint is None:
            raise InputError(f"{store} holds no checkpoint")
        try:
            self.restore(*checkpoint)
        except InputError as error:
            raise InputError(f"{store}: {error}") from error

    def restore(self, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Go on from what `save` gave to a store."""
        if about.get("runs") != self._signature:
            raise InputError("this is a checkpoint of other runs, settings or data")
        state = self._state.restored(tensors)
        self._adopt(state, steps=int(state.number))

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
        short = partial(self._make_step, self._rest)
        self._finish = Replay(short, device, enabled=self._graphs)
        self._review = Replay(self._validate, device, enabled=self._graphs)
        if steps % self._batches:  # in the middle of a pass over the rows
            self._shuffle(steps // self._batches)

    def _shuffle(self, number: int) -> None:
        """Bring the training rows of each run in the order of one pass, `(m, n_train)`."""
        noise = self._noise(_ORDER, number)
        # Stable, so that rare ties fall alike on every device.
        keys = noise.uniform(self._order.shape[1:], torch.float64)
        rows = self.data.train[self._split.squeeze(1)]
        self._order.copy_(rows.gather(1, keys.argsort(dim=1, stable=True)))

    def _make_step(self, size: int | None = None) -> None:
        """One optimiser step, on a whole batch by default, without waiting for the device."""
        state, settings = self._state, self.settings
        places = torch.arange(size or self._size, device=self._order.device)
        rows = self._order[:, state.number % self._batches * self._size + places]
        theta = state.adam.theta.detach().requires_grad_()
        x, y = self._gather(rows, state.number // self._batches)
        noise = self._noise(_STEP, state.number)
        shift = state.shift if self._shifts else None
        dist = self.network(theta, x)
        value, counted = self.objective(dist, y, self._strength, noise, shift)
        (gradient,) = torch.autograd.grad(value.sum(), theta)
        state.adam.update(gradient, lr=settings.lr, bound=settings.gradient_bound)
        if self._shifts and isinstance(counted, LevelCounts):
            state.counts += torch.cat(counted.counts, -2).detach()
        state.number += 1

    def _validate(self) -> None:
        """Enter what the validation rows say, and let the penalty aim at them."""
        state, settings = self._state, self.settings
        value, counted = self._judge()
        state.record(
            value,
            patience=settings.patience,
            min_delta=settings.min_delta,
            first=settings.first_patience,
        )
        if self._shifts and isinstance(counted, LevelCounts):
            penalty = self.objective.penalty
            assert isinstance(penalty, CalibrationPenalty)
            # Repeated rows do not increase the sample size.
            rows = self._order.shape[1] if self._rest else self._batches * self._size
            seen = state.counts * (self._batches / self._steps)
            state.move_shift(penalty.shift(LevelCounts([seen], [None], rows), counted))

    @torch.no_grad()
    def _judge(self) -> tuple[Tensor, LevelCounts | Total | None]:
        """Objective and counts of all validation rows at once, with the same noise every time."""
        objective = self.objective
        rows = self.data.validation[self._split.squeeze(1)]
        scores: list[Tensor] = []
        tally: Any = None
        for number, part in enumerate(rows.split(_CHUNK_ROWS, dim=1)):
            x, y = self._gather(part)
            dist = self.network(self._state.adam.theta, x)
            noise = self._noise(_VALIDATION, number)
            scores.append(objective.scores(dist, y, noise).sum(1))
            if self._shifts or self.settings.stop_on == "objective":
                counted = objective.tally(dist, y, noise)
                tally = counted if tally is None or counted is None else tally.plus(counted)
        value = torch.stack(scores).sum(0) / rows.shape[1]
        if tally is not None and self.settings.stop_on == "objective":
            weighted = self._strength * objective.penalised(tally)
            value = value + torch.where(self._strength == 0, 0, weighted)
        return value, tally

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

    def _gather(self, rows: Tensor, turn: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and targets of rows; in training, the spreads of the targets take turns."""
        spreads, place = self.data.spreads, (self._split, rows)
        if turn is None or spreads is None:
            return self.data.x[place], self.data.y[place]
        return self.data.x[place], spreads[(turn % len(spreads), *place)]

    def _noise(self, purpose: int, number: int | Tensor) -> RunNoise:
        return RunNoise(self._seed, len(_PURPOSES) * number + purpose)

    @cached_property
    def _signature(self) -> str:
        """Text that identifies what is trained."""
        what = (self.runs, self.settings, self.objective, self.network, self.data.signature)
        start = "" if self._start is None else fingerprint(self._start)
        first = self.settings.first_patience
        more = "" if first is None else f" first_patience={first}"
        # Checkpoints of versions that called it `shift` are of the same training.
        return f"{what!r} {start}{more}".replace("holdout_offset=", "shift=")

    @property
    def _shifts(self) -> bool:
        penalty = self.objective.penalty
        return (
            self.settings.holdout_offset
            and isinstance(penalty, CalibrationPenalty)
            and penalty.shifts
        )

    @torch.no_grad()
    def _counted(self, theta: Tensor) -> tuple[int, int]:
        """Numbers of components and levels that the penalty counts, seen on two rows."""
        if not self._shifts:
            return 0, 0
        rows = self.data.validation[self._splits[:1], :2]
        place = self._splits[:1].unsqueeze(1), rows
        dist = self.network(theta[:1], self.data.x[place])
        counted = self.objective.tally(dist, self.data.y[place], RunNoise(self._seeds[:1], 0))
        assert isinstance(counted, LevelCounts)
        components, levels = counted.frequencies.shape[-2:]
        return components, levels

    def _tensor(self, values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.data.x.device)


def check_start(start: Tensor, network: Network, runs: Sequence[Run]) -> None:
    """Raise unless these are parameters of the runs, `(M, P)`."""
    if not isinstance(start, Tensor):
        raise InputTypeError(f"start must be a tensor, got {type(start).__name__}")
    shape = (len(runs), network.n_parameters)
    if tuple(start.shape) != shape:
        raise ShapeError(
            f"start has shape {tuple(start.shape)}, but {shape[0]} runs of this network have "
            f"parameters of shape {shape}"
        )


_PURPOSES = _STEP, _ORDER, _VALIDATION = range(3)
