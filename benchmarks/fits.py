"""CPU seconds of `fit` with each way of calibrating over `fit` without one: 20 inputs, 3 targets.

The fits take turns in one process. The penalty is the default one, its strength selected; a head
has one network or five behind it. Peak memory is that of a process of its own, which fits 100,000
rows for three epochs: more epochs need more time only.
"""

import subprocess
import sys
import time
import warnings

import numpy as np

from prerank import MixtureRegressor
from timing import Plan, Record, Timing

_PLAIN = "none"
_FITS = {
    _PLAIN: {"method": "none"},
    "penalty, strength auto": {"method": "network", "strength": "auto"},
    "head": {"method": "head"},
    "head, five members": {"method": "head", "members": 5},
}
_TURNS = 3
_MEMORY = """
import resource, sys
sys.path.insert(0, {folder!r})
import fits
fits.fit("penalty, strength auto", {rows}, 0, max_epochs=3)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def measure(plan: Plan) -> list[Record]:
    """CPU seconds of each fit, and the ratio to the one without calibration."""
    options = {"max_epochs": 2} if plan.small else {}
    records: list[Record] = []
    fit(_PLAIN, 200, 0, max_epochs=2)  # imports, and the first large blocks of memory
    for rows in (100, 500) if plan.small else (1_000, 10_000):
        seconds: dict[str, list[float]] = {name: [] for name in _FITS}
        for turn in range(min(plan.rounds, _TURNS)):
            for name in _FITS:
                begun = time.process_time()
                fit(name, rows, turn, **options)
                seconds[name].append(time.process_time() - begun)
        timings = {name: Timing(tuple(values)) for name, values in seconds.items()}
        records += [
            {
                "fit": name,
                "rows": rows,
                "CPU s": timing.ms / 1e3,
                "ratio": timing.over(timings[_PLAIN]),
                "to one member": timing.over(timings["head"]) if "five" in name else "",
            }
            for name, timing in timings.items()
        ]
    rows = 1_000 if plan.small else 100_000
    code = _MEMORY.format(folder=str(sys.path[0]), rows=rows)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return [
        *records,
        {"fit": "penalty, strength auto", "rows": rows, "peak MB": int(out.stdout) / 1024},
    ]


def fit(name: str, rows: int, seed: int, **options: int) -> None:
    """One fit to noisy waves of the inputs."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 20))
    mix, noise = draw.normal(size=(2, 20, 3)) / 20**0.5
    spread = 0.2 + np.log1p(np.exp(x @ noise))
    y = np.sin(x @ mix) + spread * draw.normal(size=(rows, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no strength qualifies is as well
        MixtureRegressor(**_FITS[name], **options, device="cpu", random_state=seed).fit(x, y)
