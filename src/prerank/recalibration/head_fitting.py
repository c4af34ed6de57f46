"""Fitting a calibration head: levels that earn their place, then the penalty of all pre-ranks."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.penalty import CalibrationPenalty, LevelCounts
from prerank.recalibration.change import LEVELS, Change
from prerank.recalibration.halves import Halves
from prerank.recalibration.subjects import Subject

__all__ = ["FittedChange", "fit_change"]

_ALONE = (
    "common",
    "targets",
    "means",
    "copies",
    "tilts",
)  # levels that say something of one target
_AMOUNTS = (0.25, 0.5, 0.75, 1.0)
_LEVEL_STEPS, _LEVEL_ROWS = 40, 512  # of each level, for each half
_JOINT_STEPS, _JOINT_ROWS = 80, 1024  # of all accepted levels together, by the score alone
_RATE, _PENALISED_RATE = 0.05, 0.01
_WARM_STEPS = 10  # in which the rate rises: hundreds of numbers go too far if all start at once
_NOISE = 1.0  # standard errors of a level's frequency, by which PITs may deviate for nothing
_ROWS_PER_NUMBER = 2  # fewest, for a level to be tried
_CHECKED_ROWS = 8192  # on which the answer must not be worse than the forecast
_AVERAGED = 0.3  # share of the last steps whose mean is the answer

Objective = Callable[[Change, Tensor], Tensor]


class FittedChange(NamedTuple):
    """A change and why it is as large as it is.

    Attributes:
        change: parameters with the shape of the stack first.
        amounts: for each level, how far it went from the levels before to its own optimum,
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
    halves: Halves,
    *,
    strength: float,
    copies: int,
    steps: int,
    rows: int,
    seed: int,
    among: Tensor | None = None,
    levels: Sequence[str] | None = None,
) -> FittedChange:
    r"""Fit a change to predictions and observations.

    First by the score alone, level by level, from few numbers to many; a level contains those
    before it, and is tried if there are two rows for each of its numbers. Each level is fitted to
    one half of the rows and judged on the other, both ways. It goes the part of the way at which
    the held-out score is best, and is left out without evidence (see `Halves`). So a
    calibrated forecast stays as it is, and few rows move few numbers. Then the accepted levels
    start at the mean of both halves and are fitted together to all rows, by the score alone and
    then by

    .. math:: \frac1N \sum_i S(F_i, y_i) + \lambda \sum_\rho \frac1{J_\rho} \sum_j \frac1M \sum_m
              \Big(\big|\hat F_j(\alpha_m) - \alpha_m\big|
              - \sqrt{\alpha_m (1 - \alpha_m) / n}\Big)_+

    with the score S, the strength :math:`\lambda` and the n rows of a step: the penalty, less the
    deviations of PITs that a calibrated forecast shows on as many rows. Without that, it would fit
    noise. Answers are means over the last steps. A level goes a part of the way to the first
    answer: the largest one that held-out rows supported for it or for a level that contains it.
    From there the second one begins. An answer whose score is worse than that of the forecast is
    not taken.

    Args:
        subject: predictions and observations.
        penalty: its pre-ranks and draws, or None for the score alone.
        halves: which rows judge what was fitted to which.
        strength: lambda.
        copies: C.
        steps: of the second part.
        rows: of a step of the second part.
        seed: of batches and draws.
        among: numbers of the rows to fit to, `(n,)`, for the score alone; all by default.
        levels: names of those to try, in order; by default all that the subject has.
    """
    y = subject.y
    stack, n, targets = tuple(y.shape[:-2]), y.shape[-2], y.shape[-1]
    draw = torch.Generator().manual_seed(seed)
    among = torch.arange(n) if among is None else among
    order = among[torch.randperm(len(among), generator=draw)].to(y.device)
    change = Change.identity(targets, copies, stack=(2, *stack), like=y)
    change = change._replace(centre=subject.centre.expand_as(change.centre))
    known = [
        level
        for level in (subject.levels if levels is None else levels)
        if level in subject.levels and (targets > 1 or level in _ALONE)
    ]
    names = _affordable(change, known, halves.rows.numel())
    identity = Change(*(part[0] for part in change))
    amounts: dict[str, Tensor] = {}
    gains: dict[str, Tensor] = {}
    for place, level in enumerate(names):
        kept, tried = change.active, frozenset(names[: place + 1])
        start = change.with_copies_apart() if "copies" in tried else change
        fitted = _optimised(
            start,
            partial(_mean_loss, subject, tried),
            _free(start, dict.fromkeys(tried, torch.ones_like(start.width))),
            list(_batches(halves.rows, _LEVEL_ROWS, _LEVEL_STEPS, draw)),
            rate=_RATE,
            averaged=0.0,
        )
        with torch.no_grad():
            others = halves.rows.flip(0)
            before = subject.loss(change, kept, others)
            tries = [change.towards(fitted, torch.full_like(change.width, a)) for a in _AMOUNTS]
            gain = torch.stack(
                [before - subject.loss(trial, tried, others) for trial in tries], 1
            )  # (halves, amounts, *stack, rows)
            best = gain.mean((0, -1)).max(0)
            amount = torch.tensor(_AMOUNTS, dtype=y.dtype, device=y.device)[best.indices]
            evidence = halves.convincing(gain).gather(0, best.indices[None])[0]
            amounts[level] = torch.where(evidence, amount, 0)
            gains[level] = best.values
            change = change.towards(fitted, amounts[level].expand_as(change.width))
    change = Change(*(part.mean(0) for part in change))
    active = change.active
    if not active:
        return FittedChange(change, amounts, gains)
    # A level contains those before it: it supports them as far as itself.
    support = {
        level: torch.stack([amounts[name] for name in names[place:]]).amax(0)
        for place, level in enumerate(names)
    }
    free, loss = _free(change, support), partial(_mean_loss, subject, active)
    batches = list(_batches(order, _JOINT_ROWS, _JOINT_STEPS, draw))
    goal = _optimised(change, loss, free, batches, rate=_RATE, averaged=_AVERAGED)
    answer = _supported(change, goal, support)
    if penalty is not None:
        terms, numbers = penalty, iter(range(steps))

        def penalised(trial: Change, at: Tensor) -> Tensor:
            dist, observed = subject.batch(trial, active, at)
            tally = terms.tally(dist, observed, generator=seed + next(numbers))
            error = terms.error(tally, _noise(tally))
            return subject.score(dist, observed).mean(-1) + strength * error

        batches = list(_batches(order, rows, steps, draw))
        goal = _optimised(
            answer,
            penalised,
            free,
            batches,
            rate=_PENALISED_RATE,
            averaged=_AVERAGED,
            warm=_WARM_STEPS,
        )
        answer = _no_worse(goal, identity, loss, order, instead=answer)
    answer = _no_worse(answer, identity, loss, order, instead=identity)
    return FittedChange(answer, amounts, gains)


