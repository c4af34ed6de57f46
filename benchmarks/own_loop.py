"""A penalised step in a loop of the user's own beside the same step in the trainer.

One run on households shapes, with one thread and with torch's default number. Each ratio is to the
unpenalised step of the same kind; all take turns.
"""

import torch

from prerank.penalty import CalibrationPenalty
from problems import NONE, STRENGTH, Shape, trainer, warm_memory
from timing import Plan, Record, Work, side_by_side, thread_limit

_NAMES = (NONE, "scale", "hdr", "copula")


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step of both, and their ratios to the unpenalised step."""
    shape = Shape()
    steps: dict[tuple[str, str], Work] = {}
    for name in _NAMES:
        warm_memory(shape, name)
        steps["trainer", name] = trainer(shape, name).step
        steps["own loop", name] = loop(shape, name)
    found: list[Record] = []
    for threads in sorted({torch.get_num_threads(), 1}, reverse=True):
        with thread_limit(threads):
            timings = side_by_side({" ".join(key): step for key, step in steps.items()}, plan)
        found += [
            {
                "threads": threads,
                "where": where,
                "prerank": name,
                "ms": timings[f"{where} {name}"].ms,
                "ratio": timings[f"{where} {name}"].over(timings[f"{where} {NONE}"]),
            }
            for where, name in steps
        ]
    return found


def loop(shape: Shape, name: str) -> Work:
    """A step as a user writes it: one network, an optimiser of torch, noise of torch."""
    network, generator = shape.network, torch.Generator().manual_seed(0)
    theta = network.initial(0).float().unsqueeze(0).requires_grad_()
    optimiser = torch.optim.Adam([theta])
    penalty = None if name == NONE else CalibrationPenalty(name, n_samples=shape.draws)
    x = torch.randn(1, shape.rows, shape.inputs, generator=generator)
    y = torch.randn(1, shape.rows, shape.targets, generator=generator)

    def step() -> None:
        optimiser.zero_grad()
        dist = network(theta, x)
        loss = -dist.log_prob(y).mean()
        if penalty is not None:
            loss = loss + STRENGTH * penalty(dist, y).sum()
        loss.backward()
        optimiser.step()

    return step
