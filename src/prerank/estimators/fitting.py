"""Training a network with a strength that is given, or selected under a budget."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.estimators.progress import progress_bar
from prerank.models import Network
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PreRankLike, parse
from prerank.training import (
    Objective,
    Run,
    Selection,
    Settings,
    TrainingData,
    Trial,
    search_strength,
    train,
    validation_trials,
)

__all__ = ["Fit", "fit_network", "random_splits"]

_VALIDATION_SHARE = 0.2
_SELECTION_SPLITS = 3


@dataclass(frozen=True)
class Fit:
    """A trained network.

    Attributes:
        theta: parameters `(1, P)`, trained on the first split.
        base: those before the penalty came in, `(1, P)`.
        strength: that was used.
        selection: how it was chosen; None where it was given.
    """

    theta: Tensor
    base: Tensor
    strength: float
    selection: Selection | None


def random_splits(n: int, seed: int, strength: float | str) -> list[tuple[Tensor, Tensor]]:
    """Training and validation rows: one split, or several to select a strength on."""
    generator = torch.Generator().manual_seed(seed)
    validation = max(2, round(_VALIDATION_SHARE * n))
    count = _SELECTION_SPLITS if isinstance(strength, str) else 1
    orders = [torch.randperm(n, generator=generator) for _ in range(count)]
    return [(order[validation:], order[:validation]) for order in orders]


def fit_network(
    network: Network,
    data: TrainingData,
    *,
    seed: int,
    preranks: PreRankLike,
    strength: float | str,
    budget: float,
    settings: Settings,
    n_samples: int,
    verbose: bool,
) -> Fit:
    """Train without the penalty, go on with it at every strength in question, and choose.

    Args:
        network: to train.
        data: with the splits of `random_splits`.
        seed: of initial parameters and noise.
        preranks: what the penalty looks at.
        strength: of the penalty, or `"auto"`.
        budget: by how much the energy score may worsen, for `"auto"`.
        settings: of the training.
        n_samples: draws per row of the penalty.
        verbose: whether to show a progress bar.
    """
    terms, splits = parse(preranks), range(len(data.x))
    if strength:
        probe = network(network.initial(seed)[None].to(data.x), data.x[:1, :1])
        for term in terms:
            term.check(probe)
    trained: dict[float, Tensor] = {}
    with progress_bar(verbose) as on_epoch:
        options: Any = {"settings": settings, "on_epoch": on_epoch}
        base = train(network, data, [Run(seed, split) for split in splits], **options)
        if not bool(base.objective.isfinite().all()):
            raise InputError(_divergence(settings))

        def fit(strengths: Sequence[float]) -> tuple[list[Run], Tensor]:
            runs = [Run(seed, s, strength) for strength in strengths for s in splits]
            result = base
            if any(strengths):
                objective = Objective(CalibrationPenalty(terms, n_samples=n_samples))
                start = base.theta.repeat(len(strengths), 1)
                result = train(network, data, runs, objective=objective, start=start, **options)
            for index, one in enumerate(strengths):
                first = slice(index * len(splits), index * len(splits) + 1)
                if bool(torch.isfinite(result.objective[first]).all()):
                    trained[one] = result.theta[first].clone()
            return runs, result.theta

        def attempt(strengths: Sequence[float]) -> list[Trial]:
            runs, theta = fit(strengths)
            return validation_trials(network, data, runs, theta, terms)

        selection = None
        if isinstance(strength, str):
            selection = search_strength(attempt, strength, budget=budget)
            chosen = selection.strength or 0.0
        else:
            chosen = float(strength)
            fit([chosen])
    if selection is not None and selection.strength is None:
        warnings.warn(
            f"{selection.reason}: the model is trained without a penalty (strength_ = 0); "
            "selection_.table has the trace",
            stacklevel=3,
        )
    if chosen not in trained:
        raise InputError(_divergence(settings))
    return Fit(trained[chosen].cpu(), base.theta[:1].cpu(), chosen, selection)


def _divergence(settings: Settings) -> str:
    return (
        "training gave no finite objective on the validation rows in any epoch: lower lr "
        f"(now {settings.lr:g}) or strength, and look for extreme values in X and y"
    )
