"""A dataset with its published splits, and how a variant is trained and judged on it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prerank.datasets import SYNTHETIC, open_dataset, published_split
from prerank.datasets.collection import data_folder, find_table
from prerank.errors import InputError, NotApplicableError
from prerank.files.dataset_tables import content_hash
from prerank.models import MixtureNetwork, Network
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER, Dependency, PreRank, parse
from prerank.scores import variogram_score
from prerank.study.headed_runs import HeadedNetwork
from prerank.study.plans import HEAD, NONE, Plan
from prerank.study.published_runs import (
    evaluate_as_published,
    null_replicates,
    published_strength,
)
from prerank.training import (
    Checkpoint,
    Progress,
    Run,
    TrainingData,
    TrainingResult,
    evaluate,
    train_calibrated,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Problem", "check_datasets", "run_variant"]

Rows = list[dict[str, Any]]

AS_PUBLISHED: dict[str, Any] = {
    "fine_tune": False,
    "holdout_offset": False,
    "stop_on": "score",
    "last_batch": True,
    "gradient_bound": math.inf,
}


def check_datasets(names: Iterable[str]) -> None:
    """Refuse datasets that are not on this machine, before anything is trained.

    Example:
        >>> check_datasets(["ar1", "nonesuch"])
        Traceback (most recent call last):
        prerank.errors.InputError: datasets: there is no table of nonesuch in ...
    """
    missing = [n for n in names if n not in SYNTHETIC and not find_table(n).exists()]
    if missing:
        raise InputError(
            f"datasets: there is no table of {', '.join(missing)} in {data_folder()}. "
            "`prerank datasets list` says which there are, `show` how to get them, and `import` "
            "takes your own; PRERANK_DATA names another folder"
        )


class Problem:
    """Rows, splits and network of one dataset.

    Args:
        name: of the dataset.
        plan: for seeds and network.
        device: where to keep the rows.

    Attributes:
        content: hash of the rows: those of a name may be others another day.
        rows: row numbers of the parts that are looked at, `(splits, n)`; `"unseen"` are those that
            no gradient came from: validation and calibration rows.
    """

    def __init__(self, name: str, plan: Plan, device: torch.device | str = "cpu") -> None:
        table = open_dataset(name)
        self.name = name
        self.plan = plan
        self.content = content_hash(table)
        splits = [published_split(len(table.x), seed) for seed in plan.seeds]
        # Constant and rare one-hot columns put single rows far out; the published runs left them.
        clip = plan.protocol == "exact"
        pairs = [(split.train, split.validation) for split in splits]
        self.data = TrainingData.build(table.x, table.y, pairs, clip=clip, device=device)
        test = torch.stack([split.test for split in splits]).to(device)
        kept = torch.stack([split.calibration for split in splits]).to(device)
        validation = self.data.validation
        unseen = torch.cat([validation, kept], dim=1)
        self.rows = {"validation": validation, "test": test, "unseen": unseen}
        self.network = MixtureNetwork(
            table.x.shape[1], table.y.shape[1], plan.n_components, plan.hidden
        )

    @cached_property
    def preranks(self) -> tuple[PreRank, ...]:
        """Those of the paper that apply."""
        return tuple(prerank for prerank in PAPER if self._exact_obstacle(prerank) is None)

    @cached_property
    def published_preranks(self) -> tuple[PreRank, ...]:
        """Those to which the published runs had a form."""
        return tuple(prerank for prerank in PAPER if self.obstacle(prerank.label) is None)

    def obstacle(self, variant: str) -> str | None:
        """Why a variant cannot be had here; None where it can."""
        for prerank in () if variant in (NONE, HEAD) else parse(variant):
            # The published runs put another function in the place of two targets' dependency.
            replaced = isinstance(prerank, Dependency) and self.data.y.shape[-1] == 2
            if replaced and self.plan.protocol == "published":
                continue
            if (reason := self._exact_obstacle(prerank)) is not None:
                return reason
        return None

    def _exact_obstacle(self, prerank: PreRank) -> str | None:
        probe = self.network(self.network.initial(0)[None].to(self.data.x), self.data.x[:1, :1])
        try:
            prerank.check(probe)
        except NotApplicableError as reason:
            return str(reason)
        return None

    def runs(self, strengths: tuple[float, ...]) -> list[Run]:
        """Every strength with every seed, in this order."""
        return [
            Run(seed, split, strength)
            for strength in strengths
            for split, seed in enumerate(self.plan.seeds)
        ]

    def part(self, name: str, runs: list[Run]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one part, for each run: `(M, n, L)` and `(M, n, D)`."""
        return self.data.select(runs, self.rows[name])


