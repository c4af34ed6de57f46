"""Training whose penalty looks at other rows than its likelihood.

On rows that the likelihood has been fitted to, a network looks better calibrated than it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from prerank.distributions import GaussianMixture
from prerank.distributions.noise import RunNoise
from prerank.training import Run, Trainer, TrainingData

_OFFSET = 2**40  # far from the steps that the trainer's own noise uses


class ApartTrainer(Trainer):
    """A share of the training rows is kept for the penalty alone; or it sees the validation rows.

    Args:
        network: see `Trainer`.
        data: see `Trainer`.
        runs: see `Trainer`.
        share: of the training rows; 0 for the validation rows.
        options: of the trainer.
    """

    def __init__(
        self, network: Any, data: TrainingData, runs: Sequence[Run], *, share: float, **options: Any
    ) -> None:
        kept = round(share * data.train.shape[1])
        self._apart = data.train[:, :kept] if kept else data.validation
        super().__init__(network, replace(data, train=data.train[:, kept:]), runs, **options)

    def _make_step(self) -> None:
        state, settings = self._state, self.settings
        places = torch.arange(self._size, device=self._order.device)
        rows = self._order[:, state.number % self._batches * self._size + places]
        chance = RunNoise(self._seed, state.number + _OFFSET).uniform((self._size,))
        own = self._apart[self._split.squeeze(1)]
        rows = torch.cat([rows, own.gather(1, (chance * own.shape[1]).long())], 1)
        theta = state.adam.theta.detach().requires_grad_()
        x, y = self._gather(rows)
        dist = self.network(theta, x)
        noise = self._noise(0, state.number)
        first, second = (slice(self._size), slice(self._size, None))
        value = self.objective.scores(_rows(dist, first), y[:, first], noise).mean(-1)
        penalty = self.objective.penalty
        assert penalty is not None
        term = penalty(_rows(dist, second), y[:, second], generator=noise)
        (gradient,) = torch.autograd.grad((value + self._strength * term).sum(), theta)
        state.adam.update(gradient, lr=settings.lr, bound=settings.gradient_bound)
        state.number += 1


def _rows(dist: Any, rows: slice) -> GaussianMixture:
    tensors: list[Tensor] = [dist.logits, dist.loc, dist.scale_tril]
    return GaussianMixture(*(t[:, rows] for t in tensors), validate_args=False)
