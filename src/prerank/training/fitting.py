"""Training runs to their stop: without the penalty first, then with it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.models import Network
from prerank.training.checkpoints import Checkpoint
from prerank.training.data import TrainingData
from prerank.training.objective import Objective
from prerank.training.runs import Progress, Run, Settings, TrainingResult
from prerank.training.trainer import Trainer, check_start

__all__ = ["train"]


def train(
    network: Network,
    data: TrainingData,
    runs: Sequence[Run],
    *,
    objective: Objective | None = None,
    settings: Settings | None = None,
    start: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Train runs to their stop: together where the network can be stacked, else one by one.

    With a penalty and `settings.fine_tune`, every seed and split is trained without it once, and
    all strengths go on from there. The result then spans both parts: its history has the score
    alone first, and the whole objective after that.

    Args:
        network: see `Trainer`.
        data: see `Trainer`.
        runs: see `Trainer`.
        objective: see `Trainer`.
        settings: see `Trainer`.
        start: parameters `(M, P)` to begin with, such as those of the same runs without the
            penalty; then these are not trained again.
        checkpoint: a file that follows the training, and from which it goes on; for networks that
            can be stacked. It is left in place, for the caller to remove.
        on_epoch: called after each epoch.
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
        found = []
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
            found.append(_finished(trainer, follower, on_epoch))
        return _side_by_side(found)

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
    before = _select(base, of_run.to(base.theta.device))
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


def _select(result: TrainingResult, runs: Tensor) -> TrainingResult:
    return TrainingResult(
        result.theta[runs],
        result.epochs[runs],
        result.best_epoch[runs],
        result.objective[runs],
        result.history[:, runs],
    )


def _side_by_side(results: Sequence[TrainingResult]) -> TrainingResult:
    """Results of different runs."""
    longest = max(len(result.history) for result in results)
    padded = [
        torch.cat(
            [r.history, r.history.new_full((longest - len(r.history), len(r.epochs)), torch.nan)]
        )
        for r in results
    ]
    return TrainingResult(
        theta=torch.cat([r.theta for r in results]),
        epochs=torch.cat([r.epochs for r in results]),
        best_epoch=torch.cat([r.best_epoch for r in results]),
        objective=torch.cat([r.objective for r in results]),
        history=torch.cat(padded, dim=1),
    )


def _one_after_the_other(first: TrainingResult, second: TrainingResult) -> TrainingResult:
    """Results of the same runs, of which the second part began where the first ended."""
    moved = second.best_epoch > 0
    # Where the first part found nothing finite, the objective of its start is no result.
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
