"""Training problems of given shapes, on data made up for the purpose."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from prerank.datasets import PUBLISHED_SEEDS, published_split
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER
from prerank.training import Objective, Run, Settings, Trainer, TrainingData, train

NONE = "none"
"""Label of training without a penalty."""

STRENGTH = 10.0

_ROWS = 7207  # of households


@dataclass(frozen=True)
class Shape:
    """Sizes of a training step; those of households by default.

    Attributes:
        rows: in a batch.
        inputs: L.
        targets: D.
        components: K.
        draws: S.
        runs: M.
    """

    rows: int = 256
    inputs: int = 14
    targets: int = 4
    components: int = 5
    draws: int = 100
    runs: int = 1

    @property
    def network(self) -> MixtureNetwork:
        """The network of these sizes, with the published hidden layers."""
        return MixtureNetwork(self.inputs, self.targets, self.components)


def labels(targets: int) -> list[str]:
    """`"none"`, and the pre-ranks that apply: the dependency of two targets is constant."""
    return [NONE, *(p.label for p in PAPER if targets > 2 or p.label != "dependency")]


def objective(label: str, draws: int = 100) -> Objective:
    """The likelihood, plus the penalty of this label."""
    return Objective(None if label == NONE else CalibrationPenalty(label, n_samples=draws))


def trainer(
    shape: Shape, label: str, device: torch.device | str = "cpu", *, graphs: bool = True
) -> Trainer:
    """A stack of runs whose epochs do not end, so that a step is a step and no validation."""
    return Trainer(
        shape.network,
        dataset(shape, device),
        list(_runs(shape)),
        objective=objective(label, shape.draws),
        settings=Settings(batch_size=shape.rows, min_steps=10**9),
        graphs=graphs,
    )


def warm_memory(shape: Shape, label: str) -> None:
    """Train for one epoch and validate.

    The first large blocks that a process asks for are paid with page faults, and after they have
    been freed later ones are cheaper. A real training is past that after its first validation.
    """
    train(
        shape.network,
        dataset(shape, "cpu"),
        list(_runs(replace(shape, runs=1))),
        objective=objective(label, shape.draws),
        settings=Settings(batch_size=shape.rows, max_epochs=1, fine_tune=False),
    )


def dataset(shape: Shape, device: torch.device | str) -> TrainingData:
    """Noisy waves of the inputs, in as many rows as households, or more for large batches."""
    return _dataset(max(_ROWS, 3 * shape.rows), shape.inputs, shape.targets, str(device))


@lru_cache(maxsize=4)
def _dataset(rows: int, inputs: int, targets: int, device: str) -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, inputs, generator=generator)
    mix, noise = torch.randn(2, inputs, targets, generator=generator) / inputs**0.5
    spread = 0.2 + torch.nn.functional.softplus(x @ noise)
    y = torch.sin(x @ mix) + spread * torch.randn(rows, targets, generator=generator)
    splits = [published_split(rows, seed) for seed in PUBLISHED_SEEDS]
    return TrainingData.build(x, y, [(s.train, s.validation) for s in splits], device=device)


def _runs(shape: Shape) -> Iterator[Run]:
    for number in range(shape.runs):
        yield Run(seed=number, split=number % len(PUBLISHED_SEEDS), strength=STRENGTH)