def _affordable(change: Change, names: list[str], n: int) -> list[str]:
    """The first levels, as long as there are rows enough for all of their numbers."""
    sizes = [
        sum(getattr(change, field).numel() for field in LEVELS[name]) // change.width.numel()
        for name in names
    ]
    return [
        name
        for name, numbers in zip(names, accumulate(sizes), strict=True)
        if name == names[0] or _ROWS_PER_NUMBER * numbers <= n
    ]


def _supported(change: Change, goal: Change, support: dict[str, Tensor]) -> Change:
    """Go to the goal with each level as far as held-out rows support it."""
    for level, amount in support.items():
        way = change.towards(goal, amount)
        change = change._replace(**{name: getattr(way, name) for name in LEVELS[level]})
    return change


@torch.no_grad()
def _no_worse(
    change: Change, other: Change, loss: Objective, rows: Tensor, *, instead: Change
) -> Change:
    """The change; another one for members of a stack whose score is worse than that of `other`."""
    rows = rows[:_CHECKED_ROWS]
    worse = ~(loss(change, rows) <= loss(other, rows))

    def chosen(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(worse.reshape(worse.shape + (1,) * (a.dim() - worse.dim())), b, a)

    return Change(*map(chosen, change, instead))


@torch.no_grad()
def _noise(tally: LevelCounts) -> Tensor:
    """The part of the deviations that is within the noise, as a shift `(..., J, levels)`."""
    frequencies = tally.frequencies
    at = torch.linspace(0, 1, frequencies.shape[-1]).to(frequencies)
    error = _NOISE * (at * (1 - at) / tally.rows).sqrt()
    return torch.clamp(at - frequencies, -error, error)


def _mean_loss(subject: Subject, levels: frozenset[str], change: Change, rows: Tensor) -> Tensor:
    return subject.loss(change, levels, rows).mean(-1)


def _free(change: Change, support: dict[str, Tensor]) -> Change:
    """1 for parameters of levels with support `(*stack)`, which may move; 0 for the others."""
    masks = {}
    for level, names in LEVELS.items():
        allowed = support.get(level, torch.zeros_like(change.width)) > 0
        for name in names:
            part = getattr(change, name)
            flag = allowed.to(part).reshape(allowed.shape + (1,) * (part.dim() - allowed.dim()))
            masks[name] = flag.expand_as(part)
    return Change(**masks, centre=torch.zeros_like(change.centre))


def _batches(rows: Tensor, size: int, steps: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Batches of the last axis of rows, `(..., b)`."""
    for _ in range(steps):
        yield rows[..., torch.randperm(rows.shape[-1], generator=draw)[:size].to(rows.device)]


def _optimised(
    start: Change,
    objective: Objective,
    free: Change,
    batches: Sequence[Tensor],
    *,
    rate: float,
    averaged: float,
    warm: int = 1,
) -> Change:
    """Follow the gradient by Adam with a rate that rises for a few steps and falls then.

    Adam treats each number on its own: the members of a stack do not influence each other.
    """
    values = [part.detach().clone().requires_grad_() for part in start]
    optimiser = torch.optim.Adam(values, lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm, 1) * (1 + math.cos(math.pi * step / len(batches))) / 2,
    )
    first = min(round(len(batches) * (1 - averaged)), len(batches) - 1)
    means = [torch.zeros_like(part) for part in start]
    for step, rows in enumerate(batches):
        loss = objective(Change(*values), rows).sum()
        slopes = torch.autograd.grad(loss, values, allow_unused=True)
        for value, slope, mask in zip(values, slopes, free, strict=True):
            # A slope that is not finite, such as that of a density which is 0 or infinite at a
            # draw, moves nothing.
            finite = torch.zeros_like(value) if slope is None else slope.nan_to_num(0, 0, 0)
            value.grad = finite * mask
        optimiser.step()
        schedule.step()
        if step >= first:
            part = 1 / (step - first + 1)
            means = [m.lerp(v.detach(), part) for m, v in zip(means, values, strict=True)]
    return Change(*means)
