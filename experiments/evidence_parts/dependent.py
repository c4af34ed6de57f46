"""Rows that follow each other in time: sizes and power of p-values for time order.

The truth is a stationary autoregression of order 1 in each target, the forecast its stationary
distribution: every PIT is uniform, and those of linear pre-ranks are autocorrelated as the targets
are. Power is that at independence (autoregression 0), against forecasts that are a little wrong.
"""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import prerank
from prerank.calibration.dependent_rows import DependentRows, row_units
from prerank.calibration.rotations import dependent_evidence
from prerank.calibration.uniformity import component_p_values, joint_p_value
from prerank.pits import ProjectedPIT, project_pits
from prerank.preranks import applicable

ROWS, SAMPLES, ROTATED = 500, 40, 999
SERIES = (0.0, 0.3, 0.6, 0.7)
FAULTS = {"shift .1": (0.1, 1.0), "spread 1.1": (0.0, 1.1), "spread .9": (0.0, 0.9)}
TESTS = ("time order", "independent rows")

CELLS = [
    ({"event": event, "targets": dim, "series": series, "rows": ROWS}, count)
    for dim in (2, 8)
    for event, series, count in (
        *(("size", series, 1000) for series in SERIES),
        *((fault, 0.0, 500) for fault in FAULTS),
    )
]
CELLS += [
    ({"event": "diagnose", "targets": 2, "series": series, "rows": rows}, 200)
    for series, rows in ((0.0, ROWS), (0.6, ROWS), (0.7, 1000))
]


def outcomes(
    seeds: range, *, event: str, targets: int, series: float, rows: int
) -> Iterator[dict[str, bool]]:
    """Which p-values are at most .05, by pre-rank and test; whether verdicts are bad."""
    if event == "diagnose":
        yield from (_verdicts(series, rows, seed) for seed in seeds)
        return
    shift, spread = FAULTS.get(event, (0.0, 1.0))
    shape = (len(seeds), rows, targets)
    y = shift + spread * autoregression(series, shape, seed=seeds[0])
    dist = forecast(shape)
    results = project_pits(
        dist,
        y,
        applicable("all", dist)[0],
        n_samples=SAMPLES,
        generator=seeds[0],
        with_null_pits=event != "size",  # for several components, and at a price
    )
    order = row_units(range(rows), None, rows)
    assert order is not None
    for model in range(len(seeds)):
        found = {}
        for result in results:
            for test, p in _p_values(result, model, order).items():
                found[f"{result.prerank.label}: {test}"] = p <= 0.05
        yield found


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each pre-rank and test."""
    for name, rate in table.mean().items():
        what, _, test = str(name).partition(": ")
        line = {**cell, "prerank": what, "test": test, "rate": rate, "data_sets": len(table)}
        if cell["event"] == "diagnose":  # what is an event there
            line |= {"event": f"diagnose: {what}", "prerank": "all"}
        yield line


def autoregression(series: float, shape: tuple[int, int, int], seed: int) -> Tensor:
    """Stationary series `(M, N, D)` of variance 1, correlated .5 between the targets."""
    source = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=source, dtype=torch.float64) @ _factor(shape[2]).mT
    steps = [noise[:, 0]]
    for step in noise.unbind(1)[1:]:
        steps.append(series * steps[-1] + math.sqrt(1 - series**2) * step)
    return torch.stack(steps, 1)


def _factor(dim: int) -> Tensor:
    return torch.linalg.cholesky(0.5 * torch.eye(dim, dtype=torch.float64) + 0.5)


def forecast(shape: tuple[int, int, int]) -> MultivariateNormal:
    """The stationary distribution, for every row."""
    factor = _factor(shape[2]).expand(*shape, shape[2])
    return MultivariateNormal(torch.zeros(shape, dtype=torch.float64), scale_tril=factor)


def _p_values(result: ProjectedPIT, model: int, order: DependentRows) -> dict[str, float]:
    z = result.z[model]
    found = {TESTS[0]: dependent_evidence(z, order, n_null=ROTATED).overall}
    if z.shape[-1] == 1:
        found[TESTS[1]] = float(component_p_values(z))
    elif result.null_pits is not None:
        pool = result.null_pits[:, model]
        found[TESTS[1]] = joint_p_value(z, pool, n_null=499, generator=model)
    return found


def _verdicts(series: float, rows: int, seed: int) -> dict[str, bool]:
    y = autoregression(series, (1, rows, 2), seed)[0]
    whole = forecast((1, rows, 2))
    dist = MultivariateNormal(whole.loc[0], scale_tril=whole.scale_tril[0])
    found = {}
    for test, time in zip(TESTS, (range(rows), None), strict=True):
        one = prerank.diagnose(dist, y, time=time)
        found[f"bad: {test}"] = one.verdict().status == "bad"
        found[f"serial: {test}"] = one.serial is not None
    return found
