"""Small and odd problems: what the default fit and a selected penalty cost on fresh rows.

    python experiments/odd_problems.py --out docs/results/tables/odd_problems --workers 16
        [--minutes 8] [--seeds 10]

Thirty problems with 50 to 400 rows: pure noise, heavy tails, binary targets and counts, targets
without noise, constant and repeated columns and rows, one input, one target. For each seed, a
`MixtureRegressor` is fitted by the default method, by a penalty whose strength is selected, and by
likelihood alone, and judged on 2,000 fresh rows from the same distribution:

- `nll`: mean negative log-likelihood, in the units of the problem. Where targets are discrete, that
  of the spread targets, for they have no density.
- `energy`: mean energy score, with targets in standard deviations of the training rows.
- `excess`: mean signed excess over the pre-ranks that apply.

`base_nll`, `base_energy` and `base_excess` are those of the same networks without head or penalty.
`problems.csv` in the folder gets one line for each problem, seed and method; lines that stand are
not computed again. The end prints the differences from likelihood alone, as Markdown, and puts them
into the page of results.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing import TimeoutError as OutOfTime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from marked_pages import filled
from prerank import MixtureRegressor, energy_score, nll, pce, pce_floor
from prerank.distributions import Rounded, affine
from prerank.pits import project_pits
from prerank.preranks import applicable

PAGE = Path(__file__).parents[1] / "docs" / "results" / "odd_problems.md"
FRESH_ROWS = 2_000
NLL_LIMIT, ENERGY_LIMIT = 0.02, 0.01
METHODS: dict[str, dict[str, Any]] = {
    "none": {"method": "none"},
    "default": {},
    "network": {"method": "network", "strength": "auto"},
}

Array = npt.NDArray[np.float64]
Rows = tuple[Array, Array]
Truth = Callable[[int, np.random.Generator], Rows]


def about(mean: Callable[[Array], Array], noise: Callable[..., Array], inputs: int) -> Truth:
    """Y = mean(X) + noise(X, draw) with standard normal inputs `(n, inputs)`."""

    def truth(n: int, draw: np.random.Generator) -> Rows:
        x = draw.normal(size=(n, inputs))
        return x, mean(x) + noise(x, draw)

    return truth


def normal(targets: int, scale: float = 1.0) -> Callable[..., Array]:
    """Independent normal noise `(n, targets)`."""
    return lambda x, draw: scale * draw.normal(size=(len(x), targets))


def student(targets: int, freedom: float) -> Callable[..., Array]:
    """Independent noise of Student's distribution; Cauchy's with one degree of freedom."""
    return lambda x, draw: draw.standard_t(freedom, size=(len(x), targets))


def first(x: Array) -> Array:
    """The first input, `(n, 1)`."""
    return x[:, :1]


def nothing(x: Array) -> Array:
    """A mean of 0, `(n, 1)`."""
    return 0 * x[:, :1]


def curves(x: Array) -> Array:
    """Two smooth functions of two inputs."""
    return np.column_stack([np.sin(2 * x[:, 0]), x[:, 0] * x[:, 1]])


def columns(*parts: Callable[[Array, np.random.Generator], Array], inputs: int = 2) -> Truth:
    """Targets one by one, each from inputs `(n, inputs)` and noise of its own."""

    def truth(n: int, draw: np.random.Generator) -> Rows:
        x = draw.normal(size=(n, inputs))
        return x, np.column_stack([part(x, draw) for part in parts])

    return truth


def binary(x: Array, draw: np.random.Generator, offset: float = 0.0) -> Array:
    """0 or 1 with the odds exp(offset + 2 x)."""
    return 1.0 * (draw.random(len(x)) < 1 / (1 + np.exp(-offset - 2 * x[:, 0])))


def poisson(x: Array, draw: np.random.Generator, mean: float = 2.0) -> Array:
    """Counts with the mean `mean` exp(x / 2)."""
    return 1.0 * draw.poisson(mean * np.exp(x[:, 0] / 2))


def grades(x: Array, draw: np.random.Generator) -> Array:
    """Five ordered values."""
    return np.clip(np.round(x[:, 0] + draw.normal(size=len(x))), -2, 2)


def line(x: Array, draw: np.random.Generator) -> Array:
    """A target with normal noise."""
    return x[:, 0] + draw.normal(size=len(x))


def contaminated(x: Array, draw: np.random.Generator) -> Array:
    """Noise of which one row in twenty is ten times as wide."""
    wide = np.where(draw.random((len(x), 1)) < 0.05, 10.0, 1.0)
    return wide * draw.normal(size=(len(x), 2))


def uneven(x: Array, draw: np.random.Generator) -> Array:
    """Noise whose width depends on the first input."""
    return np.exp(0.7 * x[:, :1]) * draw.normal(size=(len(x), 2))


def lognormal(x: Array, draw: np.random.Generator) -> Array:
    """Skewed noise."""
    return np.exp(1.5 * draw.normal(size=(len(x), 1)))


def two_ways(x: Array, draw: np.random.Generator) -> Array:
    """Noise with two narrow modes."""
    return 2.0 * draw.choice([-1, 1], (len(x), 1)) + 0.3 * draw.normal(size=(len(x), 1))


def copied(truth: Truth, factors: list[float]) -> Truth:
    """The first target again, times each of the factors."""

    def doubled(n: int, draw: np.random.Generator) -> Rows:
        x, y = truth(n, draw)
        return x, y[:, :1] * np.array(factors)

    return doubled


def repeated(truth: Truth, times: int) -> Truth:
    """Every row several times."""

    def several(n: int, draw: np.random.Generator) -> Rows:
        x, y = truth(-(-n // times), draw)
        return x.repeat(times, 0)[:n], y.repeat(times, 0)[:n]

    return several


def constant_inputs(truth: Truth) -> Truth:
    """All rows with the same inputs."""

    def blind(n: int, draw: np.random.Generator) -> Rows:
        x, y = truth(n, draw)
        return np.ones_like(x), y

    return blind


PROBLEMS: dict[str, tuple[int, Truth]] = {
    "noise, 50 rows": (50, about(nothing, normal(2), 3)),
    "noise, 200 rows": (200, about(nothing, normal(2), 3)),
    "noise, 4 targets": (400, about(nothing, normal(4), 5)),
    "noise, 20 inputs": (100, about(nothing, normal(1), 20)),
    "cauchy noise": (100, about(nothing, student(1, 1), 2)),
    "cauchy about a line": (400, about(first, student(2, 1), 2)),
    "student 2": (200, about(first, student(2, 2), 2)),
    "student 3": (300, about(first, student(3, 3), 3)),
    "lognormal": (200, about(first, lognormal, 2)),
    "outliers": (400, about(first, contaminated, 2)),
    "binary, 100 rows": (100, columns(binary)),
    "two binary": (400, columns(binary, lambda x, draw: binary(-x, draw))),
    "binary beside a line": (200, columns(binary, line)),
    "rare": (400, columns(lambda x, draw: binary(x, draw, -4.0))),
    "counts": (300, columns(poisson, line)),
    "small counts": (100, columns(lambda x, draw: poisson(x, draw, 0.3))),
    "grades": (200, columns(grades, grades)),
    "zeros and a tail": (300, columns(lambda x, draw: np.maximum(line(x, draw), 0), line)),
    "deterministic line": (100, about(first, lambda x, draw: 0 * x[:, :1], 2)),
    "deterministic curves": (400, about(curves, lambda x, draw: 0 * x[:, :2], 2)),
    "nearly deterministic": (200, about(curves, normal(2, 1e-3), 2)),
    "constant target": (100, columns(lambda x, draw: np.full(len(x), 3.0), line)),
    "constant inputs": (100, constant_inputs(about(nothing, normal(2), 2))),
    "equal targets": (200, copied(about(first, normal(1), 2), [1.0, 1.0])),
    "proportional targets": (400, copied(about(first, normal(1), 2), [1.0, -3.0])),
    "every row four times": (200, repeated(about(first, normal(2), 2), 4)),
    "one input, 50 rows": (50, about(first, normal(1), 1)),
    "uneven widths": (200, about(first, uneven, 1)),
    "one input, 6 targets": (150, about(first, normal(6), 1)),
    "two modes": (200, about(first, two_ways, 1)),
}


def judged(model: MixtureRegressor, x: Array, y: Array, scale: Array, seed: int) -> dict[str, Any]:
    """Scores of a fitted model on fresh rows."""
    dist = model.predict_dist(x)
    continuous = dist.base if isinstance(dist, Rounded) else dist
    factor = torch.as_tensor(1 / scale)
    scaled = affine(dist, torch.zeros_like(factor), factor)
    observed = factor * torch.as_tensor(y)
    results = project_pits(scaled, observed, applicable("all", scaled)[0], generator=seed)
    return {
        "nll": float(nll(continuous, model.rounding_.spread(y, generator=seed)).mean()),
        "energy": float(energy_score(scaled, observed, generator=seed).mean()),
        "excess": float(np.mean([float(pce(r.z).mean()) for r in results])) - pce_floor(len(y)),
    }


def record(task: tuple[str, int, str]) -> dict[str, Any]:
    """The line of one fit."""
    name, seed, method = task
    torch.set_num_threads(1)
    rows, truth = PROBLEMS[name]
    draw = np.random.default_rng([list(PROBLEMS).index(name), seed])
    x, y = truth(rows, draw)
    new_x, new_y = truth(FRESH_ROWS, draw)
    spread = y.std(0)
    scale = np.where(spread > 0, spread, 1.0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of selections that choose nothing
        model = MixtureRegressor(**METHODS[method], device="cpu", random_state=seed).fit(x, y)
        seconds = time.perf_counter() - started
        scores = judged(model, new_x, new_y, scale, seed)
        base = judged(model.without_penalty(), new_x, new_y, scale, seed)
    levels = () if model.head_ is None else sorted(model.head_.change_.active)
    return {
        "problem": name,
        "seed": seed,
        "method": method,
        "rows": rows,
        **scores,
        **{f"base_{score}": value for score, value in base.items()},
        "strength": model.strength_,
        "levels": "+".join(levels) or "none",
        "seconds": round(seconds, 2),
    }


def differences(table: pd.DataFrame, method: str) -> pd.DataFrame:
    """Of each problem and seed: what the method adds to likelihood alone."""
    keys = ["problem", "seed"]
    own, plain = (
        table[table.method == name].set_index(keys)[["nll", "energy", "excess"]]
        for name in (method, "none")
    )
    own, plain = own.align(plain, join="inner", axis=0)
    added = own - plain
    return added.assign(energy=added.energy / plain.energy.abs())


def markdown(table: pd.DataFrame, method: str) -> str:
    """Means over seeds for each problem, with the worst seed; the last line is that of all."""
    added = differences(table, method)
    lines = [
        f"| {method} | seeds | NLL | worst | energy | worst | excess |",
        "|:---|---:|---:|---:|---:|---:|---:|",
    ]
    groups = [(name, added.loc[[name]]) for name in PROBLEMS if name in added.index]
    for name, some in [*groups, ("all", added)]:
        mean, worst = some.mean(), some.max()
        lines.append(
            f"| {name} | {len(some)} | {mean.nll:+.4f} | {worst.nll:+.4f} "
            f"| {mean.energy:+.2%} | {worst.energy:+.2%} | {mean.excess:+.4f} |"
        )
    means = added.groupby("problem").mean()
    over = [
        f"{name} ({row.nll:+.3f}, {row.energy:+.1%})"
        for name, row in means.iterrows()
        if row.nll > NLL_LIMIT or row.energy > ENERGY_LIMIT
    ]
    lines.append(f"\nbeyond {NLL_LIMIT} nats or {ENERGY_LIMIT:.0%}: {', '.join(over) or 'none'}\n")
    return "\n".join(lines)


def page_tables(table: pd.DataFrame) -> dict[str, Callable[[], str]]:
    """Tables of the page by their markers."""
    return {name: partial(markdown, table, name) for name in ("default", "network")}


def main() -> None:
    """Fit what the folder does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "problems.csv"
    lines = pd.read_csv(path).to_dict("records") if path.exists() else []
    known = {(line["problem"], line["seed"], line["method"]) for line in lines}
    # The selection takes longest: it comes last.
    tasks = [
        task
        for method in METHODS
        for seed in range(options.seeds)
        for name in options.problems
        if method in options.methods and (task := (name, seed, method)) not in known
    ]
    with get_context("spawn").Pool(options.workers) as pool:  # which ends what is left over
        results = pool.imap_unordered(record, tasks)
        for _ in tasks:
            try:
                lines.append(results.next(max(0.0, min(until - time.monotonic(), 1e6))))
            except OutOfTime:
                print(f"time is up: {len(lines)} lines", flush=True)
                break
            last = pd.DataFrame(lines[-1:])
            last.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.6g")
    PAGE.write_text(filled(PAGE.read_text(), page_tables(pd.DataFrame(lines))))
    print("\n".join(markdown(pd.DataFrame(lines), name) for name in ("default", "network")))


if __name__ == "__main__":
    main()
