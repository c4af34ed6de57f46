"""How a variant is trained and judged: exactly, or as in the published runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from prerank.errors import InputError
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PreRank, parse
from prerank.study.paper import published_strength
from prerank.study.plans import NONE
from prerank.study.problems import Problem
from prerank.study.published_evaluation import evaluate_as_published, null_replicates
from prerank.training import (
    Checkpoint,
    Objective,
    Progress,
    Run,
    TrainingResult,
    Trial,
    evaluate,
    search_strength,
    train,
    validation_trials,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["carry_out"]

Rows = list[dict[str, Any]]


def carry_out(
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
        checkpoint: a file to go on from where training is broken off.
        on_epoch: called after each epoch.

    Returns:
        One row for each run, part and pre-rank; and, for `"none"`, the parameters `(seeds, P)`.
    """
    import pandas as pd

    options: Any = {"checkpoint": checkpoint, "on_epoch": on_epoch}
    if problem.plan.protocol == "published":
        rows, theta = _published(problem, variant, options)
    else:
        rows, theta = _exact(problem, variant, base, options)
    return pd.DataFrame(rows), theta


def _published(problem: Problem, variant: str, options: Any) -> tuple[Rows, Tensor]:
    plan = problem.plan
    settings = replace(
        plan.training,
        fine_tune=False,
        shift=False,
        stop_on="score",
        last_batch=True,
        gradient_bound=math.inf,
    )
    penalty = None
    strengths: tuple[float, ...] = (0.0,)
    if variant != NONE:
        penalty = CalibrationPenalty.published(variant, n_samples=plan.n_samples, tau=plan.tau)
        if isinstance(plan.strengths, str):
            strengths = (published_strength(problem.name, variant),)
        else:
            strengths = plan.strengths
    runs = problem.runs(strengths)
    result = train(
        problem.network,
        problem.data,
        runs,
        objective=Objective(penalty),
        settings=settings,
        **options,
    )
    rows = _judged(problem, variant, runs, result, "test", [run.strength for run in runs])
    x, y = problem.part("test", runs)
    found = evaluate_as_published(
        problem.network,
        result.theta,
        x,
        y,
        problem.published_preranks,
        n_samples=plan.n_samples,
        tau=plan.tau,
    )
    exact = {(row["strength"], row["seed"], row["prerank"]): row for row in rows}
    complete: Rows = []
    for label, values in found.pce.items():
        for m, run in enumerate(runs):
            # The dependency of two targets exists in the published form only.
            row = exact.get((run.strength, run.seed, label)) or _about(variant, run, result, m)
            complete.append(
                {
                    **row,
                    "dataset": problem.name,
                    "part": "test",
                    "prerank": label,
                    "selected": True,
                    "published_pce": float(values[m]),
                    "published_energy": float(found.energy[m]),
                    "published_nll": float(found.nll[m]),
                }
            )
    return complete, result.theta


def _exact(
    problem: Problem, variant: str, base: Tensor | None, options: Any
) -> tuple[Rows, Tensor]:
    plan = problem.plan
    if variant == NONE:
        runs = problem.runs((0.0,))
        result = train(problem.network, problem.data, runs, settings=plan.training, **options)
        rows = _both(problem, variant, runs, result, [0.0])
        return rows, result.theta
    if base is None:
        raise InputError("base: a penalised variant goes on from unpenalised parameters")
    terms = parse(variant)
    penalty = CalibrationPenalty(terms, n_samples=plan.n_samples, tau=plan.tau)
    trained: list[tuple[list[Run], TrainingResult]] = []

    def attempt(strengths: Sequence[float]) -> list[Trial]:
        runs = problem.runs(tuple(strengths))
        begun = plan.training.fine_tune or not any(strengths)  # strength 0 is not trained again
        result = train(
            problem.network,
            problem.data,
            runs,
            objective=Objective(penalty),
            settings=plan.training,
            start=base.repeat(len(strengths), 1) if begun else None,
            **options,
        )
        trained.append((runs, result))
        return validation_trials(
            problem.network, problem.data, runs, result.theta, terms, n_samples=plan.n_samples
        )

    selection = search_strength(attempt, plan.strengths, budget=plan.budget)
    chosen = [selection.strength or 0.0]
    rows = [
        row for runs, result in trained for row in _both(problem, variant, runs, result, chosen)
    ]
    return rows, base


def _both(
    problem: Problem, variant: str, runs: list[Run], result: TrainingResult, chosen: list[float]
) -> Rows:
    return [
        row
        for part in ("validation", "test")
        for row in _judged(problem, variant, runs, result, part, chosen)
    ]


def _judged(
    problem: Problem,
    variant: str,
    runs: list[Run],
    result: TrainingResult,
    part: str,
    chosen: list[float],
) -> Rows:
    """Exact calibration of every run; for the chosen ones also what a right one would have."""
    plan, network = problem.plan, problem.network
    x, y = problem.part(part, runs)
    found = evaluate(network, result.theta, x, y, problem.preranks, n_samples=plan.n_samples)
    rows: Rows = []
    for prerank in problem.preranks:
        label = prerank.label
        for m, run in enumerate(runs):
            shown = part == "test" and run.strength in chosen
            rows.append(
                {
                    **_about(variant, run, result, m),
                    "dataset": problem.name,
                    "part": part,
                    "prerank": label,
                    "selected": run.strength in chosen,
                    "pce": float(found.pce[label][m]),
                    "floor": found.floor,
                    "n": y.shape[1],
                    "energy": float(found.energy[m]),
                    "nll": float(found.nll[m]),
                    "curve": found.curves[label][m].tolist() if shown else None,
                    "null": _null(problem, result.theta[m], x[m], y[m], prerank, run)
                    if shown
                    else None,
                }
            )
    return rows


def _null(
    problem: Problem, theta: Tensor, x: Tensor, y: Tensor, prerank: PreRank, run: Run
) -> list[float] | None:
    """Replicates for a pre-rank of several components; those of one have a universal null."""
    plan = problem.plan
    found = null_replicates(
        problem.network,
        theta,
        x,
        y,
        prerank,
        n_samples=plan.n_samples,
        n_null=plan.n_null,
        seed=run.seed,  # of its own: the mean over runs takes them for independent
    )
    return None if found is None else [float(value) for value in found]


def _about(variant: str, run: Run, result: TrainingResult, m: int) -> dict[str, Any]:
    return {
        "variant": variant,
        "strength": run.strength,
        "seed": run.seed,
        "epochs": int(result.epochs[m]),
        "best_epoch": int(result.best_epoch[m]),
    }
