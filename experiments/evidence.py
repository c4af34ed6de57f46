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

With `--sums`, for parts without `lines`, sums of outcomes are kept in their place, in `--out` as
`PART_blocks.csv` with one line for each cell and block of seeds, so that a run that takes hours can
be finished later, and elsewhere.
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
_COLUMNS = ["cell", "first_seed", "data_sets", "sums"]


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


class Blocks:
    """Sums of the outcomes of a part, a line of a CSV file for each cell and block of seeds.

    Args:
        name: of the part.
        path: of the file.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._cells = [json.dumps(cell) for cell, _ in part_named(name).CELLS]
        self._path = path
        self._lines = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=_COLUMNS)

    @property
    def done(self) -> pd.DataFrame:
        """Cell and seed of each data set that is there."""
        pairs = [
            (self._cells.index(line.cell), seed)
            for line in self._lines.itertuples()
            if line.cell in self._cells
            for seed in range(line.first_seed, line.first_seed + line.data_sets)
        ]
        return pd.DataFrame(pairs, columns=["cell", "seed"])

    def left(self, todo: list[tuple[int, range]]) -> list[tuple[int, range]]:
        """Blocks without the seeds that are there: their sums must not count them again."""
        known = set(self.done.itertuples(index=False, name=None))
        return [
            (cell, range(next(s for s in seeds if (cell, s) not in known), seeds.stop))
            for cell, seeds in todo
        ]

    def add(self, found: list[Line]) -> None:
        """Write the line of one block."""
        table = pd.DataFrame(found)
        sums = table.drop(columns=["cell", "seed"]).sum().to_dict()
        line = (self._cells[table.cell[0]], table.seed.min(), len(table), json.dumps(sums))
        new = pd.DataFrame([line], columns=_COLUMNS)
        new.to_csv(self._path, mode="a", header=not self._path.exists(), index=False)
        self._lines = pd.concat([self._lines, new], ignore_index=True)

    def table(self) -> pd.DataFrame:
        """Rates of all outcomes, in the order of the cells."""
        found: list[Line] = []
        for cell in self._cells:
            own = self._lines[self._lines.cell == cell]
            if len(own):
                sums = pd.DataFrame(list(map(json.loads, own.sums))).sum()
                n = int(own.data_sets.sum())
                found += [
                    {**json.loads(cell), "event": event, "rate": count / n, "data_sets": n}
                    for event, count in sums.items()
                ]
        return pd.DataFrame(found)


def run_in_sums(name: str, options: argparse.Namespace, counts: list[int], end: float) -> None:
    """Compute the blocks of a part that are not there, and write its table."""
    if hasattr(part_named(name), "lines"):
        raise SystemExit(f"{name}: its lines need all outcomes, not their sums: leave --sums out")
    kept = Blocks(name, options.out / f"{name}_blocks.csv")
    todo = kept.left(blocks(counts, options.first_seed, kept.done))
    for found in computed(name, todo, options.workers, end):
        kept.add(found)
    table = kept.table()
    table.to_csv(options.out / f"{name}.csv", index=False, float_format="%.4g")
    print(f"{name}: {len(kept.done):,} data sets", flush=True)


def main() -> None:
    """Compute the data sets of some parts, and write their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--keep", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--sums", action="store_true", help="keep sums of blocks beside the table")
    parser.add_argument("--cells", type=int, nargs="+", help="numbers of the cells, from 0")
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
        counts = [
            min(count, options.data_sets or count) if number in (options.cells or [number]) else 0
            for number, (_, count) in enumerate(part.CELLS)
        ]
        if options.sums:
            run_in_sums(name, options, counts, end)
            continue
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
