"""Fitting a calibration head: levels that earn their place, then the penalty of all pre-ranks."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.penalty import CalibrationPenalty
from prerank.recalibration.change import LEVELS, Change
from prerank.recalibration.subjects import Subject

__all__ = ["FittedChange", "fit_change"]

_ALONE = ("common", "targets", "copies")  # levels that say something of one target
_AMOUNTS = (0.25, 0.5, 0.75, 1.0)
# Standard errors by which a level has to improve the held-out score.
_EVIDENCE = {"common": 1.0, "targets": 2.0, "dependence": 2.0, "mixing": 2.0, "copies": 2.0}
_LEVEL_STEPS, _LEVEL_ROWS, _LEVEL_RATE = 60, 512, 0.05
_RATE = 0.05
_CRAMER_VON_MISES = 0.4614  # 95 % quantile of its limit (Anderson and Darling, 1952)
_CHECKED_ROWS, _CHECKED_DRAWS = 4096, 100  # for the evidence that the penalty is needed
_AVERAGED = 0.3  # share of the last steps whose mean is the answer

Objective = Callable[[Change, Tensor], Tensor]


class FittedChange(NamedTuple):
    """A change and why it is as large as it is.

    Attributes:
        change: parameters with the shape of the stack first.
        amounts: for each level, how far it went from the level before to its own optimum,
            `(*stack)`.
        gains: for each level, the improvement of the score on rows that it was not fitted to,
            `(*stack)`.
    """

    change: Change
    amounts: dict[str, Tensor]
    gains: dict[str, Tensor]


def fit_change(
    subject: Subject,
    penalty: CalibrationPenalty | None,
    *,
    strength: float,
    copies: int,
    steps: int,
    rows: int,
    seed: int,
) -> FittedChange:
    r"""Fit a change to predictions and observations.

    First by the score alone, level by level, from one number to many. Each level is fitted to one
    half of the rows and judged on the other, both ways. It goes the part of the way at which the
    held-out score is best, and is left out if the gain is within its standard errors. So a
    calibrated forecast stays as it is, and few rows move few numbers. Then the accepted levels are
    fitted together to

    .. math:: \frac1N \sum_i S(F_i, y_i) + s \lambda R(F, y), \qquad
              s = \max_j \Big(1 - \frac{q}{N \int (\hat F_j(\alpha) - \alpha)^2 d\alpha}\Big)_+

    with the score S, the penalty R and its strength :math:`\lambda`. The factor s is 0 where no PIT
    of the penalty deviates more than a calibrated forecast's may (q is the 95 % quantile of the
    Cramér-von Mises statistic): R would fit noise. The answer is the mean over the last steps;
    each level goes the same part of the way to it as before.

    Args:
        subject: predictions and observations.
        penalty: R, or None.
        strength: lambda.
        copies: C.
        steps: of the second part.
        rows: of a step of the second part.
        seed: of halves, batches and draws.
    """
    y = subject.y
    stack, n, targets = tuple(y.shape[:-2]), y.shape[-2], y.shape[-1]
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=draw).to(y.device)
    half = n // 2
    others = torch.stack([order[half : 2 * half], order[:half]])
    change = Change.identity(targets, copies, stack=(3, *stack), like=y)  # of two halves and all
    levels: frozenset[str] = frozenset()
    amounts: dict[str, Tensor] = {}
    gains: dict[str, Tensor] = {}
    for level in subject.levels if targets > 1 else _ALONE:
        tried = levels | {level}
        start = change.with_copies_apart() if level == "copies" else change
        fitted = _optimised(
            start,
            partial(_mean_loss, subject, tried),
            _free(start, tried, amounts),
            list(_thirds(order, min(_LEVEL_ROWS, half), draw)),
            rate=_LEVEL_RATE,
            averaged=0.0,
        )
        with torch.no_grad():
            first, second = (Change(*(part[:2] for part in c)) for c in (change, fitted))
            before = subject.loss(first, levels, others)
            tries = [first.towards(second, torch.full_like(first.width, a)) for a in _AMOUNTS]
            gain = torch.stack([before - subject.loss(trial, tried, others) for trial in tries])
            gain = gain.movedim(1, -2).flatten(-2)  # (amounts, *stack, rows)
            best = gain.mean(-1).max(0)
            error = gain.std(-1).gather(0, best.indices[None])[0] / gain.shape[-1] ** 0.5
            amount = torch.tensor(_AMOUNTS, dtype=y.dtype, device=y.device)[best.indices]
            amounts[level] = torch.where(best.values > _EVIDENCE[level] * error, amount, 0)
            gains[level] = best.values
            change = change.towards(fitted, amounts[level].expand_as(change.width))
            levels = tried if bool(amounts[level].any()) else levels
    change = Change(*(part[2] for part in change))
    if penalty is None or not levels:
        return FittedChange(change, amounts, gains)
    force = strength * _need(subject, change, levels, penalty, order[:_CHECKED_ROWS], seed)
    if not bool(force.any()):
        return FittedChange(change, amounts, gains)
    numbers = iter(range(steps))

    def objective(trial: Change, at: Tensor) -> Tensor:
        dist, observed = subject.batch(trial, levels, at)
        error = penalty(dist, observed, generator=seed + next(numbers))
        return subject.score(dist, observed).mean(-1) + force * error

    batches = list(_batches(order, min(rows, n), steps, draw))
    free = _free(change, levels, amounts)
    goal = _optimised(change, objective, free, batches, rate=_RATE, averaged=_AVERAGED)
    for level, names in LEVELS.items():
        if level in levels:
            # As far as held-out rows support the level, where the penalty is needed at all.
            way = change.towards(goal, torch.where(force > 0, amounts[level], 0))
            change = change._replace(**{name: getattr(way, name) for name in names})
    return FittedChange(change, amounts, gains)


@torch.no_grad()
def _need(
    subject: Subject,
    change: Change,
    levels: frozenset[str],
    penalty: CalibrationPenalty,
    rows: Tensor,
    seed: int,
) -> Tensor:
    """The factor s of the penalty, `(*stack)`."""
    finer = CalibrationPenalty(penalty.preranks, n_samples=_CHECKED_DRAWS)
    tally = finer.tally(*subject.batch(change, levels, rows), generator=seed)
    levels_at = torch.linspace(0, 1, finer.levels).to(subject.y)
    size = (tally.frequencies - levels_at).square().mean(-1).amax(-1)
    return (1 - _CRAMER_VON_MISES / (tally.rows * size)).clamp_min(0)


def _mean_loss(subject: Subject, levels: frozenset[str], change: Change, rows: Tensor) -> Tensor:
    return subject.loss(change, levels, rows).mean(-1)


def _free(change: Change, levels: frozenset[str], amounts: dict[str, Tensor]) -> Change:
    """1 for parameters that may move, 0 for those of other levels or of levels left out."""
    masks = {}
    for level, names in LEVELS.items():
        allowed = amounts.get(level, torch.ones(())) > 0 if level in levels else torch.zeros(())
        for name in names:
            part = getattr(change, name)
            spare = part.dim() - change.width.dim()
            flag = allowed.to(part).reshape(allowed.shape + (1,) * spare)
            masks[name] = flag.expand_as(part)
    return Change(**masks)


def _thirds(order: Tensor, size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Batches of the first half of the rows, of the second, and of all, `(3, b)`."""
    half = len(order) // 2
    for _ in range(_LEVEL_STEPS):
        one = torch.randperm(half, generator=draw)[:size].to(order.device)
        every = torch.randperm(len(order), generator=draw)[:size].to(order.device)
        yield torch.stack([order[one], order[half + one], order[every]])


