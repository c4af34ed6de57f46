"""How a variant is trained and judged: exactly, or as in the published runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.errors import InputError
from prerank.penalty import CalibrationPenalty
from prerank.study.paper import published_strength
from prerank.study.plans import NONE
from prerank.study.problems import Problem
from prerank.study.published_evaluation import evaluate_as_published, null_replicates
from prerank.training import (
    Checkpoint,
    Progress,
    Run,
    TrainingResult,
    evaluate,
    train_calibrated,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["run_variant"]

Rows = list[dict[str, Any]]

_PUBLISHED: dict[str, Any] = {
    "fine_tune": False,
    "holdout_offset": False,
    "stop_on": "score",
    "last_batch": True,
    "gradient_bound": math.inf,
}


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
        variant: the penalty, or `"none"`.
        base: parameters of the unpenalised runs, `(seeds, P)`, to go on from; exact protocol only.
        checkpoint: from which training that was broken off goes on.
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
            raise InputError("base: a penalised variant goes on from unpenalised parameters")
        form = CalibrationPenalty.published if published else CalibrationPenalty
        penalty = form(variant, n_samples=plan.n_samples, tau=plan.tau)
        strength = _given_strength(problem, variant) if published else plan.strengths
    training = train_calibrated(
        problem.network,
        problem.data,
        problem.runs((0.0,)),
        penalty=penalty,
        strength=strength,
        budget=plan.budget,
        n_samples=plan.n_samples,
        settings=replace(plan.training, **(_PUBLISHED if published else {})),
        base=base,
        checkpoint=checkpoint,
        on_epoch=on_epoch,
    )
    judge = _published_rows if published else _exact_rows
    rows = [
        row
        for runs, result in training.stages
        for row in judge(problem, variant, runs, result, training.strength)
    ]
    last = training.stages[-1][1].theta
    return pd.DataFrame(rows), last if training.base is None else training.base


def _given_strength(problem: Problem, variant: str) -> float:
    """The strength of the published protocol, which selects none."""
    strengths = problem.plan.strengths
    if isinstance(strengths, str):
        return published_strength(problem.name, variant)
    return strengths[0]


def _published_rows(
    problem: Problem, variant: str, runs: list[Run], result: TrainingResult, chosen: float
) -> Rows:
    plan = problem.plan
    exact = {
        (row["strength"], row["seed"], row["prerank"]): row
        for row in _judged(problem, variant, runs, result, chosen, "test")
    }
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
            **(exact.get((run.strength, run.seed, label)) or _about(variant, run, result, m)),
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


def _exact_rows(
    problem: Problem, variant: str, runs: list[Run], result: TrainingResult, chosen: float
) -> Rows:
    return [
        row
        for part in ("validation", "test")
        for row in _judged(problem, variant, runs, result, chosen, part)
    ]


def _judged(
    problem: Problem,
    variant: str,
    runs: list[Run],
    result: TrainingResult,
    chosen: float,
    part: str,
) -> Rows:
    """Exact calibration of every run; for the chosen ones also that of a calibrated predictor."""
    plan, network = problem.plan, problem.network
    x, y = problem.part(part, runs)
    judged = evaluate(network, result.theta, x, y, problem.preranks, n_samples=plan.n_samples)
    rows: Rows = []
    for prerank in problem.preranks:
        label = prerank.label
        for m, run in enumerate(runs):
            curve = null = None
            if part == "test" and run.strength == chosen:
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
                    "curve": curve,
                    "null": None if null is None else null.tolist(),
                }
            )
    return rows


def _about(variant: str, run: Run, result: TrainingResult, m: int) -> dict[str, Any]:
    return {
        "variant": variant,
        "strength": run.strength,
        "seed": run.seed,
        "epochs": int(result.epochs[m]),
        "best_epoch": int(result.best_epoch[m]),
    }
