"""How long a fit will take: the work of its parts, and the speed of the machine."""

import time

import torch

from prerank.estimators.base import JointRegressor
from prerank.estimators.methods import Method

__all__ = ["measured_slowness", "parts_of_fit"]

_EPOCHS = 30  # that a training often has before it stops
_SEARCHED = 15  # epochs of each strength in a search
_TRIED = 5  # strengths times runs that it tries
_PROBES, _PROBE = 40, 1.2e-3  # and the seconds that one took where the work was measured
_CAUTION = 1.15  # on machines that others share, an estimate is rather too short than too long


def parts_of_fit(model: JointRegressor, rows: int, targets: int, held_out: int) -> dict[str, float]:
    """Seconds of each part of a fit and its report, on the machine where they were measured.

    They were measured on tables of 400 to 30,000 rows with 2 to 14 targets, on one core, and are
    good to a factor of 2: when a training stops, and how much a head changes, is not known before.

    Args:
        model: before its fit.
        rows: that it is fitted to.
        targets: number of targets.
        held_out: rows that it is judged on.

    Example:
        >>> from prerank.estimators import MixtureRegressor
        >>> list(parts_of_fit(MixtureRegressor(), 2400, 3, 600))
        ['training', 'head', 'judging', 'drawing']
    """
    method = Method.of(model)
    partition = method.partition(rows, 0, groups=None, time=None)
    runs = len(partition.runs)
    fitted = len(partition.splits[0][0])
    steps = max(fitted // model.batch_size, 10)
    epochs = min(_EPOCHS, model.max_epochs)
    components = getattr(model, "n_components", 5) * method.members / 5
    wide = 0.8 + 0.07 * targets
    parts = {"training": epochs * steps * (1.0 + 1.5 * runs) * wide / 1000}
    if method.name == "network" and method.strength == "auto":
        parts["penalty"] = min(_SEARCHED, epochs) * _TRIED * steps * 8.0 * wide / 1000
    elif method.name == "network" and method.strength:
        parts["penalty"] = epochs * steps * 17.0 * runs * wide / 1000
    elif method.name == "head":
        unseen = sum(len(part) for part in partition.unseen) // method.members
        parts["head"] = unseen**0.55 * (0.06 + 0.018 * targets) * (0.35 + 0.65 * components)
    judged = 0.5 + 0.12 * targets + 3.5e-4 * held_out * targets
    parts["judging"] = judged * (0.9 + 0.1 * components)
    parts["drawing"] = 0.8 + 0.55 * targets
    return parts


def measured_slowness() -> float:
    """Time of a few small steps, as a multiple of that on the machine of `parts_of_fit`.

    It is raised a little, since waiting for less time than was said does no harm.
    """
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(256, 100, generator=draw)
    weights = torch.randn(100, 100, generator=draw).requires_grad_()
    start = time.perf_counter()
    for _ in range(_PROBES):
        hidden = rows
        for _ in range(4):
            hidden = torch.tanh(0.1 * hidden @ weights)
        torch.autograd.grad(hidden.exp().logsumexp(1).sum(), weights)
    return _CAUTION * (time.perf_counter() - start) / (_PROBES * _PROBE)
