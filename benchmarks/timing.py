"""Medians of functions timed side by side, and the machine they ran on."""

import gc
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

import torch

Record = dict[str, str | int | float]
"""One row of a table."""

Work = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """Where to measure, and how long.

    Attributes:
        device: of the tensors.
        rounds: how often each function has its turn.
        slice_s: least seconds of a turn; quick functions are called repeatedly.
        limit_s: seconds after which a comparison ends early, with at least three rounds.
        small: reduce sizes, to try that everything runs.
    """

    device: torch.device
    rounds: int = 7
    slice_s: float = 0.1
    limit_s: float = 30.0
    small: bool = False


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one value for each round."""

    seconds: tuple[float, ...]

    @property
    def ms(self) -> float:
        """Median in milliseconds."""
        return 1e3 * median(self.seconds)

    def over(self, other: "Timing") -> float:
        """Median over rounds of the ratio to another function of the same comparison."""
        return median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))


def side_by_side(functions: Mapping[str, Work], plan: Plan) -> dict[str, Timing]:
    """Time functions in turns.

    What slows the machine for a while then slows all of them alike. The order rotates, so that no
    function always finds the memory and caches that the same other one left behind.
    """
    on_gpu = plan.device.type == "cuda"
    warm_up = 6 if on_gpu else 1  # on a GPU they compile kernels and record the graph
    calls = {}
    for name, function in functions.items():
        once = span(function, warm_up, plan.device)
        if on_gpu or once < 1:  # what takes seconds is not called just to see how often to call it
            once = span(function, 1, plan.device)
        calls[name] = max(1, math.ceil(plan.slice_s / max(once, 1e-6)))
    names = list(functions)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    begin = time.perf_counter()
    for turn in range(plan.rounds):
        if turn >= 3 and time.perf_counter() - begin > plan.limit_s:
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(span(functions[name], calls[name], plan.device))
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def span(function: Work, calls: int, device: torch.device) -> float:
    """Mean seconds of a call: by the clock on a CPU, by events on a GPU."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


def release(device: torch.device) -> None:
    """Free what the last comparison held, graphs included."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def thread_limit(count: int) -> Iterator[None]:
    """Let torch use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def held_bytes(*, most: bool) -> int:
    """Memory of this process, now or at its peak."""
    # Not ru_maxrss where it can be avoided: on Linux a child starts with the peak of its parent.
    status = Path("/proc/self/status")
    if status.exists():
        field = "VmHWM" if most else "VmRSS"
        return kilobytes(status, field)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def kilobytes(file: Path, field: str) -> int:
    """A number of kilobytes in a file of Linux, in bytes."""
    line = next(line for line in file.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def machine(device: torch.device) -> Record:
    """Describe where and when the measurement runs."""
    found: Record = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    if hasattr(os, "getloadavg"):  # other work on the machine shows here
        found["load"] = round(os.getloadavg()[0], 2)
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
    return found


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
