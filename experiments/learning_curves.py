"""Where each way stops working: with few rows or many targets.

    PRERANK_DATA=data python experiments/learning_curves.py --out curves [--device cuda]

The networks and methods are those of `headline.py`. `rows`: 100 to 20,000 rows of three large
datasets, split as published, judged by 3,000 other rows. `targets`: 2 to 30 normal targets with
outliers (`OutlierRegression`), 3,000 rows. Each problem leaves one CSV file with the lines of
`headline.py` and what was varied; problems that have one are not computed again. Curves of errors
are of `squared`, which is unbiased for every number of test rows. Wrong forms of the forecast are
those of `predictors.py`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from head import TEST_ROWS, capped
from headline import Problem, judged
from prerank.datasets import PUBLISHED_SEEDS, OutlierRegression, Table, published_split

SIZES = (100, 300, 1_000, 3_000, 10_000, 20_000)
TARGETS, SIMULATED = (2, 4, 8, 16, 30), 3_000
BEHIND = {"base": ("none", "head"), "paper": ("none",), "exact": ("none",)}


class Point(NamedTuple):
    """One problem of a curve: what is varied, its value, and how to make the problem."""

    part: str
    name: str
    value: int
    problem: Callable[[str], Problem]

    @property
    def stem(self) -> str:
        """Name of its file."""
        return f"{self.part}-{self.name}-{self.value}"


def beside(table: Table, n: int, device: str) -> Problem:
    """Split the first n rows of a table as published, and judge by the others."""
    judging = torch.arange(n, len(table.x))
    splits = [replace(published_split(n, seed), test=judging) for seed in PUBLISHED_SEEDS]
    return Problem(table, splits, PUBLISHED_SEEDS, device)


def of_rows(name: str, n: int, device: str) -> Problem:
    """The first n rows of a fixed shuffle of a dataset, judged by its last `TEST_ROWS`."""
    table = capped(name, SIZES[-1] + TEST_ROWS)
    order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(1))
    rows = torch.cat([order[:-TEST_ROWS][:n], order[-TEST_ROWS:]]).numpy()
    size = len(rows) - TEST_ROWS
    return beside(replace(table, x=table.x[rows], y=table.y[rows]), size, device)


def of_targets(dim: int, device: str) -> Problem:
    """Simulated rows with so many targets."""
    truth = OutlierRegression(dim=dim, share=0.1, factor=3.0, shift=1.0)
    x, y = (part.float().numpy() for part in truth.sample(SIMULATED + TEST_ROWS, generator=dim))
    names = tuple(f"y{d}" for d in range(dim))
    return beside(Table("outliers", x, y, ("x0", "x1"), names), SIMULATED, device)


def points() -> Iterator[Point]:
    """All problems, the longest last."""
    for n in SIZES:
        for name in ("calcofi", "bio", "house"):
            yield Point("rows", name, n, lambda device, name=name, n=n: of_rows(name, n, device))
    for dim in TARGETS:
        yield Point("targets", "outliers", dim, lambda device, dim=dim: of_targets(dim, device))


def main() -> None:
    """Compute every problem that has no file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=["rows", "targets"])
    parser.add_argument("--only", nargs="+", help="files to compute, without their ending")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for point in points():
        path = options.out / f"{point.stem}.csv"
        wanted = point.part in options.parts and point.stem in (options.only or [point.stem])
        if not wanted or path.exists():
            continue
        begun = time.perf_counter()
        lines = [line for part in judged(point.problem(options.device), BEHIND) for line in part]
        table = pd.DataFrame(lines)
        table.insert(0, "varied", point.part)
        table.insert(1, "value", point.value)
        table.to_csv(path, index=False, float_format="%.6g")
        print(f"{point.stem}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
