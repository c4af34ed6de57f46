"""Training M runs at once: different strengths, seeds and splits in one stack."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike

import torch
from torch import Tensor

from prerank.distributions.noise import RunNoise
from prerank.errors import InputError
from prerank.inputs import as_count
from prerank.models import Network
from prerank.preranks import PCA
from prerank.storage import read_tensors, write_tensors
from prerank.training.data import TrainingData
from prerank.training.objective import Objective
from prerank.training.optimiser import Adam

__all__ = ["Progress", "Run", "Settings", "Trainer", "TrainingResult", "train"]

_CHUNK_ROWS = 1024  # of the validation rows; noise is drawn by chunk, so not a matter of M


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
        best_epoch: `(M,)`, counted from 1; 0 where no epoch beat the initial parameters.
        objective: at that epoch, on the validation rows, `(M,)`.
        history: objective on the validation rows, `(epochs, M)`, NaN after a run has stopped.
    """

    theta: Tensor
    epochs: Tensor
    best_epoch: Tensor
    objective: Tensor
    history: Tensor


@dataclass
class _State:
    """All that changes while training; rows belong to the runs that are still in the stack."""

    adam: Adam
    place: Tensor  # of each row among all runs, (m,)
    best: Tensor  # (M, P), of all runs
    objective: Tensor  # (M,)
    best_epoch: Tensor  # (M,)
    epochs: Tensor  # (M,)
    reference: Tensor  # objective that the next one has to beat by min_delta, (M,)
    waited: Tensor  # epochs since then, (M,)
    epoch: int = 0
    step: int = 0  # within the epoch
    history: list[Tensor] = field(default_factory=list)


