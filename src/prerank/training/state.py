"""All that changes while a stack of runs trains: the optimiser, the best epochs, the history."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Protocol

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.moved import warn_of_end

__all__ = ["Adam", "CheckpointStore", "State", "as_store"]

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass
class Adam:
    r"""Adam (Kingma and Ba, 2015), each run on its own, with a bound on each run's gradient.

    .. math:: g \leftarrow g \min\{1, b / |g|\}, \quad m \leftarrow \beta_1 m + (1 - \beta_1) g,
              \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
              \theta \leftarrow \theta - \eta \frac{\hat m}{\sqrt{\hat v} + \epsilon}.

    A run whose gradient is not finite keeps its parameters for this step.

    Attributes:
        theta: `(M, P)`.
        first: m, `(M, P)`.
        second: v, `(M, P)`.
        steps: updates so far, `(M, 1)`.
    """

    theta: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor

    @classmethod
    def start(cls, theta: Tensor) -> "Adam":
        """Begin with zero moments."""
        first, second = torch.zeros_like(theta), torch.zeros_like(theta)
        return cls(theta, first, second, torch.zeros_like(theta[:, :1]))

    def update(self, gradient: Tensor, *, lr: float, bound: float) -> None:
        """Make one step, in place."""
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        usable = torch.isfinite(norm)
        gradient = torch.where(usable, gradient, 0) * (bound / norm).clamp_max(1).nan_to_num()
        self.steps += usable
        moves = usable.to(gradient.dtype)
        self.first.lerp_(gradient, (1 - _BETA1) * moves)
        self.second.lerp_(gradient.square(), (1 - _BETA2) * moves)
        # In float64: in float32, 1 - beta2^t loses digits in the first steps.
        count = self.steps.double().clamp_min(1)
        rate = (lr * (1 - _BETA2**count).sqrt() / (1 - _BETA1**count)).to(gradient.dtype) * moves
        slack = (_EPSILON * (1 - _BETA2**count).sqrt()).to(gradient.dtype)
        self.theta -= rate * self.first / self.second.sqrt().add_(slack)

    def select(self, rows: Tensor) -> "Adam":
        """Keep some of the runs."""
        return Adam(self.theta[rows], self.first[rows], self.second[rows], self.steps[rows])


@dataclass
class State:
    """One row for each run that is still in the stack; every tensor changes in place.

    Attributes:
        adam: parameters and moments, `(m, P)`.
        place: of each row among all runs, `(m,)`.
        going: whether the run still trains; rows of stopped runs wait for `compacted`, `(m,)`.
        best: parameters at the lowest objective, `(m, P)`.
        objective: on the validation rows, at `best`, `(m,)`.
        best_epoch: counted from 1, `(m,)`.
        epochs: trained, `(m,)`.
        reference: objective that the next one has to beat by the least decrease, `(m,)`.
        waited: epochs since then, `(m,)`.
        latest: objective after the last epoch, NaN for stopped runs, `(m,)`.
        counts: smooth counts of the PITs of training rows since the last epoch, `(m, J, levels)`;
            `(m, 0, 0)` for a penalty that has no shift.
        shift: of the penalty, `(m, J, levels)`.
        number: of optimiser steps so far, `()`.
        finished: best, objective, best_epoch and epochs of all M runs, as far as they have left.
        history: `latest` of all M runs, one entry per epoch.
    """

    adam: Adam
    place: Tensor
    going: Tensor
    best: Tensor
    objective: Tensor
    best_epoch: Tensor
    epochs: Tensor
    reference: Tensor
    waited: Tensor
    latest: Tensor
    counts: Tensor
    shift: Tensor
    number: Tensor
    finished: dict[str, Tensor]
    history: list[Tensor] = field(default_factory=list)

    @classmethod
    def start(cls, theta: Tensor, counted: tuple[int, int] = (0, 0)) -> "State":
        """Begin at parameters `(M, P)`, for a penalty that counts `(J, levels)`."""
        runs, device = len(theta), theta.device
        zeros = torch.zeros(runs, dtype=torch.int64, device=device)
        infinite = torch.full((runs,), torch.inf, dtype=theta.dtype, device=device)
        state = cls(
            adam=Adam.start(theta),
            place=torch.arange(runs, device=device),
            going=torch.ones(runs, dtype=torch.bool, device=device),
            best=theta.clone(),
            objective=infinite,
            best_epoch=zeros,
            epochs=zeros.clone(),
            reference=infinite.clone(),
            waited=zeros.clone(),
            latest=infinite.clone(),
            counts=theta.new_zeros(runs, *counted),
            shift=theta.new_zeros(runs, *counted),
            number=torch.zeros((), dtype=torch.int64, device=device),
            finished={},
        )
        state.finished = {name: getattr(state, name).clone() for name in _RESULTS}
        return state

    def begin(self, value: Tensor, going: Tensor) -> None:
        """Take the objectives `(m,)` of the start as the first to beat, and let some runs go."""
        finite = torch.where(value.isfinite(), value, torch.inf)
        self.objective.copy_(finite)
        self.reference.copy_(finite)
        self.going &= going

    def record(
        self, value: Tensor, *, patience: int, min_delta: float, first: int | None = None
    ) -> None:
        """Enter objectives `(m,)` after an epoch: keep what is best, stop what has stalled.

        Runs without any improvement have `first` epochs, where these are more than the patience.

        Nothing here depends on the values on the host, so it can be part of a CUDA graph.
        """
        self.epochs += self.going
        self.latest.copy_(torch.where(self.going, value, torch.nan))
        better = self.latest < self.objective  # False for NaN
        improved = self.latest < self.reference - min_delta
        self.best.copy_(torch.where(better.unsqueeze(1), self.adam.theta, self.best))
        for kept, new, where in (
            (self.objective, value, better),
            (self.best_epoch, self.epochs, better),
            (self.reference, value, improved),
        ):
            kept.copy_(torch.where(where, new, kept))
        self.waited.copy_(torch.where(improved, 0, self.waited + self.going))
        early = (self.best_epoch == 0) & (self.epochs < (first or 0))
        self.going &= (self.waited < patience) | early

    def move_shift(self, target: Tensor) -> None:
        """Go half of the way to a new shift; where that is not finite, stay."""
        self.shift.lerp_(torch.where(target.isfinite(), target, self.shift), 0.5)
        self.counts.zero_()

    def note(self) -> None:
        """Write the latest objectives into the history."""
        full = torch.full_like(self.finished["objective"], torch.nan)
        full[self.place] = self.latest
        self.history.append(full)

    def results(self) -> dict[str, Tensor]:
        """Results of all M runs so far."""
        results = {name: tensor.clone() for name, tensor in self.finished.items()}
        for name in _RESULTS:
            results[name][self.place] = getattr(self, name)
        return results

    def compacted(self) -> "State":
        """The same state without the rows of stopped runs, whose results are kept."""
        keep = self.going.nonzero().squeeze(1)
        rows = {name: getattr(self, name)[keep] for name in _ROWS}
        return State(
            adam=self.adam.select(keep),
            **rows,
            number=self.number,
            finished=self.results(),
            history=self.history,
        )

    def restored(self, tensors: Mapping[str, Tensor]) -> "State":
        """Another state of the same runs, from its `tensors`."""
        if not self._fits(tensors):
            raise InputError("the checkpoint is not complete: remove it")
        moved = {name: tensor.to(self.best.device) for name, tensor in tensors.items()}
        return State(
            adam=Adam(**{name: moved[name] for name in _ADAM}),
            **{name: moved[name] for name in _ROWS},
            number=moved["number"],
            finished={name: moved[f"finished.{name}"] for name in _RESULTS},
            history=list(moved["history"]),
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name, as a checkpoint holds it."""
        none = self.latest.new_zeros(0, len(self.finished["objective"]))
        return {
            "history": torch.stack(self.history) if self.history else none,
            "number": self.number,
            **{name: getattr(self.adam, name) for name in _ADAM},
            **{name: getattr(self, name) for name in _ROWS},
            **{f"finished.{name}": tensor for name, tensor in self.finished.items()},
        }

    def _fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these could be another state of the same runs."""
        own = self.tensors
        if own.keys() != tensors.keys() or any(t.dtype != own[n].dtype for n, t in tensors.items()):
            return False
        place, runs = tensors["place"], len(self.finished["objective"])
        # Runs that have left, and epochs that have passed, are the only sizes that change.
        rows = dict.fromkeys((*_ADAM, *_ROWS), (place.numel(),))
        rows["history"] = (tensors["history"].shape[0],) if tensors["history"].ndim else (0,)
        shapes = {name: (*rows.get(name, t.shape[:1]), *t.shape[1:]) for name, t in own.items()}
        return (
            all(t.shape == shapes[name] for name, t in tensors.items())
            and len(place.unique()) == len(place)
            and bool(((place >= 0) & (place < runs)).all())
            and int(tensors["number"]) >= 0
        )


class CheckpointStore(Protocol):
    """Where a checkpoint is kept; `prerank.files.CheckpointFile` is a file."""

    def load(self) -> tuple[Mapping[str, Tensor], Mapping[str, str]] | None:
        """Tensors and text of the checkpoint, or None where there is none."""

    def save(self, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Replace the checkpoint."""

    def discard(self) -> None:
        """Remove the checkpoint and those of its parts."""

    def part(self, name: str) -> "CheckpointStore":
        """The store of one part of the training."""


def as_store(place: CheckpointStore | str | PathLike[str]) -> CheckpointStore:
    """A store as it is; the path of a file, which was once allowed, as a store of that file."""
    if not isinstance(place, str | PathLike):
        return place
    from prerank.files import CheckpointFile

    instead = "pass prerank.files.CheckpointFile(path)"
    warn_of_end("a path as the place of a checkpoint", instead, stacklevel=3)
    return CheckpointFile(place)


_ADAM = [f.name for f in dataclasses.fields(Adam)]
_RESULTS = ["best", "objective", "best_epoch", "epochs"]
_ROWS = ["place", "going", *_RESULTS, "reference", "waited", "latest", "counts", "shift"]
