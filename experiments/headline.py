"""The paper's penalty and its rivals on the same rows: penalties, recalibration, heads, ensembles.

    PRERANK_DATA=data python experiments/headline.py --out headline [--datasets air] [--device cuda]

Networks are those of `head.py`: the published one, trained on the likelihood, five members for each
of the five published seeds. Two penalties are added, both of `marginal+hdr`: `paper`, trained as
published (relaxed samples, strength 10, stopped on the likelihood); and `exact`, the default one,
fine-tuned from the first member, with one strength for all seeds that the validation rows choose.
Recalibrators and heads are fitted to the validation and the calibration rows.

Forecasts are judged on test rows as they are and, where targets are discrete, rounded to the values
of the training rows. Rounded forecasts have no density, so neither a likelihood nor hdr. Each
dataset leaves one CSV file with a line for every seed, forecast, method, judged form and pre-rank,
written after each seed; seeds that it has are not computed again. Seconds are those of what is done
beyond the training on the likelihood, for one seed.
"""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

import head
from discrete import DATASETS as DISCRETE
from head import FITTED, METHODS, completed, judge, scores
from prerank import CalibrationPenalty, GaussianMixture, nll
from prerank.datasets import DATASETS, PUBLISHED_SEEDS, Table
from prerank.defaults import PENALTY_PRERANKS
from prerank.distributions import round_to
from prerank.recalibration import HDRRecalibrator, MarginalRecalibrator
from prerank.study.protocols import AS_PUBLISHED
from prerank.study.published_runs import published_strength
from prerank.training import Run, Settings, train_calibrated

FITS: dict[str, head.Fit | None] = {
    "none": None,
    "margins": lambda dist, y, seed: MarginalRecalibrator(generator=seed).fit(dist, y),
    "regions": lambda dist, y, seed: HDRRecalibrator(generator=seed).fit(dist, y),
    "head": METHODS["head"][0],
}
BEHIND = {
    "base": tuple(FITS),
    "paper": ("none",),
    "exact": tuple(FITS),
    "ensemble": ("none", "head"),
}


class Problem(head.Problem):
    """A dataset with the networks of `head.py`, and those of two penalties."""

    def __init__(self, table: Table, *where: Any, **options: Any) -> None:
        super().__init__(table, *where, **options)
        published = {
            "penalty": CalibrationPenalty.published(PENALTY_PRERANKS),
            "strength": published_strength(self.name, PENALTY_PRERANKS),
            "settings": Settings(**AS_PUBLISHED),
        }
        exact = {
            "penalty": CalibrationPenalty(PENALTY_PRERANKS),
            "base": self.theta[:: head.MEMBERS],
        }
        self.penalised: dict[str, Tensor] = {}
        self.about: dict[str, dict[str, float]] = {}
        for kind, training in (("paper", published), ("exact", exact)):
            begun = time.perf_counter()
            found = train_calibrated(
                self.network,
                self.data,
                [Run(seed, split) for split, seed in enumerate(self.seeds)],
                **training,
            )
            self.penalised[kind] = found.trained[found.strength].theta
            seconds = (time.perf_counter() - begun) / len(self.seeds)
            self.about[kind] = {"strength": found.strength, "seconds": seconds}

    def named(self, forecast: str, split: int, parts: tuple[str, ...]) -> tuple[Any, Tensor]:
        """The forecast of a name, and the observations, for parts of a split."""
        if forecast not in self.penalised:
            return self.forecast(split, head.FORECASTS[forecast], parts)
        rows = self.rows(split, parts)
        theta = self.penalised[forecast][split : split + 1]
        with torch.no_grad():
            stack = self.network(theta, self.data.x[split : split + 1, rows])
        dist = GaussianMixture(stack.logits[0], stack.loc[0], stack.scale_tril[0])
        return dist, self.data.y[split, rows]

    def forms(self, dist: Distribution, split: int) -> Iterator[tuple[str, Distribution]]:
        """A forecast as it is and, where targets are discrete, rounded to their values."""
        yield "density", dist
        if self.name in DISCRETE:
            yield "values", round_to(dist, self.data.y[split, self.rows(split, ("train",))])


def records(
    name: str, seeds: tuple[int, ...], trained: tuple[int, ...], device: str
) -> Iterator[list[dict[str, Any]]]:
    """The lines of some seeds of one dataset; all are trained, since they share one strength."""
    yield from judged(Problem.published(name, trained, device), seeds=seeds)


def judged(
    problem: Problem,
    behind: dict[str, tuple[str, ...]] | None = None,
    seeds: tuple[int, ...] | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """The lines of one problem, by seed: `BEHIND` each forecast and for all seeds by default."""
    for split, seed in enumerate(problem.seeds):
        if seeds is not None and seed not in seeds:
            continue
        lines: list[dict[str, Any]] = []
        before = nll(*problem.named("base", split, ("test",)))
        for forecast, methods in (behind or BEHIND).items():
            test, y = problem.named(forecast, split, ("test",))
            for method in methods:
                fit, begun = FITS[method], time.perf_counter()
                dist = test
                if fit is not None:
                    dist = fit(*problem.named(forecast, split, FITTED), seed)(test)
                seconds = time.perf_counter() - begun
                about = {
                    "dataset": problem.name,
                    "seed": seed,
                    "forecast": forecast,
                    "method": method,
                }
                about |= {"rows": len(y), "strength": 0.0, "seconds": seconds}
                about |= problem.about.get(forecast, {})
                for kind, form in problem.forms(dist, split):
                    about |= {"judged": kind, **scores(form, y, before, seed)}
                    lines += [about | row for row in judge(form, y, seed)]
        yield lines


def main() -> None:
    """Compute every seed that has no lines yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    named = [data.name for data in DATASETS if data.content]
    parser.add_argument("--datasets", nargs="+", default=named)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        begun = time.perf_counter()
        make = partial(records, name, trained=tuple(options.seeds), device=options.device)
        table = completed(options.out / f"{name}.csv", options.seeds, make)
        print(f"{name}, {len(table)} lines: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
