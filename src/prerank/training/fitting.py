"""Training runs to their stop, with checkpoints: without the penalty first, then with it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike

import torch
from torch import Tensor
from torch.nn.functional import pad

from prerank.defaults import CHECKPOINT_EVERY
from prerank.errors import InputError, InputTypeError
from prerank.models import Network
from prerank.training.data import TrainingData
from prerank.training.objective import Objective
from prerank.training.runs import Progress, Run, Settings, TrainingResult
from prerank.training.state import CheckpointStore, as_store
from prerank.training.trainer import Trainer, check_start

__all__ = ["Checkpoint", "Interrupted", "side_by_side", "train"]


class Interrupted(Exception):  # noqa: N818 (not an error: all that was trained is kept)
    """Training was broken off in good order: calling it again goes on from the checkpoint."""


class Checkpoint:
    """A checkpoint that follows the training of one stack.

    Args:
        store: where to keep it, such as `prerank.files.CheckpointFile(path)`.
        every: seconds between two versions.
        until: time, as `time.monotonic` counts it, at which training is to be broken off.
        path: deprecated; pass `prerank.files.CheckpointFile(path)` as the store.
    """

    def __init__(
        self,
        store: CheckpointStore | str | PathLike[str] | None = None,
        *,
        every: float = CHECKPOINT_EVERY,
        until: float = float("inf"),
        path: str | PathLike[str] | None = None,
    ) -> None:
        place = path if store is None else store
        if place is None or None not in (store, path):
            raise InputTypeError("a checkpoint needs a store, and path is its deprecated name")
        self.store = as_store(place)
        self.every = every
        self.until = until
        self._written = time.monotonic()

    def part(self, name: str, trainer: Trainer) -> "Checkpoint":
        """The checkpoint of one part of the training; other runs have another."""
        store = self.store.part(f"{name}-{trainer.fingerprint[:12]}")
        return Checkpoint(store, every=self.every, until=self.until)

    def resume(self, trainer: Trainer) -> None:
        """Go on from the checkpoint; discard it where it is damaged or of another training."""
        try:
            checkpoint = self.store.load()
            if checkpoint is not None:
                trainer.restore(*checkpoint)
        except InputError:
            self.store.discard()

    def follow(self, trainer: Trainer) -> None:
        """To be called after each epoch: save where it is time, raise where time is up."""
        now = time.monotonic()
        if now >= self.until and not trainer.done:
            trainer.save(self.store)
            raise Interrupted(f"time is up: {self.store} has what was trained so far")
        if trainer.done or now - self._written >= self.every:
            trainer.save(self.store)
            self._written = now

    def drop(self) -> None:
        """Discard the checkpoint and those of its parts: what they were for is done."""
        self.store.discard()


def train(
    network: Network,
    data: TrainingData,
    runs: Sequence[Run],
    *,
    settings: Settings | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    objective: Objective | None = None,
    start: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainingResult:
    """Train runs to their stop: together where the network can be stacked, else one by one.

    With a penalty and `settings.fine_tune`, every seed and split is trained without it once, and
    all strengths go on from there. The result then spans both parts: its history has the score
    alone first, and the whole objective after that.

    Args:
        network: see `Trainer`.
        data: see `Trainer`.
        runs: see `Trainer`.
        settings: see `Trainer`.
        on_epoch: called after each epoch.
        objective: see `Trainer`.
        start: parameters `(M, P)` to begin with, such as those of the same runs without the
            penalty; then these are not trained again.
        checkpoint: follows the training, which goes on from it; for networks that can be stacked.
            It is left in place, for the caller to remove.
    """
    objective, settings = objective or Objective(), settings or Settings()
    if not runs:
        raise InputError("runs is empty: there is nothing to train")
    if start is not None:
        check_start(start, network, runs)
    if checkpoint is not None and not network.stackable:
        raise InputError("checkpoint: runs of this network are trained one by one, without one")

    def part(
        name: str,
        runs: Sequence[Run],
        objective: Objective,
        settings: Settings,
        start: Tensor | None,
    ) -> TrainingResult:
        groups = [slice(None)] if network.stackable else [slice(m, m + 1) for m in range(len(runs))]
        results = []
        for group in groups:
            trainer = Trainer(
                network,
                data,
                runs[group],
                objective=objective,
                settings=settings,
                start=None if start is None else start[group],
            )
            follower = None if checkpoint is None else checkpoint.part(name, trainer)
            results.append(_finished(trainer, follower, on_epoch))
        return side_by_side(results)

    if objective.penalty is None or not settings.fine_tune:
        return part("all", runs, objective, settings, start)
    if start is not None:
        return part("penalised", runs, objective, settings.tuning, start)
    # A penalty that cannot be had here says so now, and not after the first part.
    first = network.initial(runs[0].seed).unsqueeze(0)
    Trainer(network, data, runs[:1], objective=objective, settings=settings.tuning, start=first)
    pairs = list(dict.fromkeys((run.seed, run.split) for run in runs))
    plain = replace(objective, penalty=None)
    base = part("plain", [Run(*pair) for pair in pairs], plain, settings, None)
    of_run = torch.tensor([pairs.index((run.seed, run.split)) for run in runs])
    before = base.select(of_run.to(base.theta.device))
    after = part("penalised", runs, objective, settings.tuning, before.theta)
    return _one_after_the_other(before, after)


def _finished(
    trainer: Trainer,
    checkpoint: Checkpoint | None,
    on_epoch: Callable[[Progress], None] | None,
) -> TrainingResult:
    if checkpoint is not None:
        checkpoint.resume(trainer)
    epoch = trainer.progress.epoch
    while not trainer.done:
        trainer.step()
        if trainer.progress.epoch > epoch:
            epoch = trainer.progress.epoch
            if on_epoch is not None:
                on_epoch(trainer.progress)
            if checkpoint is not None:
                checkpoint.follow(trainer)
    return trainer.result()


def side_by_side(results: Sequence[TrainingResult]) -> TrainingResult:
    """Results of different runs."""
    longest = max(len(result.history) for result in results)
    padded = [pad(r.history, (0, 0, 0, longest - len(r.history)), value=torch.nan) for r in results]
    names = ("theta", "epochs", "best_epoch", "objective")
    joined = {name: torch.cat([getattr(r, name) for r in results]) for name in names}
    return TrainingResult(**joined, history=torch.cat(padded, dim=1))


def _one_after_the_other(first: TrainingResult, second: TrainingResult) -> TrainingResult:
    """Results of the same runs, of which the second part began where the first ended."""
    moved = second.best_epoch > 0
    # Where the first part has no finite objective, that of its start is no result.
    failed = ~moved & ~first.objective.isfinite()
    epochs = first.epochs + second.epochs
    history = first.history.new_full((int(epochs.max()), len(epochs)), torch.nan)
    history[: len(first.history)] = first.history
    for run, (begin, end) in enumerate(zip(first.epochs.tolist(), epochs.tolist(), strict=True)):
        history[begin:end, run] = second.history[: end - begin, run]
    return TrainingResult(
        theta=second.theta,
        epochs=epochs,
        best_epoch=torch.where(moved, first.epochs + second.best_epoch, first.best_epoch),
        objective=torch.where(failed, first.objective, second.objective),
        history=history,
    )
