"""Rows that follow each other in time: sizes and power of p-values for time order.

The truth is a stationary autoregression of order 1 in each target, the forecast its stationary
distribution: every PIT is uniform, and those of linear pre-ranks are autocorrelated as the targets
are. Power is that at independence (autoregression 0), against forecasts that are a little wrong.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import prerank
from prerank.calibration import component_null, null_pce, p_value, pce
from prerank.calibration.dependent_rows import DependentRows, row_units
from prerank.calibration.rotations import dependent_evidence
from prerank.pits import ProjectedPIT, project_pits
from prerank.preranks import applicable

ROWS, SAMPLES, ROTATED = 500, 40, 999
SERIES = (0.0, 0.3, 0.6, 0.7)
FAULTS = {"shift .1": (0.1, 1.0), "spread 1.1": (0.0, 1.1), "spread .9": (0.0, 0.9)}
TESTS = ("time order", "independent rows")
_STACK = 20


def lines(data_sets: int = 1000) -> Iterator[dict[str, object]]:
    """Sizes, power at independence (a quarter of the data sets), and verdicts (a tenth)."""
    for dim in (2, 8):
        for series in SERIES:
            yield from _cells("size", dim, series, (0.0, 1.0), data_sets)
        for fault, change in FAULTS.items():
            yield from _cells(fault, dim, 0.0, change, max(1, data_sets // 4))
    for series, rows in ((0.0, ROWS), (0.6, ROWS), (0.7, 1000)):
        yield from _verdicts(series, rows, max(1, data_sets // 10))


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


def _cells(
    event: str, dim: int, series: float, change: tuple[float, float], data_sets: int
) -> Iterator[dict[str, object]]:
    order = row_units(range(ROWS), None, ROWS)
    assert order is not None
    rejected: dict[tuple[str, str], int] = {}
    for first in range(0, data_sets, _STACK):
        shape = (min(_STACK, data_sets - first), ROWS, dim)
        y = change[0] + change[1] * autoregression(series, shape, seed=1000 * dim + first)
        dist = forecast(shape)
        results = project_pits(
            dist,
            y,
            applicable("all", dist)[0],
            n_samples=SAMPLES,
            generator=first,
            with_null_pits=event != "size",  # for several components, and at a price
        )
        for result in results:
            for model in range(shape[0]):
                for test, p in _p_values(result, model, order).items():
                    key = result.prerank.label, test
                    rejected[key] = rejected.get(key, 0) + (p <= 0.05)
    for (label, test), count in rejected.items():
        yield {
            "event": event,
            "targets": dim,
            "series": series,
            "rows": ROWS,
            "prerank": label,
            "test": test,
            "rate": count / data_sets,
            "data_sets": data_sets,
        }


def _p_values(result: ProjectedPIT, model: int, order: DependentRows) -> dict[str, float]:
    z = result.z[model]
    found = {TESTS[0]: dependent_evidence(z, order, n_null=ROTATED).overall}
    if result.null_pits is not None:
        null = component_null(z, result.null_pits[:, model], n_null=499, generator=model).numpy()
        found[TESTS[1]] = p_value(float(pce(z).mean()), null)
    elif z.shape[-1] == 1:
        found[TESTS[1]] = p_value(float(pce(z)), null_pce(len(z)))
    return found


def _verdicts(series: float, rows: int, data_sets: int) -> Iterator[dict[str, object]]:
    found = {test: [0, 0] for test in TESTS}
    for number in range(data_sets):
        shape = (1, rows, 2)
        y = autoregression(series, shape, seed=number)[0]
        for test, time in zip(TESTS, (range(rows), None), strict=True):
            one = prerank.diagnose(_single(rows), y, time=time)
            found[test][0] += one.verdict().status == "bad"
            found[test][1] += one.serial is not None
    for test, counts in found.items():
        for event, count in zip(("diagnose: bad", "diagnose: serial"), counts, strict=True):
            yield {
                "event": event,
                "targets": 2,
                "series": series,
                "rows": rows,
                "prerank": "all",
                "test": test,
                "rate": count / data_sets,
                "data_sets": data_sets,
            }


def _single(rows: int) -> MultivariateNormal:
    whole = forecast((1, rows, 2))
    return MultivariateNormal(whole.loc[0], scale_tril=whole.scale_tril[0])