class Trainer:
    """Trains a stack of runs, step by step.

    Every run is a function of its own seed, split and strength: neither its place in the stack nor
    the other runs, nor an interruption, changes it (up to rounding). Runs stop one by one on the
    objective that they are trained on, computed on all validation rows at once with fixed noise,
    and leave the stack when they do.

    Args:
        network: maps parameters and inputs to distributions.
        data: standardised rows of each split.
        runs: what to train.
        objective: what to minimise.
        settings: how.

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
    ) -> None:
        if not runs:
            raise InputError("runs is empty: there is nothing to train")
        if len(runs) > 1 and not network.stackable:
            raise InputError("this network cannot be stacked: use train(), which goes one by one")
        if not all(0 <= run.split < len(data.x) for run in runs):
            raise InputError(f"runs name splits outside 0..{len(data.x) - 1}")
        penalty = objective.penalty if objective else None
        for term in penalty.preranks if penalty else ():
            if isinstance(term, PCA) and isinstance(term.components, float):
                raise InputError(
                    f"{term.label} chooses its number of components anew for every batch and "
                    "stack: name the number, as in pca(2)"
                )
        self.network = network
        self.data = data
        self.runs = tuple(runs)
        self.objective = objective or Objective()
        self.settings = settings or Settings()
        self._seeds = self._tensor([run.seed for run in runs], torch.int64)
        self._splits = self._tensor([run.split for run in runs], torch.int64)
        self._strengths = self._tensor([run.strength for run in runs], data.x.dtype)
        self._state = self._start()
        self._order: tuple[int, Tensor] | None = None

    @property
    def done(self) -> bool:
        """Whether every run has stopped."""
        return len(self._state.place) == 0 or self._state.epoch >= self.settings.max_epochs

    @property
    def theta(self) -> Tensor:
        """Present parameters of the runs that are still going, `(m, P)`."""
        return self._state.adam.theta

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        running = 0 if self.done else len(self._state.place)
        return Progress(self._state.epoch, self.settings.max_epochs, running, len(self.runs))

    def step(self) -> None:
        """Make one optimiser step for every run, and close the epoch where it is complete."""
        if self.done:
            raise InputError("every run has stopped: there is nothing left to train")
        state, settings = self._state, self.settings
        size = min(settings.batch_size, self.data.train.shape[1])
        batches = self.data.train.shape[1] // size  # in one pass over the rows
        steps = max(batches, settings.min_steps)  # in one epoch
        number = state.epoch * steps + state.step
        rows = self._shuffled(number // batches)
        start = number % batches * size
        chosen = rows[:, start : start + size]
        theta = state.adam.theta.detach().requires_grad_()
        x, y = self._gather(chosen)
        value = self.objective(
            self.network(theta, x),
            y,
            self._strengths[state.place],
            self._noise(_STEP, number),
        )
        (gradient,) = torch.autograd.grad(value.sum(), theta)
        state.adam.update(gradient, lr=settings.lr, bound=settings.gradient_bound)
        state.step += 1
        if state.step == steps:
            self._close_epoch()

    def result(self) -> TrainingResult:
        """Best parameters so far."""
        state = self._state
        history = torch.stack(state.history) if state.history else state.best.new_zeros(0, 0)
        return TrainingResult(
            state.best.clone(),
            state.epochs.clone(),
            state.best_epoch.clone(),
            state.objective.clone(),
            history,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint, from which `load` goes on at exactly this step."""
        state = self._state
        tensors = {
            "history": torch.stack(state.history) if state.history else torch.zeros(0),
            **{name: getattr(state.adam, name) for name in _ADAM},
            **{name: getattr(state, name) for name in _TENSORS},
        }
        about = {"epoch": str(state.epoch), "step": str(state.step), "runs": self._signature()}
        write_tensors(path, tensors, about)

    def load(self, path: str | PathLike[str]) -> None:
        """Go on from a checkpoint of the same runs, network and settings."""
        tensors, about = read_tensors(path)
        if about.get("runs") != self._signature():
            raise InputError(f"{path} is a checkpoint of other runs or settings")
        device = self.data.x.device
        moved = {name: value.to(device) for name, value in tensors.items()}
        self._state = _State(
            Adam(**{name: moved[name] for name in _ADAM}),
            **{name: moved[name] for name in _TENSORS},
            epoch=int(about["epoch"]),
            step=int(about["step"]),
            history=list(moved["history"]) if moved["history"].numel() else [],
        )
        self._order = None

    def _start(self) -> _State:
        theta = torch.stack([self.network.initial(run.seed) for run in self.runs])
        theta = theta.to(self.data.x)
        runs = len(self.runs)
        infinite = torch.full((runs,), torch.inf, dtype=theta.dtype, device=theta.device)
        zeros = torch.zeros(runs, dtype=torch.int64, device=theta.device)
        return _State(
            adam=Adam.start(theta),
            place=torch.arange(runs, device=theta.device),
            best=theta.clone(),
            objective=infinite,
            best_epoch=zeros,
            epochs=zeros.clone(),
            reference=infinite.clone(),
            waited=zeros.clone(),
        )

    def _shuffled(self, number: int) -> Tensor:
        """Training rows of each run in the order of one pass, `(m, n_train)`."""
        if self._order is None or self._order[0] != number:
            train = self.data.train[self._splits[self._state.place]]
            noise = self._noise(_ORDER, number)
            # Stable, so that rare ties fall alike on every device.
            order = noise.uniform((train.shape[1],), torch.float64).mT.argsort(dim=1, stable=True)
            self._order = number, train.gather(1, order)
        return self._order[1]

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        split = self._splits[self._state.place].unsqueeze(1)
        return self.data.x[split, rows], self.data.y[split, rows]

    def _noise(self, purpose: int, number: int) -> RunNoise:
        return RunNoise(self._seeds[self._state.place], len(_PURPOSES) * number + purpose)

    def _validate(self) -> Tensor:
        """Objective on all validation rows at once, with the same noise in every epoch: `(m,)`."""
        state, objective = self._state, self.objective
        rows = self.data.validation[self._splits[state.place]]
        scores, pits = [], []
        with torch.no_grad():
            parts = rows.split(_CHUNK_ROWS, dim=1)
            for number, part in enumerate(parts):
                x, y = self._gather(part)
                dist = self.network(state.adam.theta, x)
                noise = self._noise(_VALIDATION, number)
                scores.append(objective.scores(dist, y, noise))
                if objective.penalty is not None:
                    pits.append(objective.penalty.pits(dist, y, generator=noise))
            value = torch.cat(scores, dim=1).mean(1)
            if objective.penalty is not None:
                pooled = [torch.cat(terms, dim=-2) for terms in zip(*pits, strict=True)]
                strength = self._strengths[state.place]
                value = value + strength * objective.penalty.error(pooled)
        return value

    def _close_epoch(self) -> None:
        """Validate, keep what is best, let runs stop, and shrink the stack."""
        state, settings = self._state, self.settings
        place = state.place
        state.epoch, state.step = state.epoch + 1, 0
        value = self._validate()
        full = torch.full_like(state.objective, torch.nan)
        full[place] = value
        state.history.append(full)
        state.epochs[place] = state.epoch

        better = value < state.objective[place]  # False for NaN
        state.objective[place] = torch.where(better, value, state.objective[place])
        state.best_epoch[place] = torch.where(better, state.epoch, state.best_epoch[place])
        state.best[place] = torch.where(better.unsqueeze(1), state.adam.theta, state.best[place])
        improved = value < state.reference[place] - settings.min_delta
        state.reference[place] = torch.where(improved, value, state.reference[place])
        state.waited[place] = torch.where(improved, 0, state.waited[place] + 1)
        going = state.waited[place] < settings.patience
        if not bool(going.all()):
            keep = going.nonzero().squeeze(1)
            state.adam = state.adam.select(keep)
            state.place = place[keep]
            self._order = None

    def _signature(self) -> str:
        """Text that identifies what is trained."""
        what = (self.runs, self.settings, self.objective, self.network, self.data.x.dtype)
        return repr(what)

    def _tensor(self, values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.data.x.device)


_PURPOSES = _STEP, _ORDER, _VALIDATION = range(3)
_ADAM = [f.name for f in dataclasses.fields(Adam)]
_TENSORS = ["place", "best", "objective", "best_epoch", "epochs", "reference", "waited"]


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
