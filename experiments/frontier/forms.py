"""Forms of the penalty that were tried beside the default.

A form that changes what is counted (`tally`) or how counts are judged (`error`), or an option of
the penalty, also changes the objective on which its runs stop; one that changes `forward` alone is
stopped on the default's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from prerank.distributions import Draws, GaussianMixture
from prerank.distributions.noise import RunNoise, row_normal
from prerank.penalty import CalibrationPenalty
from prerank.pits import smooth
from prerank.pits.smooth import smooth_pits
from prerank.preranks import parse
from prerank.training import Trainer
from trainers import ApartTrainer, Shifted, ShiftTrainer

SAMPLED = ("scale", "dependency", "hdr", "copula")
"""Pre-ranks whose PITs need draws."""


@dataclass(frozen=True)
class Form:
    """How to penalise.

    Attributes:
        penalty: makes the penalty of a pre-rank.
        settings: changes of the training settings.
        preranks: those for which the form differs from the default; None for all.
        trainer: makes the trainer.
        fine_tune: begin where the unpenalised run has its best parameters.
    """

    penalty: Callable[[str], CalibrationPenalty]
    settings: dict[str, Any] = field(default_factory=dict)
    preranks: tuple[str, ...] | None = None
    trainer: Callable[..., Trainer] = Trainer
    fine_tune: bool = False


class Unbiased(CalibrationPenalty):
    r"""Squared gap without the variance of a finite batch: a U-statistic.

    .. math:: (\alpha - \bar s)^2 - \frac{\overline{s^2} - \bar s^2}{N - 1}.
    """

    def forward(self, dist: Any, y: Any, *, generator: Any = None) -> Tensor:
        """Mean over levels, components and terms."""
        total: Any = 0
        for z, _ in _pits(self, dist, y, generator):
            grid = _grid(self, z)
            s = torch.sigmoid(self.level_tau * (grid - z.unsqueeze(-1)))  # (..., N, J, levels)
            mean, square = s.mean(-3), s.square().mean(-3)
            gap = (grid - mean).square() - (square - mean.square()) / (z.shape[-2] - 1)
            total = total + gap.mean((-2, -1))
        return total


class Sorted(CalibrationPenalty):
    r"""Distance between sorted PITs and uniform quantiles, free of levels and their smoothing.

    .. math:: \frac1N \sum_i \Big| z_{(i)} - \frac{i - 1/2}{N} \Big|^p.
    """

    def forward(self, dist: Any, y: Any, *, generator: Any = None) -> Tensor:
        """Mean over ranks, components and terms."""
        total: Any = 0
        for z, _ in _pits(self, dist, y, generator):
            n = z.shape[-2]
            middle = (torch.arange(n, dtype=z.dtype, device=z.device) + 0.5) / n
            gap = (z.sort(-2).values - middle.unsqueeze(-1)).abs()
            total = total + (gap**self.p).mean((-2, -1))
        return total


class Hard(CalibrationPenalty):
    """Hard comparisons in the value, smooth ones in the gradient."""

    def forward(self, dist: Any, y: Any, *, generator: Any = None) -> Tensor:
        """The exact PCE of the batch."""
        again = RunNoise(generator.seeds, generator.step)
        found = _pits(self, dist, y, generator)
        with torch.no_grad():
            exact = _pits(self, dist, y, again, tau=1e6)
        total: Any = 0
        for (z, _), (hard, _) in zip(found, exact, strict=True):
            grid, value = _grid(self, z), z + (hard - z).detach()
            soft = torch.sigmoid(self.level_tau * (grid - value.unsqueeze(-1))).mean(-3)
            step = (hard.unsqueeze(-1) <= grid).to(z.dtype).mean(-3)
            total = total + (grid - soft - (step - soft).detach()).abs().mean((-2, -1))
        return total


class Equal(CalibrationPenalty):
    """As many draws from every component, with its weight; the default allocates by weight."""

    def tally(self, dist: Any, y: Any, *, generator: Any = None) -> Any:
        """Count with these draws."""
        draws = _equal_draws(dist, self.n_samples, generator)
        return self._count(_pits(self, dist, y, generator, draws=draws))


class Warm(CalibrationPenalty):
    """The strength grows linearly over the first steps."""

    steps = 2000

    def forward(self, dist: Any, y: Any, *, generator: Any = None) -> Tensor:
        """The default, times the share of the warm-up that has passed."""
        value = super().forward(dist, y, generator=generator)
        return value * _passed(generator, self.steps)


class Pool(CalibrationPenalty):
    """The gap of a running mean over batches; the gradient is that of the present batch.

    Args:
        preranks: what to penalise.
        share: of the present batch in the running mean.
        delta: below it a gap counts by its square (Huber), above by its size.
        warm: steps over which the strength grows.
        options: of the penalty.
    """

    def __init__(
        self, preranks: Any, share: float = 0.1, delta: float = 0.0, warm: int = 0, **options: Any
    ) -> None:
        super().__init__(preranks, **options)
        self.share, self.delta, self.warm = share, delta, warm

    def forward(self, dist: Any, y: Any, *, generator: Any = None) -> Tensor:
        """Mean over levels, components and terms, at the pooled frequencies."""
        found = self.tally(dist, y, generator=generator)
        frequencies = torch.stack([c / found.rows for c in found.counts])
        memory = self.__dict__.get("memory")
        if memory is None or memory.shape != frequencies.shape:
            memory = frequencies.detach().clone()
            self.__dict__["memory"] = memory
        memory.lerp_(frequencies.detach(), self.share)
        pooled = frequencies + (memory - frequencies).detach()
        gap = (_grid(self, pooled) - pooled).abs()
        if self.delta:
            square = gap.square() / (2 * self.delta)
            gap = torch.where(gap < self.delta, square, gap - self.delta / 2)
        value = (gap**self.p).mean((-2, -1)).sum(0)
        return value * _passed(generator, self.warm) if self.warm else value


class Worst(CalibrationPenalty):
    """Root mean square over the components instead of their mean: the worst count most."""

    def error(self, tally: Any) -> Tensor:
        """Judge validation rows by it too."""
        total: Any = 0
        for counts in tally.counts:
            each = (_grid(self, counts) - counts / tally.rows).abs().mean(-1)
            total = total + (each.square().mean(-1) + 1e-12).sqrt()
        return total


class References(CalibrationPenalty):
    """The copula with another share of the draws as references."""

    def __init__(self, preranks: str, every: int, **options: Any) -> None:
        super().__init__(preranks, **options)
        self.every = every

    def tally(self, dist: Any, y: Any, *, generator: Any = None) -> Any:
        """Count with that share."""
        before, smooth._REFERENCE_EVERY = smooth._REFERENCE_EVERY, self.every
        try:
            return super().tally(dist, y, generator=generator)
        finally:
            smooth._REFERENCE_EVERY = before


def _pits(penalty: CalibrationPenalty, dist: Any, y: Any, noise: Any, **options: Any) -> Any:
    options = {"n_samples": penalty.n_samples, "tau": penalty.tau, **options}
    return smooth_pits(dist, y, penalty.preranks, generator=noise, **options)


def _grid(penalty: CalibrationPenalty, like: Tensor) -> Tensor:
    return torch.linspace(0, 1, penalty.levels, dtype=like.dtype, device=like.device)


def _passed(noise: RunNoise, steps: int) -> Tensor:
    """Share of the first steps that lie behind a run."""
    return torch.clamp(noise.step / (3 * steps), max=1)  # its noise has three purposes in each


def _equal_draws(dist: GaussianMixture, n: int, noise: RunNoise) -> Draws:
    components = dist.loc.shape[-2]
    each = n // components
    shape = (components, *dist.event_shape)
    normal = row_normal(each, dist.batch_shape, shape, like=dist.loc, noise=noise)
    columns = normal.movedim(0, -1)  # (*batch, K, D, each)
    points = dist.scale_tril @ columns + dist.loc.unsqueeze(-1)
    # Draw i of component k at place i K + k, so that every fourth is spread over all.
    points = points.movedim(-3, -1).flatten(-2).movedim(-1, 0)
    weights = (dist.probs / each).unsqueeze(-2).expand(*dist.batch_shape, each, components)
    return Draws(points, weights.flatten(-2).movedim(-1, 0))


def _with(cls: type[CalibrationPenalty] = CalibrationPenalty, **options: Any) -> Any:
    return lambda label: cls(parse(label), **options)


FORMS: dict[str, Form] = {
    "default": Form(_with()),
    "tau 20": Form(_with(tau=20.0), preranks=SAMPLED),
    "tau 50": Form(_with(tau=50.0), preranks=SAMPLED),
    "tau 300": Form(_with(tau=300.0), preranks=SAMPLED),
    "level tau 20": Form(_with(level_tau=20.0)),
    "level tau 50": Form(_with(level_tau=50.0)),
    "level tau 300": Form(_with(level_tau=300.0)),
    "square": Form(_with(p=2.0)),
    "square, unbiased": Form(_with(Unbiased, p=2.0)),
    "sorted": Form(_with(Sorted)),
    "sorted, square": Form(_with(Sorted, p=2.0)),
    "hard value": Form(_with(Hard)),
    "25 draws": Form(_with(n_samples=25), preranks=SAMPLED),
    "400 draws": Form(_with(n_samples=400), preranks=SAMPLED),
    "equal draws": Form(_with(Equal), preranks=SAMPLED),
    "batch 128": Form(_with(), settings={"batch_size": 128}),
    "batch 1024": Form(_with(), settings={"batch_size": 1024}),
    "warm-up": Form(_with(Warm)),
    "pool": Form(_with(Pool)),
    "pool .3": Form(_with(Pool, share=0.3)),
    "pool, square": Form(_with(Pool, p=2.0)),
    "pool, huber .02": Form(_with(Pool, delta=0.02)),
    "pool .3, huber .02": Form(_with(Pool, share=0.3, delta=0.02)),
    "pool, huber .05": Form(_with(Pool, delta=0.05)),
    "pool .03, huber .05": Form(_with(Pool, share=0.03, delta=0.05)),
    "pool, huber .02, warm-up": Form(_with(Pool, delta=0.02, warm=2000)),
    "pool .3, warm-up": Form(_with(Pool, share=0.3, warm=2000)),
    "apart": Form(_with(), trainer=partial(ApartTrainer, share=0.2)),
    "apart, warm-up": Form(_with(Warm), trainer=partial(ApartTrainer, share=0.2)),
    "apart, pool .3": Form(_with(Pool, share=0.3), trainer=partial(ApartTrainer, share=0.2)),
    "validation": Form(_with(), trainer=partial(ApartTrainer, share=0.0)),
    "validation, warm-up": Form(_with(Warm), trainer=partial(ApartTrainer, share=0.0)),
    "validation, pool .3, warm-up": Form(
        _with(Pool, share=0.3, warm=2000), trainer=partial(ApartTrainer, share=0.0)
    ),
    "apart .1, warm-up": Form(_with(Warm), trainer=partial(ApartTrainer, share=0.1)),
    "shifted": Form(_with(Shifted), trainer=ShiftTrainer),
    "fine-tuned": Form(_with(), fine_tune=True),
    "fine-tuned, shifted": Form(_with(Shifted), trainer=ShiftTrainer, fine_tune=True),
    "worst component": Form(_with(Worst), preranks=("marginal", "pca")),
    "half as references": Form(_with(References, every=2), preranks=("copula",)),
    "eighth as references": Form(_with(References, every=8), preranks=("copula",)),
}
