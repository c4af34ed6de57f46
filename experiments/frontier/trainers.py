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
from prerank.penalty import CalibrationPenalty, Tally
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


class Shifted(CalibrationPenalty):
    r"""The gap of training rows, moved by how much validation rows differ from them.

    .. math:: \Big| \alpha - \hat F_{batch}(\alpha) - s\, b(\alpha) \Big|, \qquad
              b = \hat F_{validation} - \hat F_{training}, \qquad
              s = \Big(1 - \frac{\sum_\alpha \sigma^2(\alpha)}{\sum_\alpha b^2(\alpha)}\Big)_+,

    where :math:`\sigma^2` is the variance of b between samples of one law: what is no larger than
    noise does not count. Training rows, of which there are many, give the gradient; rows that the
    likelihood has not seen give the aim.
    """

    buffers: dict[str, Tensor] | None = None

    def forward(self, dist: Any, y: Any, *, generator: Any = None) -> Tensor:
        """Mean over levels and components, summed over terms."""
        tally = self.tally(dist, y, generator=generator)
        assert self.buffers is not None
        grid = torch.linspace(0, 1, self.levels, dtype=y.dtype, device=y.device)
        frequencies = torch.cat([c / tally.rows for c in tally.counts], -2)
        gap = (grid - frequencies - self.buffers["shift"]).abs().mean(-1)
        sizes = [counts.shape[-2] for counts in tally.counts]
        return torch.stack([part.mean(-1) for part in gap.split(sizes, -1)]).sum(0)

    def tally(self, dist: Any, y: Any, *, generator: Any = None) -> Tally:
        """Count, and remember the counts of training and of validation rows."""
        found = super().tally(dist, y, generator=generator)
        counts = torch.cat([c.detach() for c in found.counts], -2)
        if self.buffers is None or self.buffers["shift"].shape != counts.shape:
            names = ("shift", "training", "validation")
            self.__dict__["buffers"] = {name: torch.zeros_like(counts) for name in names}
            for name in names[1:]:
                self.buffers[f"{name} rows"] = counts.new_zeros(())
        kind = "training" if torch.is_grad_enabled() else "validation"
        self.buffers[kind] += counts
        self.buffers[f"{kind} rows"] += found.rows
        return found

    def close_epoch(self) -> None:
        """Take the counts of an epoch into the shift."""
        b = self.buffers
        assert b is not None
        sizes = b["training rows"], b["validation rows"]
        bias = b["validation"] / sizes[1] - b["training"] / sizes[0]
        grid = torch.linspace(0, 1, self.levels, dtype=bias.dtype, device=bias.device)
        noise = grid * (1 - grid) * (1 / sizes[0] + 1 / sizes[1])
        share = 1 - noise.sum() / bias.square().sum(-1, keepdim=True).clamp_min(1e-12)
        b["shift"].lerp_(share.clamp_min(0) * bias, 0.5)
        for name in ("training", "validation", "training rows", "validation rows"):
            b[name].zero_()


class ShiftTrainer(Trainer):
    """Updates the shift of its penalty after each epoch."""

    def _close_epoch(self) -> None:
        penalty, going = self.objective.penalty, self._state.going.clone()
        assert isinstance(penalty, Shifted)
        penalty.close_epoch()
        before = len(going)
        super()._close_epoch()
        if len(self._state.going) != before:  # stopped runs have left
            keep = going.nonzero().squeeze(1)
            assert penalty.buffers is not None
            for name in ("shift", "training", "validation"):
                penalty.buffers[name] = penalty.buffers[name][keep]
