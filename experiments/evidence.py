"""Error rates and power of verdicts, tests and searches, on simulated data with a known truth.

    python experiments/evidence.py PART --out docs/results/tables/evidence --keep build/evidence

A part is a module of `experiments/evidence_parts` with

- `CELLS`: pairs of a dictionary, the columns that name a cell (a scenario, a number of rows), and
  the number of its data sets;
- `outcomes(seeds, **cell)`: one dictionary of numbers for each seed, such as whether a test
  rejects;
- `lines(cell, table)`, if it wants: the lines of a cell, from the outcomes of its data sets; else
  one line for each outcome, `event`, with `rate`, its mean, and the number of data sets.

Each part leaves one CSV file in `--out`. Outcomes are kept in `--keep` as they come, and those that
are there are not computed again. Seeds start at 1,000: others are for choices.
"""

import argparse
import importlib
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import torch

PARTS = tuple(
    sorted(
        path.stem
        for path in (Path(__file__).parent / "evidence_parts").glob("*.py")
        if not path.stem.startswith("_")
    )
)
FIRST_SEED, BLOCK = 1000, 20

Line = dict[str, Any]


def part_named(name: str) -> ModuleType:
    """The module of a part."""
    return importlib.import_module(f"evidence_parts.{name}")


def one_block(name: str, cell: int, seeds: range) -> list[Line]:
    """Outcomes of some data sets of a cell, with the numbers of the cell and the seeds."""
    torch.set_num_threads(1)
    part = part_named(name)
    found = part.outcomes(seeds, **part.CELLS[cell][0])
    return [
        {"cell": cell, "seed": seed} | {key: float(value) for key, value in one.items()}
        for seed, one in zip(seeds, found, strict=True)
    ]


def blocks(counts: list[int], first: int, done: pd.DataFrame) -> list[tuple[int, range]]:
    """Cells and seeds that have no outcomes yet, in blocks, the first blocks of all cells first."""
    known = set(zip(done.cell, done.seed, strict=True)) if len(done) else set()
    return [
        (cell, seeds)
        for start in range(0, max(counts), BLOCK)
        for cell, count in enumerate(counts)
        if (seeds := range(first + start, first + min(count, start + BLOCK)))
        if not all((cell, seed) in known for seed in seeds)
    ]


def computed(
    name: str, todo: list[tuple[int, range]], workers: int, end: float
) -> Iterator[list[Line]]:
    """Outcomes of blocks as they are done; those that have not started by the end are left."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, fresh) as pool:
        waiting: set[Future[list[Line]]] = set()
        while todo or waiting:
            while todo and len(waiting) < 2 * workers and time.monotonic() < end:
                waiting.add(pool.submit(one_block, name, *todo.pop(0)))
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def mean_lines(cell: Line, table: pd.DataFrame) -> Iterator[Line]:
    """One line for each outcome; those that a data set does not have are not counted."""
    for event in table.columns:
        values = table[event].dropna()
        yield {**cell, "event": event, "rate": values.mean(), "data_sets": len(values)}


def summary(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """The table of a part from the outcomes of all its data sets."""
    part = part_named(name)
    make = getattr(part, "lines", mean_lines)
    found = []
    for number, own in table.sort_values(["cell", "seed"]).groupby("cell"):
        outcomes = own.drop(columns=["cell", "seed"]).dropna(axis=1, how="all")
        found += make(part.CELLS[number][0], outcomes)
    return pd.DataFrame(found)


def main() -> None:
    """Compute the data sets of some parts, and write their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--keep", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--data-sets", type=int, help="per cell, at most")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    for folder in (options.out, options.keep):
        folder.mkdir(parents=True, exist_ok=True)
    for name in options.parts:
        part, start = part_named(name), time.monotonic()
        kept = options.keep / f"{name}.jsonl"
        done = pd.read_json(kept, lines=True) if kept.exists() else pd.DataFrame()
        counts = [min(count, options.data_sets or count) for _, count in part.CELLS]
        todo = blocks(counts, options.first_seed, done)
        with kept.open("a") as file:
            for found in computed(name, todo, options.workers, end):
                file.writelines(json.dumps(one) + "\n" for one in found)
                file.flush()
        if not kept.stat().st_size:
            print(f"{name}: out of time", flush=True)
            continue
        table = pd.read_json(kept, lines=True).drop_duplicates(["cell", "seed"])
        last = options.first_seed + table.cell.map(dict(enumerate(counts)))
        table = table[(table.seed >= options.first_seed) & (table.seed < last)]
        summary(name, table).to_csv(options.out / f"{name}.csv", index=False, float_format="%.4g")
        print(f"{name}: {len(table):,} data sets, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
