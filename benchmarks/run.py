"""All benchmarks in one process: `make bench`.

    python benchmarks/run.py --out benchmarks/results/cpu.json
    python benchmarks/run.py --parts steps scores
    python benchmarks/run.py --parts startup threads own_loop

Each part prints a table; all go to one JSON file, with a description of the machine. What belongs
to a GPU has a command of its own, `benchmarks/gpu.py`, and `benchmarks/report.py` sets the numbers
beside the targets.
"""

import compiled
import diagnoses
import ensembles
import fits
import heads
import own_loop
import published
import scaling
import scores
import session
import stacks
import startup
import steps
import threads

PARTS = {
    "steps": steps.measure,
    "compiled": compiled.measure,
    "own_loop": own_loop.measure,
    "published": published.measure,
    "stacks": stacks.measure,
    "scores": scores.measure,
    "ensembles": ensembles.measure,
    "diagnoses": diagnoses.measure,
    "heads": heads.measure,
    "fits": fits.measure,
    "scaling": scaling.measure,
    "startup": startup.measure,
    "threads": threads.measure,
}

if __name__ == "__main__":
    session.main(__doc__.splitlines()[0], PARTS, out="benchmarks/results/cpu.json")
