"""Ensembles on one thread: ranks of the copula as members grow, PITs of targets, CRPS.

PITs of single targets are set beside `(samples < y).sum(0)` in numpy, the least that a rank takes;
the CRPS beside the estimators of scoringrules with numba that have the same values, which get the
members last, as they ask for.
"""

import importlib.util

import numpy as np
import torch

import prerank
from prerank.scores import crps
from timing import Plan, Record, Work, side_by_side, thread_limit

_DIMS = (2, 4, 6)
_MEMBERS = (100, 1000)
_PAIRS = {"fair": ("fair", "pwm"), "nrg": ("nrg", "qd")}  # ours, and those of scoringrules
_CURVED = ("copula", "average_rank", "band_depth")


def measure(plan: Plan) -> list[Record]:
    """Milliseconds of each, and their ratios."""
    with thread_limit(1):
        return [*_growth(plan), *_ranks(plan), *_scores(plan)]


def _growth(plan: Plan) -> list[Record]:
    """Ratio of the times of a row with many members and with few."""
    rows = 20 if plan.small else 500
    found: list[Record] = []
    for name in _CURVED:
        for dim in _DIMS:
            works: dict[str, Work] = {}
            for size in _MEMBERS:
                dist, y = _ensemble(size, rows, dim, torch.float32)
                works[str(size)] = lambda dist=dist, y=y, name=name: prerank.pit(
                    dist, y, name, generator=0
                )
            few, many = side_by_side(works, plan).values()
            what = f"{name}, S = {_MEMBERS[1]} over S = {_MEMBERS[0]}"
            found.append(_record(what, dim, "float32", many.ms, many.over(few)))
    return found


def _ranks(plan: Plan) -> list[Record]:
    """PITs of targets over one comparison and one sum of numpy."""
    found: list[Record] = []
    for rows in (1000,) if plan.small else (10_000, 100_000):
        for dtype in (torch.float32, torch.float64):
            dist, y = _ensemble(100, rows, 4, dtype)
            members, observed = dist.samples.numpy(), y.numpy()
            works: dict[str, Work] = {
                "numpy": lambda m=members, o=observed: (m < o).sum(0),
                "pit": lambda d=dist, y=y: prerank.pit(d, y, "marginal", generator=0),
            }
            timings = side_by_side(works, plan)
            kind, ours = str(dtype).removeprefix("torch."), timings["pit"]
            what = f"pit of marginal over numpy, n = {rows}"
            found.append(_record(what, 4, kind, ours.ms, ours.over(timings["numpy"])))
    return found


def _scores(plan: Plan) -> list[Record]:
    """Our CRPS over those of scoringrules."""
    if any(importlib.util.find_spec(name) is None for name in ("scoringrules", "numba")):
        return [{"what": "crps over scoringrules", "note": "scoringrules or numba is not there"}]
    from scoringrules import crps_ensemble

    found: list[Record] = []
    for dtype in (torch.float32, torch.float64):
        dist, y = _ensemble(100, 500 if plan.small else 10_000, 4, dtype)
        members, observed = dist.samples.movedim(0, -1).contiguous().numpy(), y.numpy()
        for estimator, others in _PAIRS.items():
            works: dict[str, Work] = {
                "ours": lambda d=dist, y=y, e=estimator: crps(d, y, estimator=e)
            }
            for other in others:
                works[other] = lambda m=members, o=observed, e=other: crps_ensemble(
                    o, m, estimator=e, backend="numba"
                )
            timings = side_by_side(works, plan)
            for other in others:
                what = f"crps {estimator} over scoringrules {other}"
                ratio = timings["ours"].over(timings[other])
                kind = str(dtype).removeprefix("torch.")
                found.append(_record(what, 4, kind, timings["ours"].ms, ratio))
    return found


def _record(what: str, dim: int, kind: str, ms: float, ratio: float) -> Record:
    return {"what": what, "targets": dim, "dtype": kind, "ms": ms, "ratio": ratio}


def _ensemble(
    size: int, rows: int, dim: int, dtype: torch.dtype
) -> tuple[prerank.Ensemble, torch.Tensor]:
    rng = np.random.default_rng(0)
    members = torch.from_numpy(rng.normal(size=(size, rows, dim))).to(dtype)
    return prerank.Ensemble(members), torch.from_numpy(rng.normal(size=(rows, dim))).to(dtype)
