"""Exact calibration and scores of trained runs on rows they have not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prerank import defaults
from prerank.calibration import mean_spread, pce, pce_floor, reliability_curve
from prerank.models import Network
from prerank.pits import project_pits
from prerank.pits.ranks import labels_of
from prerank.preranks import PreRank
from prerank.scores import energy_score, nll
from prerank.training.data import TrainingData
from prerank.training.runs import Run
from prerank.training.trials import Trial

__all__ = ["Evaluation", "evaluate", "validation_trials"]

_CHUNK_VALUES = 2**20  # rows x draws x targets of a run; noise is drawn by chunk, whatever M is


@dataclass(frozen=True)
class Evaluation:
    """Results of M runs, pooled over all rows.

    Attributes:
        pce: by label of the pre-rank, mean over its components, `(M,)`.
        floor: of the PCE, for this number of rows.
        row_energy: energy score of each row, `(M, N)`.
        row_nll: negative log-likelihood of each row, `(M, N)`.
        curves: by label, share of PITs up to each level, mean over the components, `(M, levels)`.
        noise: standard deviation of the mean PCE of all pre-ranks for calibrated runs, `(M,)`.
    """

    pce: dict[str, Tensor]
    floor: float
    row_energy: Tensor
    row_nll: Tensor
    curves: dict[str, Tensor]
    noise: Tensor

    @property
    def energy(self) -> Tensor:
        """Mean energy score, `(M,)`."""
        return self.row_energy.mean(1)

    @property
    def nll(self) -> Tensor:
        """Mean negative log-likelihood, `(M,)`."""
        return self.row_nll.mean(1)

    def excess(self, label: str) -> Tensor:
        """PCE above its floor."""
        return self.pce[label] - self.floor


def evaluate(
    network: Network,
    theta: Tensor,
    x: Tensor,
    y: Tensor,
    preranks: tuple[PreRank, ...],
    *,
    n_samples: int = defaults.TRAINING_SAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Judge M runs on common random numbers.

    Args:
        network: the network of the runs.
        theta: their parameters, `(M, P)`.
        x: inputs of each run, `(M, N, L)`.
        y: targets of each run, `(M, N, D)`.
        preranks: which to evaluate.
        n_samples: draws per row.
        seed: of the draws.
    """
    labels = labels_of(preranks)
    if not network.stackable and len(theta) > 1:
        parts = zip(theta.split(1), x.split(1), y.split(1), strict=True)
        options: Any = {"n_samples": n_samples, "seed": seed}
        single = [evaluate(network, *part, preranks, **options) for part in parts]
        return Evaluation(
            {label: torch.cat([s.pce[label] for s in single]) for label in labels},
            single[0].floor,
            torch.cat([s.row_energy for s in single]),
            torch.cat([s.row_nll for s in single]),
            {label: torch.cat([s.curves[label] for s in single]) for label in labels},
            torch.cat([s.noise for s in single]),
        )
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, _CHUNK_VALUES // (n_samples * y.shape[-1]))
    pits: list[list[Tensor]] = []
    energy, likelihood = [], []
    with torch.no_grad():
        for part_x, part_y in zip(x.split(rows, dim=1), y.split(rows, dim=1), strict=True):
            dist = network(theta, part_x)
            results = project_pits(dist, part_y, preranks, n_samples=n_samples, generator=generator)
            pits.append([result.z for result in results])
            energy.append(energy_score(dist, part_y, n_samples=n_samples, generator=generator))
            likelihood.append(nll(dist, part_y))
        pooled = [torch.cat(parts, dim=-2) for parts in zip(*pits, strict=True)]
        by_label = dict(zip(labels, pooled, strict=True))
        return Evaluation(
            {label: pce(z).mean(-1) for label, z in by_label.items()},
            pce_floor(y.shape[1]),
            torch.cat(energy, dim=1),
            torch.cat(likelihood, dim=1),
            {label: reliability_curve(z).observed.mean(-1) for label, z in by_label.items()},
            mean_spread(pooled),
        )


def validation_trials(
    network: Network,
    data: TrainingData,
    runs: Sequence[Run],
    theta: Tensor,
    preranks: tuple[PreRank, ...],
    *,
    n_samples: int = defaults.TRAINING_SAMPLES,
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
    x, y = data.select(runs, data.validation)
    judged = evaluate(network, theta, x, y, preranks, n_samples=n_samples)
    excess = torch.stack([judged.excess(prerank.label) for prerank in preranks]).mean(0)
    places: dict[float, list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault(run.strength, []).append(place)
    values = (excess, judged.row_energy, judged.noise, judged.row_nll)
    results = [value.double().cpu().numpy() for value in values]
    return [Trial(strength, *(r[at] for r in results)) for strength, at in places.items()]
