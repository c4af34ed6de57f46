"""One process that measures several parts, prints them and stores them as JSON."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from prerank.files import write_atomically
from tables import table
from timing import Plan, Record, machine, release

Part = Callable[[Plan], list[Record]]


class Skipped(Exception):  # noqa: N818 - not an error
    """A part cannot run here; the text says why."""


def main(
    about: str,
    parts: Mapping[str, Part],
    *,
    out: str,
    default: Sequence[str] | None = None,
    device: str = "cpu",
) -> None:
    """Measure from the command line.

    Args:
        about: what the command does.
        parts: by name.
        out: where the results go by default.
        default: names of the parts that run unless others are asked for; all by default.
        device: where to measure by default.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=default or list(parts))
    parser.set_defaults(device=device)
    if device != "cpu":  # what belongs to a CPU is measured there
        parser.add_argument("--device")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--small", action="store_true", help="only try that everything runs")
    options = parser.parse_args()
    plan = Plan(torch.device(options.device), options.rounds)
    if options.small:
        plan = Plan(plan.device, rounds=2, slice_s=0, limit_s=1, small=True)
    measure({name: parts[name] for name in options.parts}, plan, options.out)


def measure(parts: Mapping[str, Part], plan: Plan, out: Path) -> None:
    """Run the parts; the file is written after each of them."""
    results: dict[str, Any] = {"machine": machine(plan.device), "small": plan.small, "parts": {}}
    print(", ".join(f"{name} {value}" for name, value in results["machine"].items()), flush=True)
    for name, part in parts.items():
        start = time.perf_counter()
        try:
            records = part(plan)
        except Skipped as reason:
            print(f"\n{name}: left out, {reason}", flush=True)
            results["parts"][name] = {"skipped": str(reason)}
        else:
            seconds = time.perf_counter() - start
            print(f"\n{name} ({seconds:.0f} s)\n\n{table(records)}", flush=True)
            results["parts"][name] = {"seconds": seconds, "records": records}
        _store(results, out)
        release(plan.device)
    print(f"\nwritten to {out}")


def _store(results: dict[str, Any], out: Path) -> None:
    # Not sorted by name, as `write_json` does: the order is that of the columns.
    text = json.dumps(results, indent=1) + "\n"
    write_atomically(out, lambda file: file.write_text(text))
