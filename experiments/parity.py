"""A run on the GPU against the same run on the CPU, in float64.

    python experiments/parity.py

Both runs see the same noise, the same batches and the same initial weights; only the order of sums
differs. Printed for each pre-rank: the largest difference of the gradient at equal parameters
(relative to its norm), the largest difference of parameters (relative to the largest of them)
after 20 and 200 steps, and, as a yardstick, the same for two CPU runs of which one started 1e-15
away: where a trajectory is unstable, that difference grows as much, on one machine.
"""

import torch

from prerank.datasets import AR1Regression, published_split
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER
from prerank.training import Objective, Run, Settings, Trainer, TrainingData

NETWORK = MixtureNetwork(2, 3, n_components=3, hidden=(32, 32))


def trainer(device: str, label: str) -> Trainer:
    """Three runs on two splits."""
    x, y = AR1Regression(dim=3).sample(1500, generator=0)
    splits = [published_split(1500, seed) for seed in (0, 1)]
    data = TrainingData.build(
        x, y, [(s.train, s.validation) for s in splits], dtype=torch.float64, device=device
    )
    return Trainer(
        NETWORK,
        data,
        [Run(0, 0, 1.0), Run(1, 1, 10.0), Run(2, 0, 0.0)],
        objective=Objective(CalibrationPenalty(label)),
        settings=Settings(min_steps=1000),
    )


def parameters(device: str, label: str, *, shift: float = 0.0) -> list[torch.Tensor]:
    """Parameters after 1, 20 and 200 steps, and the gradient of the first."""
    run = trainer(device, label)
    run.theta.mul_(1 + shift)
    found = []
    for step in range(200):
        run.step()
        if step == 0:
            found.append(run._state.adam.first.cpu().clone())
        if step in (19, 199):
            found.append(run.theta.cpu().clone())
    return found


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest difference, relative to the largest value."""
    return float((first - second).abs().max() / first.abs().max())


def main() -> None:
    """Compare all pre-ranks."""
    print(f"{'':12}{'CPU and GPU':>27}{'CPU and CPU + 1e-15':>27}")
    print(f"{'':12}" + 2 * f"{'gradient':>9}{'20':>9}{'200':>9}")
    for prerank in PAPER:
        cpu = parameters("cpu", prerank.label)
        others = (
            parameters("cuda", prerank.label),
            parameters("cpu", prerank.label, shift=1e-15),
        )
        values = [difference(a, b) for other in others for a, b in zip(cpu, other, strict=True)]
        print(f"{prerank.label:12}" + "".join(f"{value:9.0e}" for value in values), flush=True)


if __name__ == "__main__":
    main()
