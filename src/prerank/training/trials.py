"""From trained runs to what a choice of strength needs to know about them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from prerank.models import Network
from prerank.preranks import PreRank
from prerank.training.data import TrainingData
from prerank.training.evaluation import evaluate
from prerank.training.runs import Run
from prerank.training.selection import Trial

__all__ = ["validation_trials"]


def validation_trials(
    network: Network,
    data: TrainingData,
    runs: Sequence[Run],
    theta: Tensor,
    preranks: tuple[PreRank, ...],
    *,
    n_samples: int = 100,
) -> list[Trial]:
    """Exact calibration and accuracy of each strength, on the validation rows of its runs.

    Args:
        network: the network of the runs.
        data: what they were trained on.
        runs: for every strength the same splits and seeds, in the same order.
        theta: their parameters, `(M, P)`.
        preranks: whose excess is averaged.
        n_samples: draws per row.
    """
    split = torch.tensor([run.split for run in runs], device=data.x.device).unsqueeze(1)
    rows = data.validation[split.squeeze(1)]
    found = evaluate(
        network, theta, data.x[split, rows], data.y[split, rows], preranks, n_samples=n_samples
    )
    excess = torch.stack([found.excess(prerank.label) for prerank in preranks]).mean(0)
    places: dict[float, list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault(run.strength, []).append(place)
    results = [value.double().cpu().numpy() for value in (excess, found.energy, found.noise)]
    return [Trial(strength, *(r[at] for r in results)) for strength, at in places.items()]
