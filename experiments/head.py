"""The calibration head against the forecasts it is put behind, its prototype and recalibration.

    PRERANK_DATA=data python experiments/head.py --out head [--datasets air house] [--device cuda]

For each dataset the published network is trained on the likelihood, five members for each of the
five published seeds, all in one stack. Each forecast (`base`: one member; `ensemble`: five) is
judged on test rows as it is and behind every method, which is fitted to the validation and the
calibration rows (`head, validation` to the validation rows alone). `rivals.py` has the methods of
others, which are tried behind one member. An ensemble of samples has no density: its likelihood
and hdr are left out. Each dataset leaves one CSV file with a line for every seed, forecast, method
and pre-rank, written after each seed; seeds that it has are not computed again. `--methods` takes
some of the methods; other ones then need another folder.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from prerank import (
    CalibrationHead,
    CalibrationPenalty,
    Ensemble,
    GaussianMixture,
    energy_score,
    nll,
    pce,
    pce_floor,
    variogram_score,
)
from prerank.datasets import (
    DATASETS,
    PUBLISHED_SEEDS,
    Split,
    Table,
    load_table,
    published_split,
)
from prerank.distributions import Rounded
from prerank.errors import NotApplicableError
from prerank.models import MixtureNetwork
from prerank.pits import project_pits
from prerank.preranks import PreRank, Projection, applicable, parse
from prerank.training import Run, Settings, TrainingData, train
from rivals import Fit, rivals
from tilting import rows_of

MAX_ROWS, TEST_ROWS, MEMBERS = 20_000, 3_000, 5
FORECASTS = {"base": 1, "ensemble": MEMBERS}
POOLED = ("none", "prototype", "head")  # methods behind the ensemble
UNSEEN = "average_rank+band_depth+energy_score"
DIRECTIONS = 20


class Prototype(nn.Module):
    """The first form of the head: copies with widths and shifts, fitted by 150 steps of Adam."""

    def __init__(self, targets: int, copies: int = 4) -> None:
        super().__init__()
        wide = torch.full((copies, targets), 0.5)
        wide[0] = 0
        self.weights = nn.Parameter(torch.tensor([0.0] + [-2.0] * (copies - 1)))
        self.widths, self.shifts = nn.Parameter(wide), nn.Parameter(torch.zeros(copies, targets))
        self.contraction = nn.Parameter(torch.zeros(targets))
        self.temperature, self.coupling = (nn.Parameter(torch.zeros(())) for _ in range(2))

    def forward(self, base: GaussianMixture) -> GaussianMixture:
        """The changed mixture."""
        mean, sd = base.mean.unsqueeze(-2), base.variance.sqrt().unsqueeze(-2)
        diagonal = torch.diag_embed(base.scale_tril.diagonal(dim1=-2, dim2=-1))
        tril = self.coupling.exp() * base.scale_tril.tril(-1) + diagonal
        loc = mean + self.contraction.exp() * (base.loc - mean)
        logits = torch.log_softmax(self.temperature.exp() * base.logits, -1)
        shares = torch.log_softmax(self.weights, -1)
        parts = list(zip(shares, self.shifts, self.widths.exp(), strict=True))
        return GaussianMixture(
            torch.cat([logits + share for share, _, _ in parts], -1),
            torch.cat([loc + shift * sd for _, shift, _ in parts], -2),
            torch.cat([width.unsqueeze(-1) * tril for _, _, width in parts], -3),
            validate_args=False,
        )

    def fit(self, dist: GaussianMixture, y: Tensor, seed: int) -> "Prototype":
        """150 steps of 512 rows."""
        self.to(y.device)
        penalty = CalibrationPenalty("all")
        optimiser = torch.optim.Adam(self.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 150)
        draw = torch.Generator().manual_seed(seed)
        for step in range(150):
            rows = torch.randperm(len(y), generator=draw)[:512].to(y.device)
            some = rows_of(dist, rows)
            changed = self(some)
            loss = -changed.log_prob(y[rows]).clamp(min=-50).mean()
            loss = loss + 10 * penalty(changed, y[rows], generator=step)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return self.requires_grad_(requires_grad=False)


def _head(**options: Any) -> Fit:
    return lambda dist, y, seed: CalibrationHead(seed=seed, **options).fit(dist, y)


FITTED = ("validation", "calibration")
METHODS: dict[str, tuple[Fit | None, tuple[str, ...]]] = {
    "none": (None, ()),
    "prototype": (lambda dist, y, seed: Prototype(y.shape[-1]).fit(dist, y, seed), FITTED),
    "head": (_head(), FITTED),
    "head, likelihood": (_head(strength=0), FITTED),
    "head, validation": (_head(), ("validation",)),
}

# Only where it is asked for: the difference of the prototype from itself, with other batches.
NOISE: dict[str, tuple[Fit | None, tuple[str, ...]]] = {
    "prototype again": (
        lambda dist, y, seed: Prototype(y.shape[-1]).fit(dist, y, seed + 10_000),
        FITTED,
    ),
}


def capped(name: str, most: int = MAX_ROWS) -> Table:
    """A dataset, at most so many of its rows, in their order."""
    table = load_table(name)
    order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(0))
    rows = order[:most].sort().values.numpy()
    return replace(table, x=table.x[rows], y=table.y[rows])


class Problem:
    """A table with a split for each seed, and networks that are trained on the likelihood.

    Args:
        table: inputs and targets.
        splits: one for each seed.
        seeds: of the networks.
        device: where to train.
    """

    def __init__(
        self,
        table: Table,
        splits: list[Split],
        seeds: tuple[int, ...],
        device: str,
    ) -> None:
        self.name, self.splits, self.seeds = table.name, splits, seeds
        pairs = [(split.train, split.validation) for split in splits]
        self.data = TrainingData.build(table.x, table.y, pairs, device=device)
        self.network = MixtureNetwork(table.x.shape[1], table.y.shape[1])
        runs = [Run(seed + 1000 * k, m) for m, seed in enumerate(seeds) for k in range(MEMBERS)]
        self.theta = train(self.network, self.data, runs, settings=Settings()).theta

    @classmethod
    def published(cls, name: str, seeds: tuple[int, ...], device: str) -> Self:
        """At most `MAX_ROWS` rows of a dataset, with the published splits."""
        table = capped(name)
        return cls(table, [published_split(len(table.x), seed) for seed in seeds], seeds, device)

    def rows(self, split: int, parts: tuple[str, ...]) -> Tensor:
        """Rows of parts of a split, in their order."""
        rows = torch.cat([torch.as_tensor(getattr(self.splits[split], part)) for part in parts])
        return (rows[:TEST_ROWS] if parts == ("test",) else rows).to(self.data.x.device)

    def methods(self, split: int) -> dict[str, tuple[Fit | None, tuple[str, ...]]]:
        """`METHODS`, and the rivals for the inputs of a split."""
        known, new = (self.data.x[split, self.rows(split, parts)] for parts in (FITTED, ("test",)))
        return METHODS | {name: (fit, FITTED) for name, fit in rivals(known, new).items()}

    def forecast(self, split: int, members: int, parts: tuple[str, ...]) -> tuple[Any, Tensor]:
        """One mixture of the first members, and the observations, for parts of a split."""
        rows = self.rows(split, parts)
        x = self.data.x[split, rows].expand(members, -1, -1)
        first = split * MEMBERS
        with torch.no_grad():
            stack = self.network(self.theta[first : first + members], x)
        dist = GaussianMixture(
            stack.logits.movedim(0, -2).flatten(-2),
            stack.loc.movedim(0, -3).flatten(-3, -2),
            stack.scale_tril.movedim(0, -4).flatten(-4, -3),
        )
        return dist, self.data.y[split, rows]


def judged_preranks(dist: Distribution, y: Tensor) -> tuple[PreRank, ...]:
    """Those of the paper that apply, those that no head sees, and random directions."""
    directions = torch.randn(DIRECTIONS, y.shape[-1], generator=torch.Generator().manual_seed(0))
    unit = nn.functional.normalize(directions, dim=-1).to(y)
    return (*applicable("all", dist)[0], *parse(UNSEEN), Projection(unit))


def judge(dist: Distribution, y: Tensor, seed: int) -> Iterator[dict[str, Any]]:
    """Signed excess and unbiased squared error of every pre-rank that applies."""
    n = len(y)
    levels = torch.linspace(0, 1, 100, dtype=y.dtype, device=y.device)
    for result in project_pits(dist, y, judged_preranks(dist, y), generator=seed):
        label = "directions" if isinstance(result.prerank, Projection) else result.prerank.label
        frequency = (result.z.unsqueeze(-1) <= levels).to(y.dtype).mean(0)  # (J, levels)
        squared = (frequency - levels).square() - frequency * (1 - frequency) / (n - 1)
        yield {
            "prerank": label,
            "excess": float(pce(result.z).mean()) - pce_floor(n),
            "squared": float(squared.mean()),
            "ties": float(result.ties.mean()),
        }


def scores(dist: Distribution, y: Tensor, before: Tensor, seed: int) -> dict[str, float]:
    """Scores, and the change of the likelihood by row: mean, trimmed by 1 %, median."""
    loss = (
        torch.full_like(before, torch.nan) if isinstance(dist, Ensemble | Rounded) else nll(dist, y)
    )
    change = (loss - before).sort().values
    cut = len(change) // 100
    return {
        "nll": float(loss.mean()),
        "nll_change": float(change.mean()),
        "nll_change_trimmed": float(change[cut : len(change) - cut].mean()),
        "nll_change_median": float(change.median()),
        "energy": float(energy_score(dist, y, generator=seed).mean()),
        "variogram": float(variogram_score(dist, y, generator=seed).mean()),
    }


def records(
    name: str, seeds: tuple[int, ...], device: str, methods: list[str] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """The lines of one dataset, for all methods or some, seed by seed."""
    problem = Problem.published(name, seeds, device)
    for split, seed in enumerate(seeds):
        lines: list[dict[str, Any]] = []
        available = problem.methods(split)
        for forecast, members in FORECASTS.items():
            test, y = problem.forecast(split, members, ("test",))
            before = nll(test, y)
            for method in methods or available:
                if members > 1 and method not in POOLED:
                    continue
                fit, parts = (available | NOISE)[method]
                begun = time.perf_counter()
                change: Any = None
                if fit is not None:
                    change = fit(*problem.forecast(split, members, parts), seed)
                seconds = time.perf_counter() - begun
                dist = test if change is None else change(test)
                about = {"dataset": name, "seed": seed, "forecast": forecast, "method": method}
                try:
                    about |= {"rows": len(y), "seconds": seconds, **scores(dist, y, before, seed)}
                    lines += [about | row for row in judge(dist, y, seed)]
                except NotApplicableError as error:  # a rival that cannot be sampled from
                    print(f"{name}, seed {seed}: {method} is left out: {error}", flush=True)
        yield lines


def completed(
    path: Path, seeds: list[int], make: Callable[..., Iterator[list[dict[str, Any]]]]
) -> pd.DataFrame:
    """The lines of a file, after those of the seeds that it lacks were made and written."""
    table = pd.read_csv(path) if path.exists() else pd.DataFrame({"seed": []})
    left = tuple(seed for seed in seeds if seed not in set(table.seed))
    for lines in make(seeds=left) if left else ():
        made = pd.DataFrame(lines)
        table = made if table.empty else pd.concat([table, made], ignore_index=True)
        table.to_csv(path, index=False, float_format="%.6g")
    return table


def main() -> None:
    """Compute every dataset that has no file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--datasets", nargs="+", default=[data.name for data in DATASETS if data.content]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=list(PUBLISHED_SEEDS))
    parser.add_argument("--device", default="cpu")
    known = [*METHODS, *NOISE, *rivals(torch.empty(0), torch.empty(0))]
    parser.add_argument("--methods", nargs="+", choices=known, help="default: all but the noise")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        begun = time.perf_counter()
        make = partial(records, name, device=options.device, methods=options.methods)
        table = completed(options.out / f"{name}.csv", options.seeds, make)
        mean = table[table.prerank != "directions"].groupby(["forecast", "method"]).excess.mean()
        print(f"{name}: {time.perf_counter() - begun:.0f} s", mean.round(4).to_dict(), flush=True)


if __name__ == "__main__":
    main()
