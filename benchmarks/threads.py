"""Steps with one torch thread and with one for each core, alone and beside busy processes.

Threads of OpenMP that wait for each other may spin or sleep, which is decided by the environment
before torch is loaded: each policy has processes of its own, which take turns. Inside one, steps
with one and with all threads take turns. "alone" is what the machine is without what is started
here: the load says whether others used it.

    python benchmarks/run.py --parts threads
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

from prerank.study.engines import cores
from problems import NONE, Shape, trainer, warm_memory
from timing import Plan, Record, Work, thread_limit

_POLICIES = {
    "as it is": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "short spin": {"GOMP_SPINCOUNT": "1000"},
}
_DECIDING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
_NAMES = (NONE, "scale", "copula")
_SPIN = "while True: pass"


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step by the clock and of CPU time, and ratios to those of one thread."""
    found: list[Record] = []
    rounds = 1 if plan.small else 3
    for busy in (0, cores()):
        values: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
        load = os.getloadavg()[0]
        with _busy_processes(busy):
            for _ in range(rounds):
                for policy, variables in _POLICIES.items():
                    for name, threads, wall, cpu in _steps(variables, plan):
                        values.setdefault((policy, name, threads), []).append((wall, cpu))
        medians = {
            key: [median(column) for column in zip(*pairs, strict=True)]
            for key, pairs in values.items()
        }
        for (policy, name, threads), (wall, cpu) in medians.items():
            one, many = (medians[policy, name, count] for count in (1, cores()))
            found.append(
                {
                    "busy processes": busy,
                    "load before": round(load, 2),
                    "waiting": policy,
                    "prerank": name,
                    "threads": threads,
                    "ms": wall,
                    "CPU ms": cpu,
                    "over the better": wall / min(one[0], many[0]),
                    "CPU over one thread": cpu / one[1],
                }
            )
    return found


def _steps(variables: dict[str, str], plan: Plan) -> list[tuple[str, int, float, float]]:
    environment = {k: v for k, v in os.environ.items() if k not in _DECIDING} | variables
    command = [sys.executable, __file__, str(plan.slice_s)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return [tuple(row) for row in json.loads(done.stdout)]


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _child(seconds: float) -> list[tuple[str, int, float, float]]:
    found = []
    for name in _NAMES:
        shape = Shape()
        with thread_limit(1):  # spinning threads would take minutes on a busy machine
            warm_memory(shape, name)
        step = trainer(shape, name).step
        turns: dict[int, list[tuple[float, float]]] = {1: [], cores(): []}
        for _ in range(5):
            for threads, timed in turns.items():
                with thread_limit(threads):
                    timed.append(_timed(step, seconds))
        found += [
            (name, threads, *(median(column) for column in zip(*timed, strict=True)))
            for threads, timed in turns.items()
        ]
    return found


def _timed(step: Work, seconds: float) -> tuple[float, float]:
    """Milliseconds of a call by the clock and of CPU time, from at least one call."""
    wall, cpu, calls = time.perf_counter(), time.process_time(), 0
    while not calls or time.perf_counter() - wall < seconds:
        step()
        calls += 1
    return 1e3 * (time.perf_counter() - wall) / calls, 1e3 * (time.process_time() - cpu) / calls


if __name__ == "__main__":
    torch.set_num_threads(cores())
    print(json.dumps(_child(float(sys.argv[1]))))
