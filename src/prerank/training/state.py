"""All that changes while a stack of runs trains, and its checkpoints."""

import dataclasses
from dataclasses import dataclass, field
from os import PathLike

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.files import read_tensors, write_tensors
from prerank.training.optimiser import Adam

__all__ = ["State"]


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

    def record(self, value: Tensor, *, patience: int, min_delta: float) -> None:
        """Enter objectives `(m,)` after an epoch: keep what is best, stop what has stalled.

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
        self.going &= self.waited < patience

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
        found = {name: tensor.clone() for name, tensor in self.finished.items()}
        for name in _RESULTS:
            found[name][self.place] = getattr(self, name)
        return found

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

    def save(self, path: str | PathLike[str], signature: str) -> None:
        """Write a checkpoint."""
        write_tensors(path, self._tensors(), {"runs": signature})

    def load(self, path: str | PathLike[str], signature: str) -> "State":
        """Read a checkpoint of the same runs, of which this is another state."""
        tensors, about = read_tensors(path)
        if about.get("runs") != signature:
            raise InputError(f"{path} is a checkpoint of other runs, settings or data")
        if not self._fits(tensors):
            raise InputError(f"{path} is no complete checkpoint: remove it")
        moved = {name: tensor.to(self.best.device) for name, tensor in tensors.items()}
        return State(
            adam=Adam(**{name: moved[name] for name in _ADAM}),
            **{name: moved[name] for name in _ROWS},
            number=moved["number"],
            finished={name: moved[f"finished.{name}"] for name in _RESULTS},
            history=list(moved["history"]),
        )

    def _tensors(self) -> dict[str, Tensor]:
        """All of it, by name."""
        none = self.latest.new_zeros(0, len(self.finished["objective"]))
        return {
            "history": torch.stack(self.history) if self.history else none,
            "number": self.number,
            **{name: getattr(self.adam, name) for name in _ADAM},
            **{name: getattr(self, name) for name in _ROWS},
            **{f"finished.{name}": tensor for name, tensor in self.finished.items()},
        }

    def _fits(self, tensors: dict[str, Tensor]) -> bool:
        """Whether these could be another state of the same runs."""
        own = self._tensors()
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


_ADAM = [f.name for f in dataclasses.fields(Adam)]
_RESULTS = ["best", "objective", "best_epoch", "epochs"]
_ROWS = ["place", "going", *_RESULTS, "reference", "waited", "latest", "counts", "shift"]
