"""A run on the GPU against the same run on the CPU: 200 steps in float64.

    python benchmarks/parity.py

Prints the largest difference of parameters, relative to their size, for each pre-rank. Both runs
see the same noise, the same batches and the same initial weights; only the order of sums differs.
"""

import torch

from prerank.datasets import AR1Regression, published_split
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER
from prerank.training import Objective, Run, Settings, Trainer, TrainingData


def parameters(device: str, label: str, steps: int = 200) -> torch.Tensor:
    """Parameters of three runs after some steps."""
    x, y = AR1Regression(dim=3).sample(1500, generator=0)
    splits = [published_split(1500, seed) for seed in (0, 1)]
    data = TrainingData.build(
        x, y, [(s.train, s.validation) for s in splits], dtype=torch.float64, device=device
    )
    network = MixtureNetwork(2, 3, n_components=3, hidden=(32, 32))
    trainer = Trainer(
        network,
        data,
        [Run(0, 0, 1.0), Run(1, 1, 10.0), Run(2, 0, 0.0)],
        objective=Objective(CalibrationPenalty(label)),
        settings=Settings(min_steps=2 * steps),
    )
    for _ in range(steps):
        trainer.step()
    return trainer.theta.cpu()


def main() -> None:
    """Compare all pre-ranks."""
    for prerank in PAPER:
        cpu, gpu = (parameters(device, prerank.label) for device in ("cpu", "cuda"))
        print(
            f"{prerank.label:12} {float((cpu - gpu).abs().max() / cpu.abs().max()):.1e}", flush=True
        )


if __name__ == "__main__":
    main()
