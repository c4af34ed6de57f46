"""`prerank.diagnose` of many rows against numpy's sort of the same samples, and its peak memory.

An ensemble of S = 100 members with D = 4 targets in float32, calibrated. Times are CPU seconds of
one process in which both take turns; what is simulated once for each number of rows, such as the
null of one component, is there before. Called as a script with a pre-rank and a number of rows, it
makes one diagnosis and prints by how many bytes the process grew at most, samples and imports not
counted.

    python benchmarks/run.py --parts diagnoses
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import prerank
from timing import Plan, Record, Timing, Work, held_bytes

_NAMES = ("marginal", "pca")
_SORT = "numpy's sort"


def measure(plan: Plan) -> list[Record]:
    """CPU seconds, ratio to the sort, and peak memory; of a million rows the memory alone."""
    rows, many = (2_000, 5_000) if plan.small else (100_000, 1_000_000)
    timings = _cpu_times(_works(rows), plan.rounds)
    found: list[Record] = [
        {
            "prerank": name,
            "rows": rows,
            "CPU s": timing.ms / 1e3,
            "ratio": timing.over(timings[_SORT]),
            "peak MB": _peak(name, rows),
        }
        for name, timing in timings.items()
        if name != _SORT
    ]
    return found + [
        {"prerank": name, "rows": many, "peak MB": _peak(name, many)} for name in _NAMES
    ]


def _works(rows: int) -> dict[str, Work]:
    samples, y = _arrays(rows)
    works: dict[str, Work] = {_SORT: lambda: np.sort(samples.numpy(), axis=0)}
    for name in _NAMES:
        works[name] = partial(prerank.diagnose, prerank.Ensemble(samples), y, preranks=name)
    return works


def _cpu_times(works: dict[str, Work], rounds: int) -> dict[str, Timing]:
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            start = time.process_time()
            work()
            if turn:  # the first simulates the nulls
                seconds[name].append(time.process_time() - start)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def _arrays(rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(100, rows, 4, generator=generator)
    return samples, torch.randn(rows, 4, generator=generator)


def _peak(name: str, rows: int) -> float:
    """Most memory that a process of its own holds beside the samples, in MB."""
    command = [sys.executable, str(Path(__file__)), name, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout) / 1e6


if __name__ == "__main__":
    warm, few = _arrays(500)
    prerank.diagnose(prerank.Ensemble(warm), few, preranks=sys.argv[1])  # imports
    samples, y = _arrays(int(sys.argv[2]))
    dist = prerank.Ensemble(samples)
    before = held_bytes(most=False)
    prerank.diagnose(dist, y, preranks=sys.argv[1])
    print(held_bytes(most=True) - before)