def run_variant(
    problem: Problem,
    variant: str,
    *,
    base: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> "tuple[pd.DataFrame, Tensor]":
    """Train and judge one variant on one dataset.

    Args:
        problem: the dataset.
        variant: the penalty, `"head"` or `"none"`.
        base: parameters of the unpenalised runs, `(seeds, P)`, to start from; exact protocol only.
        checkpoint: from which interrupted training resumes.
        on_epoch: called after each epoch.

    Returns:
        One row for each run, part and pre-rank; and parameters `(seeds, P)`: the base, or what
        the published protocol trained without one.
    """
    import pandas as pd

    plan, published = problem.plan, problem.plan.protocol == "published"
    penalty = None
    strength: float | Sequence[float] | str = 0.0
    if variant != NONE:
        if base is None and not published:
            raise InputError(f"base: the variant {variant!r} starts from unpenalised parameters")
        if variant == HEAD and base is not None:
            return pd.DataFrame(_headed_rows(problem, base, checkpoint, on_epoch)), base
        form = CalibrationPenalty.published if published else CalibrationPenalty
        penalty = form(variant, n_samples=plan.n_samples, tau=plan.tau)
        strength = plan.strengths
        if published:  # which selects none
            named = isinstance(strength, str)
            strength = published_strength(problem.name, variant) if named else strength[0]
    training = train_calibrated(
        problem.network,
        problem.data,
        problem.runs((0.0,)),
        penalty=penalty,
        strength=strength,
        budget=plan.budget,
        n_samples=plan.n_samples,
        settings=replace(plan.training, **(AS_PUBLISHED if published else {})),
        base=base,
        checkpoint=checkpoint,
        on_epoch=on_epoch,
    )
    rows: Rows = []
    for runs, result in training.stages:
        exact = [
            row
            for part in (("test",) if published else ("validation", "test"))
            for row in _judged(problem, variant, runs, result, training.strength, part)
        ]
        rows += _published_rows(problem, variant, runs, result, exact) if published else exact
    last = training.stages[-1][1].theta
    return pd.DataFrame(rows), last if training.base is None else training.base


def _headed_rows(
    problem: Problem,
    base: Tensor,
    checkpoint: Checkpoint | None,
    on_epoch: Callable[[Progress], None] | None,
) -> Rows:
    """Test rows of the unpenalised runs, each behind a head that is fitted to its unseen rows."""
    rows: Rows = []
    runs = problem.runs((0.0,))
    for m, run in enumerate(runs):
        theta = base[m : m + 1]
        network = HeadedNetwork.fit(
            problem.network, problem.data, theta, run, problem.rows["unseen"][m], checkpoint
        )
        result = TrainingResult.untrained(theta)
        rows += _judged(problem, HEAD, [run], result, 0.0, "test", network)
        if on_epoch is not None:
            on_epoch(Progress(m + 1, len(runs), len(runs) - m - 1, len(runs), m + 1, part="head"))
    return rows


def _published_rows(
    problem: Problem, variant: str, runs: list[Run], result: TrainingResult, exact: Rows
) -> Rows:
    plan = problem.plan
    known = {(row["strength"], row["seed"], row["prerank"]): row for row in exact}
    x, y = problem.part("test", runs)
    published = evaluate_as_published(
        problem.network,
        result.theta,
        x,
        y,
        problem.published_preranks,
        n_samples=plan.n_samples,
        tau=plan.tau,
    )
    return [
        {
            # The dependency of two targets exists in the published form only.
            **(known.get((run.strength, run.seed, label)) or _about(variant, run, result, m)),
            "dataset": problem.name,
            "part": "test",
            "prerank": label,
            "selected": True,
            "published_pce": float(values[m]),
            "published_energy": float(published.energy[m]),
            "published_nll": float(published.nll[m]),
        }
        for label, values in published.pce.items()
        for m, run in enumerate(runs)
    ]


def _judged(
    problem: Problem,
    variant: str,
    runs: list[Run],
    result: TrainingResult,
    chosen: float,
    part: str,
    network: Network | None = None,
) -> Rows:
    """Exact calibration of every run; for the chosen ones also that of a calibrated predictor."""
    plan, network = problem.plan, network or problem.network
    x, y = problem.part(part, runs)
    judged = evaluate(network, result.theta, x, y, problem.preranks, n_samples=plan.n_samples)
    final = [part == "test" and run.strength == chosen for run in runs]
    variogram = [
        _variogram(network, run, plan.n_samples, *(t[m : m + 1] for t in (result.theta, x, y)))
        if final[m]
        else math.nan
        for m, run in enumerate(runs)
    ]
    rows: Rows = []
    for prerank in problem.preranks:
        label = prerank.label
        for m, run in enumerate(runs):
            curve = null = None
            if final[m]:
                curve = judged.curves[label][m].tolist()
                null = null_replicates(
                    network,
                    result.theta[m],
                    x[m],
                    y[m],
                    prerank,
                    n_samples=plan.n_samples,
                    n_null=plan.n_null,
                    seed=run.seed,  # of its own: the mean over runs takes them for independent
                )
            rows.append(
                {
                    **_about(variant, run, result, m),
                    "dataset": problem.name,
                    "part": part,
                    "prerank": label,
                    "selected": run.strength == chosen,
                    "pce": float(judged.pce[label][m]),
                    "floor": judged.floor,
                    "n": y.shape[1],
                    "energy": float(judged.energy[m]),
                    "nll": float(judged.nll[m]),
                    "variogram": variogram[m],
                    "curve": curve,
                    "null": None if null is None else null.tolist(),
                }
            )
    return rows


def _variogram(
    network: Network, run: Run, n_samples: int, theta: Tensor, x: Tensor, y: Tensor
) -> float:
    """Mean variogram score of one run, with parameters `(1, P)` and rows `(1, N, .)`."""
    with torch.no_grad():
        scores = variogram_score(network(theta, x), y, n_samples=n_samples, generator=run.seed)
    return float(scores.mean())


def _about(variant: str, run: Run, result: TrainingResult, m: int) -> dict[str, Any]:
    return {
        "variant": variant,
        "strength": run.strength,
        "seed": run.seed,
        "epochs": int(result.epochs[m]),
        "best_epoch": int(result.best_epoch[m]),
    }
