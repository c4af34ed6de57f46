"""Forms of the penalty that were tried beside the default.

A form that changes what is counted (`tally`), how counts are judged (`error`) or an option of the
penalty also changes the objective on which its runs stop; one that has another value in training
(`Other`) is stopped on the default's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from prerank.distributions import Draws, GaussianMixture
from prerank.distributions.noise import RunNoise, row_normal
from prerank.penalty import CalibrationPenalty, LevelCounts
from prerank.pits import smooth
from prerank.pits.smooth import smooth_pits
from prerank.preranks import parse
from prerank.training import Objective, Trainer
from trainers import ApartTrainer

SAMPLED = ("scale", "dependency", "hdr", "copula")
"""Pre-ranks whose PITs need draws."""

SCRATCH = {"fine_tune": False, "holdout_offset": False}
"""The penalty from the first step on, on training rows alone: as published, but exact."""


@dataclass(frozen=True)
class Form:
    """How to penalise.

    Attributes:
        penalty: makes the penalty of a pre-rank.
        settings: changes of the training settings.
        preranks: those for which the form differs from the default; None for all.
        trainer: makes the trainer.
    """

    penalty: Callable[[str], CalibrationPenalty]
    settings: dict[str, Any] = field(default_factory=dict)
    preranks: tuple[str, ...] | None = None
    trainer: Callable[..., Trainer] = Trainer

    def objective(self, label: str) -> Objective:
        """The negative log-likelihood and the penalty of a pre-rank."""
        penalty = self.penalty(label)
        return (OtherObjective if isinstance(penalty, Other) else Objective)(penalty)


class Other(CalibrationPenalty):
    """A penalty whose value in training is not that of its counts."""


class OtherObjective(Objective):
    """Trains on such a value."""

    def __call__(
        self, dist: Any, y: Any, strength: Any, noise: Any, shift: Any = None
    ) -> tuple[Tensor, None]:
        """Ask the penalty itself; it is not shifted."""
        assert self.penalty is not None
        assert shift is None
        value = self.scores(dist, y, noise).mean(-1)
        return value + strength * self.penalty(dist, y, generator=noise), None


class Unbiased(Other):
    r"""Squared gap without the variance of a finite batch: a U-statistic.

    .. math:: (\alpha - \bar s)^2 - \frac{\overline{s^2} - \bar s^2}{N - 1}.
    """

    def forward(self, dist: Any, y: Any, *, shift: Any = None, generator: Any = None) -> Tensor:
        """Mean over levels, components and terms."""
        total: Any = 0
        for z, _ in _pits(self, dist, y, generator):
            grid = _grid(self, z)
            s = torch.sigmoid(self.level_tau * (grid - z.unsqueeze(-1)))  # (..., N, J, levels)
            mean, square = s.mean(-3), s.square().mean(-3)
            gap = (grid - mean).square() - (square - mean.square()) / (z.shape[-2] - 1)
            total = total + gap.mean((-2, -1))
        return total


class Sorted(Other):
    r"""Distance between sorted PITs and uniform quantiles, free of levels and their smoothing.

    .. math:: \frac1N \sum_i \Big| z_{(i)} - \frac{i - 1/2}{N} \Big|^p.
    """

    def forward(self, dist: Any, y: Any, *, shift: Any = None, generator: Any = None) -> Tensor:
        """Mean over ranks, components and terms."""
        total: Any = 0
        for z, _ in _pits(self, dist, y, generator):
            n = z.shape[-2]
            middle = (torch.arange(n, dtype=z.dtype, device=z.device) + 0.5) / n
            gap = (z.sort(-2).values - middle.unsqueeze(-1)).abs()
            total = total + (gap**self.p).mean((-2, -1))
        return total


class Hard(Other):
    """Hard comparisons in the value, smooth ones in the gradient."""

    def forward(self, dist: Any, y: Any, *, shift: Any = None, generator: Any = None) -> Tensor:
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


class Warm(Other):
    """The strength grows linearly over the first steps."""

    steps = 2000

    def forward(self, dist: Any, y: Any, *, shift: Any = None, generator: Any = None) -> Tensor:
        """The default, times the share of the warm-up that has passed."""
        value = super().forward(dist, y, generator=generator)
        return value * _passed(generator, self.steps)


class Pool(Other):
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

    def forward(self, dist: Any, y: Any, *, shift: Any = None, generator: Any = None) -> Tensor:
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

    def error(self, tally: LevelCounts, shift: Tensor | None = None) -> Tensor:
        """Judge validation rows by it too; for a single term."""
        frequencies = tally.frequencies if shift is None else tally.frequencies + shift
        each = (_grid(self, frequencies) - frequencies).abs().mean(-1)
        return (each.square().mean(-1) + 1e-12).sqrt()


class Whole(CalibrationPenalty):
    """The shift is the difference of validation and training rows, noise and all."""

    def shift(self, training: LevelCounts, validation: LevelCounts) -> Tensor:
        """Do not shrink it."""
        return validation.frequencies - training.frequencies


class Stein(CalibrationPenalty):
    """The shift is shrunk by the mean of the Cramér-von Mises statistic instead of its quantile."""

    def shift(self, training: LevelCounts, validation: LevelCounts) -> Tensor:
        """As James and Stein would."""
        gap = validation.frequencies - training.frequencies
        size = gap.square().sum(-1, keepdim=True) / (self.levels - 1)
        noise = (1 / training.rows + 1 / validation.rows) / 6
        return (1 - noise / size).clamp_min(0) * gap


class Frequencies(CalibrationPenalty):
    r"""The shift is shrunk frequency by frequency.

    The difference of two empirical CDFs of one law is a Brownian bridge, with independent
    coefficients :math:`\sqrt2 Z_k / (k \pi)` of :math:`\sin(k \pi \alpha)`, times the root of
    :math:`1 / N_{training} + 1 / N_{validation}`.
    """

    def shift(self, training: LevelCounts, validation: LevelCounts) -> Tensor:
        """Shrink each coefficient by what noise has of it."""
        gap = validation.frequencies - training.frequencies
        grid, step = _grid(self, gap), 1 / (self.levels - 1)
        k = torch.arange(1, self.levels - 1, dtype=gap.dtype, device=gap.device)
        waves = torch.sin(torch.pi * k.unsqueeze(1) * grid)  # (levels - 2, levels)
        found = 2 * step * gap @ waves.mT
        rate = 1 / training.rows + 1 / validation.rows
        noise = 2 * rate * (step / (2 * torch.sin(torch.pi * k * step / 2))).square()
        share = 1 - noise / found.square().clamp_min(torch.finfo(gap.dtype).tiny)
        return (share.clamp_min(0) * found) @ waves


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


def _scratch(penalty: Any, **options: Any) -> Form:
    settings = {**SCRATCH, **options.pop("settings", {})}
    return Form(penalty, settings=settings, **options)


def _apart(share: float) -> Any:
    return partial(ApartTrainer, share=share)


OPTIONS: dict[str, dict[str, Any]] = {
    "tau 20": {"penalty": _with(tau=20.0), "preranks": SAMPLED},
    "tau 50": {"penalty": _with(tau=50.0), "preranks": SAMPLED},
    "tau 300": {"penalty": _with(tau=300.0), "preranks": SAMPLED},
    "level tau 20": {"penalty": _with(level_tau=20.0)},
    "level tau 50": {"penalty": _with(level_tau=50.0)},
    "level tau 300": {"penalty": _with(level_tau=300.0)},
    "square": {"penalty": _with(p=2.0)},
    "25 draws": {"penalty": _with(n_samples=25), "preranks": SAMPLED},
    "400 draws": {"penalty": _with(n_samples=400), "preranks": SAMPLED},
    "equal draws": {"penalty": _with(Equal), "preranks": SAMPLED},
    "batch 128": {"penalty": _with(), "settings": {"batch_size": 128}},
    "batch 1024": {"penalty": _with(), "settings": {"batch_size": 1024}},
    "worst component": {"penalty": _with(Worst), "preranks": ("marginal", "pca")},
    "half as references": {"penalty": _with(References, every=2), "preranks": ("copula",)},
    "eighth as references": {"penalty": _with(References, every=8), "preranks": ("copula",)},
}
"""Changes that can be made to the default and to training from scratch alike."""

FORMS: dict[str, Form] = {
    "default": Form(_with()),
    **{name: Form(**options) for name, options in OPTIONS.items()},
    "rate 3e-4": Form(_with(), settings={"lr": 3e-4}),
    "patience 15": Form(_with(), settings={"patience": 5}),
    "shifted, less shrunk": Form(_with(Stein)),
    "not shifted": Form(_with(), settings={"holdout_offset": False}),
    "shifted, not shrunk": Form(_with(Whole)),
    "shifted by frequencies": Form(_with(Frequencies)),
    "from scratch": _scratch(_with()),
    "from scratch, shifted": Form(_with(), settings={"fine_tune": False}),
    **{f"from scratch, {name}": _scratch(**options) for name, options in OPTIONS.items()},
    "from scratch, square, unbiased": _scratch(_with(Unbiased, p=2.0)),
    "from scratch, sorted": _scratch(_with(Sorted)),
    "from scratch, sorted, square": _scratch(_with(Sorted, p=2.0)),
    "from scratch, hard value": _scratch(_with(Hard)),
    "from scratch, warm-up": _scratch(_with(Warm)),
    "from scratch, pool": _scratch(_with(Pool)),
    "from scratch, pool .3": _scratch(_with(Pool, share=0.3)),
    "from scratch, pool, square": _scratch(_with(Pool, p=2.0)),
    "from scratch, pool, huber .02": _scratch(_with(Pool, delta=0.02)),
    "from scratch, pool .3, huber .02": _scratch(_with(Pool, share=0.3, delta=0.02)),
    "from scratch, pool, huber .05": _scratch(_with(Pool, delta=0.05)),
    "from scratch, pool .03, huber .05": _scratch(_with(Pool, share=0.03, delta=0.05)),
    "from scratch, pool, huber .02, warm-up": _scratch(_with(Pool, delta=0.02, warm=2000)),
    "from scratch, pool .3, warm-up": _scratch(_with(Pool, share=0.3, warm=2000)),
    "from scratch, apart": _scratch(_with(), trainer=_apart(0.2)),
    "from scratch, apart, warm-up": _scratch(_with(Warm), trainer=_apart(0.2)),
    "from scratch, apart, pool .3": _scratch(_with(Pool, share=0.3), trainer=_apart(0.2)),
    "from scratch, apart .1, warm-up": _scratch(_with(Warm), trainer=_apart(0.1)),
    "from scratch, validation": _scratch(_with(), trainer=_apart(0.0)),
    "from scratch, validation, warm-up": _scratch(_with(Warm), trainer=_apart(0.0)),
    "from scratch, validation, pool .3, warm-up": _scratch(
        _with(Pool, share=0.3, warm=2000), trainer=_apart(0.0)
    ),
}
