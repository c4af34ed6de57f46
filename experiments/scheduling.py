"""Makespan of studies on 1 to 1,024 workers, simulated with measured unit costs.

The simulation uses the agenda that the engines use, the estimated costs that the studies use, and
durations that were measured; workers that straggle and attempts that die are added by chance.

    python experiments/scheduling.py --study FOLDER --out DIR

FOLDER is a finished `quick` study, whose `seconds` are the durations of the first table. Those of
the second are the GPU times of `docs/results/speed.md`, scaled by the rows of the paper's datasets.
"""

import argparse
import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from prerank.datasets import DATASETS
from prerank.engines import Agenda, Task, TaskError
from prerank.engines.agenda import chain_costs
from prerank.study import NONE, Plan, Store
from prerank.study.costs import unit_cost

WORKERS = [1, 4, 16, 64, 128, 256, 512, 1024]

# docs/results/speed.md: 25 runs of households on an H200, trained to the stop and evaluated. The
# unpenalised unit is a fifth of them, and its step two thirds of the cheapest one.
HOUSEHOLDS = 7207
SECONDS = {
    "none": 2.0,
    "marginal": 4.06,
    "location": 4.08,
    "scale": 4.41,
    "dependency": 4.45,
    "pca": 3.82,
    "hdr": 4.64,
    "copula": 6.67,
}


@dataclass(frozen=True)
class Weather:
    """What disturbs the workers.

    Attributes:
        straggling: share of attempts that take `slowness` times as long.
        slowness: how much longer.
        dying: share of attempts that die, at a time that is uniform over their duration.
        dispatch: seconds of the driver for each attempt, during which it begins no other.
        opening: seconds of a worker before a unit begins to train.
    """

    straggling: float = 0.0
    slowness: float = 3.0
    dying: float = 0.0
    dispatch: float = 0.002
    opening: float = 1.5


CALM = Weather()
ROUGH = Weather(straggling=0.05, dying=0.02)


def quick_costs(folder: Path, datasets: int, seed: int) -> tuple[list[Task], dict[str, float]]:
    """Copies of the measured datasets of a quick study: tasks, and their true seconds."""
    store = Store(folder)
    seconds = store.results().groupby(["dataset", "variant"]).seconds.first()
    rng = np.random.default_rng(seed)
    names = rng.choice(store.plan.datasets, datasets)
    sizes = np.full(datasets, 3000)
    rows = [{v: float(seconds[name, v]) for v in store.plan.variants} for name in names]
    return _tasks(store.plan, sizes, rows)


def gpu_costs(datasets: int, seed: int) -> tuple[list[Task], dict[str, float]]:
    """Datasets as large as the paper's, on a GPU."""
    plan = Plan.preset("paper-exact")
    rng = np.random.default_rng(seed)
    sizes = rng.choice([record.n_rows for record in DATASETS], datasets)
    rows = [{v: _gpu_seconds(v, size) for v in plan.variants} for size in sizes]
    return _tasks(plan, sizes, rows)


def _gpu_seconds(variant: str, rows: int) -> float:
    parts = variant.replace("(0.8)", "").split("+")
    base = SECONDS["marginal"] / 1.5
    seconds = SECONDS[NONE] if variant == NONE else base + sum(SECONDS[p] - base for p in parts)
    return seconds * max(rows / HOUSEHOLDS, 0.2)  # small ones do not get ever faster


def _tasks(
    plan: Plan, sizes: "np.ndarray[tuple[int], np.dtype[np.int64]]", rows: list[dict[str, float]]
) -> tuple[list[Task], dict[str, float]]:
    tasks, true = [], {}
    estimate = lru_cache(maxsize=None)(lambda variant, size: unit_cost(plan, variant, size))
    for number, (size, seconds) in enumerate(zip(sizes, rows, strict=True)):
        for variant in plan.variants:
            name = f"{number}--{variant}"
            after = () if variant == NONE else (f"{number}--{NONE}",)
            tasks.append(Task(name, cost=estimate(variant, int(size)), after=after))
            true[name] = seconds[variant]
    return tasks, true


def simulate(
    tasks: list[Task], true: dict[str, float], workers: int, weather: Weather, seed: int
) -> dict[str, float]:
    """Run an agenda on a clock of its own.

    Returns:
        `makespan`, `bound` = max(total / W, longest unit), `chained` = the same with the longest
        chain, `lost` = share of the work that died, `given_up` = tasks that failed for good.
    """
    rng = np.random.default_rng(seed)
    length = {
        name: (seconds + weather.opening)
        * (weather.slowness if rng.random() < weather.straggling else 1)
        for name, seconds in true.items()
    }
    agenda, now, driver, lost, given_up = Agenda(tasks), 0.0, 0.0, 0.0, 0
    running: list[tuple[float, int, Task, bool]] = []
    begun = 0
    while agenda.open:
        while len(running) < workers and (task := agenda.next()) is not None:
            driver = max(driver, now) + weather.dispatch
            dies = bool(rng.random() < weather.dying)
            spent = length[task.name] * (rng.random() if dies else 1.0)
            lost += spent if dies else 0.0
            begun += 1
            heapq.heappush(running, (driver + spent, begun, task, dies))
        now, _, task, died = heapq.heappop(running)
        if died:
            given_up += sum(e.kind == "failed" for e in agenda.fail(task, TaskError("it died")))
        else:
            agenda.finish(task, None)
    total = sum(length.values())
    chains = chain_costs({t.name: Task(t.name, cost=length[t.name], after=t.after) for t in tasks})
    return {
        "makespan": now,
        "bound": max(total / workers, *length.values()),
        "chained": max(total / workers, *chains.values()),
        "lost": lost / total,
        "given_up": given_up,
    }


def table(study: Path, seeds: int) -> pd.DataFrame:
    """All costs, sizes, weathers and workers; means over seeds, and the worst of them."""
    return pd.DataFrame(_rows(study, seeds))


def _rows(study: Path, seeds: int) -> Iterator[dict[str, object]]:
    makes = {"quick, CPU": lambda n, s: quick_costs(study, n, s), "paper, H200": gpu_costs}
    for costs, make in makes.items():
        for datasets in (10, 100, 1000):
            problems = [make(datasets, seed) for seed in range(seeds)]
            for name, weather in (("calm", CALM), ("rough", ROUGH)):
                for workers in WORKERS:
                    found = [
                        simulate(*problem, workers, weather, seed)
                        for seed, problem in enumerate(problems)
                    ]
                    over = [f["makespan"] / f["bound"] - 1 for f in found]
                    yield {
                        "costs": costs,
                        "datasets": datasets,
                        "units": len(problems[0][0]),
                        "weather": name,
                        "workers": workers,
                        "makespan": np.mean([f["makespan"] for f in found]),
                        "over": np.mean(over),
                        "worst": max(over),
                        "over chain": np.mean([f["makespan"] / f["chained"] - 1 for f in found]),
                        "lost": np.mean([f["lost"] for f in found]),
                        "given up": sum(f["given_up"] for f in found),
                    }


def main() -> None:
    """Write the table as CSV, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--study", type=Path, required=True, help="folder of a finished study")
    parser.add_argument("--out", type=Path, required=True, help="folder for scheduling.csv")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    begun = time.monotonic()
    found = table(options.study, options.seeds)
    options.out.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.out / "scheduling.csv", index=False, float_format="%.4g")
    print(found.round(3).to_string(index=False))
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
