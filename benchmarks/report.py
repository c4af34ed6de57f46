"""Measured numbers as Markdown, the targets beside them.

    python benchmarks/report.py benchmarks/results/cpu.json benchmarks/results/gpu.json

prints to the terminal, or writes to the file named with --out.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prerank.files import read_json
from tables import table
from targets import targets

_TITLES = {
    "steps": "Penalised over unpenalised step, one run",
    "compiled": "Compiled steps over plain ones, one thread; a loop of one's own over unpenalised",
    "own_loop": "A loop of one's own beside the trainer, each over its unpenalised step",
    "published": "The published step over ours",
    "stacks": "Stacked runs against one by one",
    "scores": "Energy score and diagnosis: n = 10,000, S = 100, D = 16",
    "ensembles": "Ensembles on one thread: growth with the members, ranks over numpy, CRPS",
    "fits": "CPU seconds of `fit`, over the fit without calibration",
    "diagnoses": "Diagnosis over numpy's sort of the samples, CPU time: S = 100, D = 4",
    "scaling": "Milliseconds per step as one size grows",
    "startup": "CPU seconds of commands and of the first name, over importing torch",
    "threads": "Threads that wait, alone and beside busy processes",
    "graphs": "Stacks on the GPU, 256 rows, D = 4, K = 5, S = 100",
    "limits": "Distance of the unpenalised step from the limits of the device",
    "passes": "One pass over the training rows of calcofi",
    "households": "All of households: trained to the stop, evaluated on every pre-rank",
}


def lines(results: dict[str, Any]) -> Iterator[str]:
    """The report of one file."""
    machine = results["machine"]
    yield f"## {machine.get('gpu', machine['cpu'])}"
    yield ""
    yield ", ".join(f"{name} {value}" for name, value in machine.items()) + "."
    yield ""
    if results["small"]:
        yield "**Small sizes, only to try that everything runs: the numbers mean nothing.**"
        yield ""
    parts = results["parts"]
    records = {name: part["records"] for name, part in parts.items() if "records" in part}
    verdicts = [target.record() for target in targets(records, machine["threads"])]
    if verdicts:
        yield "### Targets"
        yield ""
        yield table(verdicts)
        yield ""
    for name, part in parts.items():
        yield f"### {_TITLES[name]}"
        yield ""
        yield table(part["records"]) if "records" in part else f"Left out: {part['skipped']}."
        yield ""


def main() -> None:
    """Report from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = "\n".join(line for file in options.files for line in lines(read_json(file)))
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
