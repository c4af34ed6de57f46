"""CPU seconds of the first answer of a command and of the first name of the library, over torch's.

Each is a process of its own, and they take turns; `import torch` is the measure. The byte code of
all modules is there before, as after an installation.
"""

import os
import resource
import subprocess
import sys

from timing import Plan, Record, Timing

_TORCH = "import torch"
_COMMAND = ("-P", "-m", "prerank")
_ARGUMENTS = {
    _TORCH: ("-c", _TORCH),
    "--version": (*_COMMAND, "--version"),
    "--help": (*_COMMAND, "--help"),
    "explain": (*_COMMAND, "explain"),
    "explain hdr": (*_COMMAND, "explain", "hdr"),
    "CalibrationPenalty": ("-c", "import prerank; prerank.CalibrationPenalty"),
}


def measure(plan: Plan) -> list[Record]:
    """CPU seconds of each, and their ratio to importing torch."""
    seconds: dict[str, list[float]] = {what: [] for what in _ARGUMENTS}
    for turn in range(plan.rounds + 1):
        for what, arguments in _ARGUMENTS.items():
            spent = _cpu_seconds(arguments)
            if turn:  # the first writes the byte code and fills the caches
                seconds[what].append(spent)
    timings = {what: Timing(tuple(values)) for what, values in seconds.items()}
    return [
        {"what": what, "CPU s": timing.ms / 1e3, "ratio": timing.over(timings[_TORCH])}
        for what, timing in timings.items()
    ]


def _cpu_seconds(arguments: tuple[str, ...]) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