def _batches(order: Tensor, size: int, steps: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Batches of all rows, `(b,)`."""
    for _ in range(steps):
        yield order[torch.randperm(len(order), generator=draw)[:size].to(order.device)]


def _optimised(
    start: Change,
    objective: Objective,
    free: Change,
    batches: Sequence[Tensor],
    *,
    rate: float,
    averaged: float,
) -> Change:
    """Follow the gradient by Adam with a falling rate.

    Adam treats each number on its own: the members of a stack do not influence each other.
    """
    values = [part.clone().requires_grad_() for part in start]
    optimiser = torch.optim.Adam(values, lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, len(batches))
    first = min(round(len(batches) * (1 - averaged)), len(batches) - 1)
    means = [torch.zeros_like(part) for part in start]
    for step, rows in enumerate(batches):
        loss = objective(Change(*values), rows).sum()
        slopes = torch.autograd.grad(loss, values, allow_unused=True)
        for value, slope, mask in zip(values, slopes, free, strict=True):
            value.grad = torch.zeros_like(value) if slope is None else slope * mask
        optimiser.step()
        schedule.step()
        if step >= first:
            part = 1 / (step - first + 1)
            means = [m.lerp(v.detach(), part) for m, v in zip(means, values, strict=True)]
    return Change(*means)
