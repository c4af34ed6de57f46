"""Stacks of runs on a GPU: time per step with and without graphs, limits, whole studies.

    PYTHONPATH=src PRERANK_DATA=data python benchmarks/gpu.py --out gpu.json
    python benchmarks/gpu.py --parts graphs
    python benchmarks/gpu.py --device cpu --small     # only to try it without a GPU

`stacks` and `scaling`, the parts that a CPU has too, run where they are asked for.
"""

import sys
from dataclasses import replace

import torch

import heads
import limits
import scaling
import session
import stacks
import studies
from problems import NONE, Shape, labels, trainer
from timing import Plan, Record, release, side_by_side

_RUNS = (5, 25, 175)


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step of a stack, replayed as a graph and called kernel by kernel."""
    found: list[Record] = []
    for runs in (2,) if plan.small else _RUNS:
        found += _stack(runs, plan)
        release(plan.device)
    return found


def _stack(runs: int, plan: Plan) -> list[Record]:
    shape = replace(Shape(), runs=runs)
    names = labels(shape.targets)
    graphs = {name: trainer(shape, name, plan.device) for name in names}
    eager = {name: trainer(shape, name, plan.device, graphs=False) for name in names}
    timings = side_by_side(
        {f"graph {name}": one.step for name, one in graphs.items()}
        | {f"eager {name}": one.step for name, one in eager.items()},
        plan,
    )
    found: list[Record] = []
    for name, one in graphs.items():
        replayed, called = timings[f"graph {name}"], timings[f"eager {name}"]
        found.append(
            {
                "runs": runs,
                "prerank": name,
                "graph ms": replayed.ms,
                "over none": replayed.over(timings[f"graph {NONE}"]),
                "eager ms": called.ms,
                "eager over graph": called.over(replayed),
                "run steps per second": 1e3 * runs / replayed.ms,
                "recorded": one.recorded,  # False: the step has to wait, so no graph
            }
        )
    return found


PARTS = {
    "graphs": measure,
    "limits": limits.measure,
    "passes": studies.measure_pass,
    "households": studies.measure_whole,
    "stacks": stacks.measure,
    "scaling": scaling.measure,
    "heads": heads.measure,
}
_DEFAULT = ("graphs", "limits", "passes", "households", "heads")

if __name__ == "__main__":
    if not torch.cuda.is_available() and "--device" not in sys.argv:
        print("there is no GPU here, so the parts for one are left out")
        sys.exit()
    session.main(
        __doc__.splitlines()[0],
        PARTS,
        out="benchmarks/results/gpu.json",
        default=_DEFAULT,
        device="cuda",
    )
