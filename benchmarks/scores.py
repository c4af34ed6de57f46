"""`prerank.energy_score` against scoringrules on the same arrays, and the time of `diagnose`.

n = 10,000 rows, S = 100 samples, D = 16 targets, in float32; each library gets the samples in the
order of axes that it asks for. Called as a script with a name, it makes that one computation and
prints by how many bytes the process grew at most, arrays and imports not counted.
"""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import prerank
from timing import Plan, Record, Work, held_bytes, kilobytes, side_by_side

_OURS = "prerank"
_PARTS = ", 500 rows at a time"
_COPIES = {"torch": 1.1, "numpy": 2.2, "numba": 0.0}  # of all pairwise differences, held at once
_NAMES = (
    _OURS,
    *(f"scoringrules {backend}" for backend in _COPIES),
    f"scoringrules torch{_PARTS}",  # less memory, so that it may do better than in one call
)


def measure(plan: Plan) -> list[Record]:
    """Time, ratio to ours, peak memory and largest difference from ours."""
    rows = 500 if plan.small else 10_000
    notes = {name: _obstacle(name, rows) for name in _NAMES}
    ready = {name: _contender(name, rows) for name, note in notes.items() if not note}
    values: dict[str, np.ndarray] = {}
    timings = side_by_side({name: _keeping(values, name, run) for name, run in ready.items()}, plan)
    ready.clear()  # the memory is for the processes below
    found: list[Record] = [
        {
            "what": name,
            "seconds": timing.ms / 1e3,
            "ratio": timing.over(timings[_OURS]),
            "peak MB": _peak(name, rows),
            "difference": float(np.abs(values[name] - values[_OURS]).max()),
        }
        for name, timing in timings.items()
    ]
    found += [{"what": name, "note": note} for name, note in notes.items() if note]
    return found + _diagnoses(rows)


def _keeping(values: dict[str, np.ndarray], name: str, run: Work) -> Work:
    """The same computation, which leaves its values behind."""

    def kept() -> None:
        values[name] = np.asarray(run())

    return kept


def _diagnoses(rows: int) -> list[Record]:
    samples, y = _arrays(rows)
    found: list[Record] = []
    for note in ("first call, which simulates the null", "second call"):
        start = time.perf_counter()
        prerank.diagnose(prerank.Ensemble(samples), y, generator=0)
        seconds = time.perf_counter() - start
        found.append({"what": "diagnose", "seconds": seconds, "note": note})
    return found


def _obstacle(name: str, rows: int) -> str:
    """Why this cannot run here; empty if it can."""
    library, _, rest = name.partition(" ")
    if library == _OURS:
        return ""
    backend = rest.partition(",")[0]
    for package in (library, backend):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    pairs = 4 * min(rows, _batch(name, rows)) * 100 * 100 * 16
    needed = _COPIES[backend] * pairs
    return f"needs about {needed / 1e9:.0f} GB" if needed > 0.6 * _free_bytes() else ""


def _contender(name: str, rows: int) -> Work:
    """The computation, its arrays made and its library imported."""
    samples, y = _arrays(rows)
    if name == _OURS:
        return lambda: prerank.energy_score(prerank.Ensemble(samples), y)
    from scoringrules import es_ensemble

    backend = name.split()[1].strip(",")
    members = samples.movedim(0, 1).contiguous()
    arrays = (y, members) if backend == "torch" else (y.numpy(), members.numpy())
    size = _batch(name, rows)

    def score() -> np.ndarray:
        parts = [
            es_ensemble(*(a[i : i + size] for a in arrays), estimator="fair", backend=backend)
            for i in range(0, rows, size)
        ]
        return np.concatenate([np.asarray(part) for part in parts])

    return score


def _batch(name: str, rows: int) -> int:
    return 500 if name.endswith(_PARTS) else rows


def _arrays(rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(100, rows, 16, generator=generator)
    return samples, torch.randn(rows, 16, generator=generator)


def _peak(name: str, rows: int) -> float:
    """Most memory that a process of its own holds for the computation, in MB."""
    command = [sys.executable, str(Path(__file__)), name, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout) / 1e6


def _free_bytes() -> int:
    information = Path("/proc/meminfo")
    if information.exists():
        return kilobytes(information, "MemAvailable")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


if __name__ == "__main__":
    work = _contender(sys.argv[1], int(sys.argv[2]))
    before = held_bytes(most=False)
    work()
    print(held_bytes(most=True) - before)
