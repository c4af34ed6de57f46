"""`diagnose` of this state of the source beside that of an earlier commit, in turns.

    python benchmarks/against.py COMMIT [--rounds 9]

Each state runs in a process of its own, which diagnoses the same forecasts when it is told to, on
one thread, so that what slows the machine for a while slows both. Prints the median ratio of the
CPU times, with the smallest and the largest, for each forecast.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import IO, Any

ROOT = Path(__file__).parents[1]
FORECASTS = ("mixture", "normal", "members", "miscalibrated")


def serve() -> None:
    """Answer each line, the name of a forecast, with the CPU seconds of its diagnosis."""
    import torch

    import prerank

    torch.set_num_threads(1)
    n, d = 1000, 4
    draw = torch.Generator().manual_seed(0)
    y = torch.randn(n, d, generator=draw)
    eye = torch.eye(d)
    logits, loc = torch.zeros(n, 3), torch.zeros(n, 3, d)
    dists = {
        "mixture": prerank.GaussianMixture(logits, loc, eye.expand(n, 3, d, d)),
        "normal": torch.distributions.MultivariateNormal(torch.zeros(n, d), eye),
        "members": prerank.Ensemble(torch.randn(50, n, d, generator=draw)),
        "miscalibrated": torch.distributions.MultivariateNormal(torch.zeros(n, d), 0.7 * eye),
    }
    for line in sys.stdin:
        start = time.process_time()  # other processes do not count
        prerank.diagnose(dists[line.strip()], y, generator=0).verdict()
        print(json.dumps(time.process_time() - start), flush=True)


def started(source: Path) -> "subprocess.Popen[str]":
    """A process that serves with the package in a folder."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--serve"]
    pipe: Any = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def seconds(process: "subprocess.Popen[str]", name: str) -> float:
    """Ask for one diagnosis."""
    ask: IO[str] = process.stdin  # type: ignore[assignment]
    answer: IO[str] = process.stdout  # type: ignore[assignment]
    ask.write(f"{name}\n")
    ask.flush()
    return float(json.loads(answer.readline()))


def main() -> None:
    """Compare, and print one line for each forecast."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", help="to compare with")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.commit is None:
        parser.error("name the commit to compare with")
    with tempfile.TemporaryDirectory() as folder:
        archive = ["git", "-C", str(ROOT), "archive", options.commit, "src"]
        packed = subprocess.run(archive, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        both = [started(ROOT / "src"), started(Path(folder) / "src")]
        try:
            for name in FORECASTS:
                for process in both:  # imports and nulls that are kept
                    seconds(process, name)
                turns = [
                    [seconds(process, name) for process in both] for _ in range(options.rounds)
                ]
                ratios = [now / before for now, before in turns]
                print(
                    f"{name:14} {median(now for now, _ in turns):.3f} s now, "
                    f"{median(before for _, before in turns):.3f} s before: ratio "
                    f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                    flush=True,
                )
        finally:
            for process in both:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
