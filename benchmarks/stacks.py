"""M runs stacked in one trainer against M trainers of one run each."""

from collections.abc import Sequence
from dataclasses import replace

from prerank.training import Trainer
from problems import Shape, labels, trainer, warm_memory
from timing import Plan, Record, Work, release, side_by_side

_RUNS = (5, 25)


def measure(plan: Plan) -> list[Record]:
    """Milliseconds for one step of one run, both ways."""
    found: list[Record] = []
    shape = Shape()
    for name in labels(shape.targets):
        if plan.device.type == "cpu":
            warm_memory(shape, name)
        for runs in _RUNS:
            stack = trainer(replace(shape, runs=runs), name, plan.device)
            single = [trainer(shape, name, plan.device) for _ in range(runs)]
            timings = side_by_side({"stacked": stack.step, "single": _each(single)}, plan)
            found.append(
                {
                    "prerank": name,
                    "runs": runs,
                    "ms per run, stacked": timings["stacked"].ms / runs,
                    "ms per run, one by one": timings["single"].ms / runs,
                    "ratio": timings["single"].over(timings["stacked"]),
                }
            )
            del stack, single
            release(plan.device)
    return found


def _each(trainers: Sequence[Trainer]) -> Work:
    def advance() -> None:
        for one in trainers:
            one.step()

    return advance
