"""A penalised step with the kernels in numba against the same step in plain torch, on one thread.

One run and a stack of 15 on households shapes. Left out where numba is not there. In a loop of the
user's own, one step is set beside the unpenalised one, with torch's default number of threads.
"""

import os
from dataclasses import replace

from own_loop import loop
from prerank.numerics.kernels import numba_kernels
from problems import NONE, Shape, trainer, warm_memory
from session import Skipped
from timing import Plan, Record, Work, release, side_by_side, thread_limit

_TARGETS, _RUNS = (4, 16), (1, 15)
_NAMES = ("scale", "hdr", "marginal+hdr", "copula")


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step of both forms and their ratio, then those of a loop of one's own."""
    if numba_kernels() is None:
        raise Skipped("numba is not there, or its kernels are switched off")
    found: list[Record] = []
    for targets in _TARGETS:
        for runs in _RUNS:
            shape = Shape(targets=targets, runs=runs)
            for name in _NAMES:
                warm_memory(replace(shape, runs=1), name)
                step = trainer(shape, name).step
                forms = {"plain": _switched("0", step), "compiled": _switched("1", step)}
                with thread_limit(1):
                    timings = side_by_side(forms, plan)
                found.append(
                    {
                        "where": "trainer",
                        "targets": targets,
                        "runs": runs,
                        "prerank": name,
                        "plain ms": timings["plain"].ms,
                        "compiled ms": timings["compiled"].ms,
                        "ratio": timings["compiled"].over(timings["plain"]),
                    }
                )
                release(plan.device)
    return found + _own_loop(plan)


def _own_loop(plan: Plan) -> list[Record]:
    shape = Shape()
    steps = {}
    for name in (NONE, *_NAMES):
        step = loop(shape, name)
        steps |= {(name, form): _switched(form, step) for form in "01"}
    timings = side_by_side({" ".join(key): step for key, step in steps.items()}, plan)
    return [
        {
            "where": "own loop, over unpenalised",
            "targets": shape.targets,
            "runs": 1,
            "prerank": name,
            "plain ms": timings[f"{name} 0"].ms,
            "compiled ms": timings[f"{name} 1"].ms,
            "ratio": timings[f"{name} 1"].over(timings[f"{NONE} 1"]),
        }
        for name in _NAMES
    ]


def _switched(form: str, work: Work) -> Work:
    def switched() -> None:
        os.environ["PRERANK_COMPILED"] = form
        work()
        del os.environ["PRERANK_COMPILED"]

    return switched
