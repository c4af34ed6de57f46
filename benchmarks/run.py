"""All benchmarks in one process: `make bench`.

    python benchmarks/run.py --out benchmarks/results/cpu.json
    python benchmarks/run.py --parts steps scores

Each part prints a table; all go to one JSON file, with a description of the machine. What belongs
to a GPU has a command of its own, `benchmarks/gpu.py`, and `benchmarks/report.py` sets the numbers
beside the targets.
"""

import heads
import published
import scaling
import scores
import session
import stacks
import steps

PARTS = {
    "steps": steps.measure,
    "published": published.measure,
    "stacks": stacks.measure,
    "scores": scores.measure,
    "heads": heads.measure,
    "scaling": scaling.measure,
}

if __name__ == "__main__":
    session.main(__doc__.splitlines()[0], PARTS, out="benchmarks/results/cpu.json")
