"""Makespan of studies on 1 to 1,024 workers, simulated with measured unit costs.

The simulation uses the agenda that the engines use, the estimated costs that the studies use, and
durations that were measured; workers that straggle and attempts that die are added by chance.

    python experiments/scheduling.py --out docs/results/tables

The durations are those of the units of `paper-exact` and `paper-as-published` on an H200.
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
from prerank.study import NONE, Plan
from prerank.study.engines import Agenda, Task, TaskError
from prerank.study.engines.agenda import chain_costs
from prerank.study.runner import unit_cost

WORKERS = [1, 8, 16, 24, 32, 48, 64, 128, 256, 512, 1024]
TABLES = Path(__file__).parents[1] / "docs" / "results" / "tables"
STUDIES = {"paper-exact": "exact", "paper-as-published": "published"}


@dataclass(frozen=True)
class Conditions:
    """Stragglers, failures and overheads of the workers.

    Attributes:
        straggling: share of attempts that take `slowness` times as long.
        slowness: how much longer.
        dying: share of attempts that die, at a time that is uniform over their duration.
        checkpoint: seconds between checkpoints, from the last of which a unit is resumed.
        dispatch: seconds of the driver for each attempt, during which it starts no other.
        opening: seconds of a worker before the training of a unit starts.
    """

    straggling: float = 0.0
    slowness: float = 3.0
    dying: float = 0.0
    checkpoint: float = 30.0
    dispatch: float = 0.002
    opening: float = 1.5


CALM = Conditions()
ROUGH = Conditions(straggling=0.05, dying=0.02)


@dataclass(frozen=True)
class Measured:
    """Units of a study whose seconds are known.

    Attributes:
        plan: whose estimates decide what starts first; in the exact protocol, penalised units wait
            for the unpenalised one.
        seconds: by dataset and variant.
    """

    plan: Plan
    seconds: "pd.Series[float]"

    @classmethod
    def of(cls, preset: str) -> "Measured":
        """Those of a preset that have been run."""
        found = pd.read_csv(TABLES / f"{STUDIES[preset]}_seconds.csv")
        return cls(Plan.preset(preset), found.set_index(["dataset", "variant"]).seconds)

    def problem(self, datasets: int, seed: int) -> tuple[list[Task], dict[str, float]]:
        """Copies of its datasets, drawn at random: tasks, and their true seconds."""
        rng = np.random.default_rng(seed)
        known = sorted(self.seconds.index.unique("dataset"))
        sizes = {record.name: record.n_rows for record in DATASETS}
        estimate = lru_cache(maxsize=None)(
            lambda name, variant: unit_cost(self.plan, variant, sizes[name])
        )
        tasks, true = [], {}
        for number, dataset in enumerate(rng.choice(known, datasets)):
            for variant, seconds in self.seconds[dataset].items():
                name = f"{number}--{variant}"
                alone = variant == NONE or self.plan.protocol == "published"
                after = () if alone else (f"{number}--{NONE}",)
                tasks.append(Task(name, cost=estimate(dataset, variant), after=after))
                true[name] = float(seconds)
        return tasks, true


def simulate(
    tasks: list[Task], true: dict[str, float], workers: int, conditions: Conditions, seed: int
) -> dict[str, float]:
    """Run an agenda on a clock of its own.

    Returns:
        `makespan`, `bound` = max(total / W, longest chain), the least that any order could
        reach, `unit` = the same with the longest unit, `lost` = share of the work that died,
        `given_up` = tasks that failed for good.
    """
    rng = np.random.default_rng(seed)
    length = {
        name: (seconds + conditions.opening)
        * (conditions.slowness if rng.random() < conditions.straggling else 1)
        for name, seconds in true.items()
    }
    total = sum(length.values())
    chains = chain_costs({t.name: Task(t.name, cost=length[t.name], after=t.after) for t in tasks})
    least = total / workers
    bounds = {"bound": max(least, *chains.values()), "unit": max(least, *length.values())}
    agenda, now, driver, lost, given_up = Agenda(tasks), 0.0, 0.0, 0.0, 0
    running: list[tuple[float, int, Task, bool]] = []
    begun = 0
    while agenda.open:
        while len(running) < workers and (task := agenda.next()) is not None:
            driver = max(driver, now) + conditions.dispatch
            dies = bool(rng.random() < conditions.dying)
            spent = length[task.name] * (rng.random() if dies else 1.0)
            begun += 1
            heapq.heappush(running, (driver + spent, begun, task, dies))
            if dies:
                lost += spent % conditions.checkpoint
                length[task.name] += spent % conditions.checkpoint - spent
        now, _, task, died = heapq.heappop(running)
        if died:
            given_up += sum(e.kind == "failed" for e in agenda.fail(task, TaskError("it died")))
        else:
            agenda.finish(task, None)
    return {"makespan": now, **bounds, "lost": lost / total, "given_up": given_up}


def table(measured: dict[str, Measured], seeds: int) -> pd.DataFrame:
    """All costs, sizes, conditions and workers; means over seeds, and the worst of them."""
    return pd.DataFrame(_rows(measured, seeds))


def _rows(measured: dict[str, Measured], seeds: int) -> Iterator[dict[str, object]]:
    for costs, units in measured.items():
        for datasets in (10, 100, 1000):
            problems = [units.problem(datasets, seed) for seed in range(seeds)]
            for name, conditions in (("calm", CALM), ("rough", ROUGH)):
                for workers in WORKERS:
                    found = [
                        simulate(*problem, workers, conditions, seed)
                        for seed, problem in enumerate(problems)
                    ]
                    over = [f["makespan"] / f["bound"] - 1 for f in found]
                    yield {
                        "costs": costs,
                        "datasets": datasets,
                        "units": len(problems[0][0]),
                        "conditions": name,
                        "workers": workers,
                        "makespan": np.mean([f["makespan"] for f in found]),
                        "over": np.mean(over),
                        "worst": max(over),
                        "over unit": np.mean([f["makespan"] / f["unit"] - 1 for f in found]),
                        "lost": np.mean([f["lost"] for f in found]),
                        "given up": sum(f["given_up"] for f in found),
                    }


def main() -> None:
    """Write the table as CSV, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for scheduling.csv")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    begun = time.monotonic()
    found = table({preset: Measured.of(preset) for preset in STUDIES}, options.seeds)
    options.out.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.out / "scheduling.csv", index=False, float_format="%.4g")
    print(found.round(3).to_string(index=False))
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
