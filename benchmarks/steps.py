"""A penalised training step against an unpenalised one, for each pre-rank.

One run (M = 1) on households shapes: 256 rows, 14 inputs, K = 5, S = 100; with 2, 4 and 16 targets.
"""

import torch

from problems import NONE, Shape, labels, trainer, warm_memory
from timing import Plan, Record, release, side_by_side, thread_limit

_TARGETS = (2, 4, 16)


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step, and their ratio to the unpenalised step."""
    found: list[Record] = []
    for targets in _TARGETS:
        shape = Shape(targets=targets)
        names = labels(targets)
        for name in names:
            warm_memory(shape, name)
        steps = {name: trainer(shape, name).step for name in names}
        for threads in sorted({torch.get_num_threads(), 1}, reverse=True):
            with thread_limit(threads):
                timings = side_by_side(steps, plan)
            found += [
                {
                    "targets": targets,
                    "threads": threads,
                    "prerank": name,
                    "ms": timing.ms,
                    "ratio": timing.over(timings[NONE]),
                }
                for name, timing in timings.items()
            ]
        release(plan.device)
    return found
