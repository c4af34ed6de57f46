"""`diagnose_where` with `time` and `cluster`: false alarms and power among dependent rows.

Two targets and four inputs. Over time, errors and inputs are autoregressions of order 1; with two
rows for each time, both have an effect of the time besides. In clusters, half of the variance of
errors and inputs is that of effects of the cluster. The forecast knows the stationary distribution.
`taken_as` says whether the search knew.
"""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from evidence_parts.where import area
from prerank import diagnose_where
from prerank.diagnosis import WhereDiagnosis

DIM, INPUTS, PERMUTATIONS = 2, 4, 99
FAULTS = {
    "spread halved": (0.0, 2.0),
    "spread doubled": (0.0, 0.5),
    "shift of 1 sd": (1.0, 1.0),
}
SERIES = ("time, one row each", "time, one row each, inputs .95", "time, two rows each")
CLUSTERS = (
    "clusters of 10",
    "clusters of 1 to 19",
    "clusters of 10, inputs of clusters",
)


CELLS = [
    ({"scenario": "calibrated", "rows": rows, "n": n, "taken_as": taken}, count)
    for rows in SERIES + CLUSTERS
    for n, taken, count in (
        (500, "they are", 400),
        (1000, "they are", 400),
        (1000, "independent", 100),
    )
]
CELLS += [
    ({"scenario": fault, "rows": rows, "n": n, "taken_as": "they are"}, 40)
    for rows in (SERIES[0], CLUSTERS[0])
    for fault in FAULTS
    for n in (1000, 2000)
]


def outcomes(
    seeds: range, *, scenario: str, rows: str, n: int, taken_as: str
) -> Iterator[dict[str, float]]:
    """Whether there is evidence, and the area under the curve where a fault is planted."""
    for seed in seeds:
        y, x, given = simulated(rows, n, seed)
        if scenario not in FAULTS:
            where = _searched(y, x, given if taken_as == "they are" else {}, seed)
            yield {"p <= .05": where.p_value <= 0.05}
            continue
        start = float(torch.rand((), generator=torch.Generator().manual_seed(seed))) * 0.9
        level = torch.special.ndtr(x[:, 0])
        planted = (level >= start) & (level < start + 0.1)
        shift, factor = FAULTS[scenario]
        wrong = torch.where(planted[:, None], shift + factor * y, y)
        where = _searched(wrong, x, given, seed)
        yield {"p <= .05": where.p_value <= 0.05, "auc": area(where.weights, planted)}


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each cell."""
    line = {**cell, "event": "p <= .05", "rate": table["p <= .05"].mean()}
    line["data_sets"] = len(table)
    yield line | ({"auc": table.auc.mean()} if "auc" in table else {})


def _searched(y: Tensor, x: Tensor, given: dict[str, object], seed: int) -> WhereDiagnosis:
    dist = MultivariateNormal(torch.zeros(len(y), DIM), torch.eye(DIM))
    return diagnose_where(dist, y, x, n_null=PERMUTATIONS, max_regions=1, generator=seed, **given)


def simulated(rows: str, n: int, seed: int) -> tuple[Tensor, Tensor, dict[str, object]]:
    """Errors `(n, 2)` and inputs `(n, 4)`, all standard normal, and which rows belong together."""
    random = torch.Generator().manual_seed(seed)
    if rows in SERIES:
        each = 2 if rows == SERIES[2] else 1
        slow = 0.95 if rows == SERIES[1] else 0.6
        times = n // each
        y = _shared(_series(0.6, times, DIM, random), each, random)
        x = _shared(_series(slow, times, INPUTS, random), each, random)
        return y, x, {"time": torch.arange(n).div(each, rounding_mode="floor").numpy()}
    sizes = torch.full((n // 10,), 10)
    if rows == CLUSTERS[1]:
        sizes = 1 + torch.arange(n // 10) % 19  # 10 on average
        sizes[-1] += n - sizes.sum()
    cluster = torch.arange(len(sizes)).repeat_interleave(sizes)
    share = 1.0 if rows == CLUSTERS[2] else 0.5
    y = _effects(cluster, 0.5, DIM, random)
    x = _effects(cluster, share, INPUTS, random)
    return y, x, {"cluster": cluster.numpy()}


def _series(coefficient: float, n: int, columns: int, random: torch.Generator) -> Tensor:
    noise = torch.randn(n, columns, generator=random)
    steps = [noise[0]]
    for step in noise[1:]:
        steps.append(coefficient * steps[-1] + math.sqrt(1 - coefficient**2) * step)
    return torch.stack(steps)


def _shared(series: Tensor, each: int, random: torch.Generator) -> Tensor:
    """Several rows for each time, which share it half."""
    if each == 1:
        return series
    common = series.repeat_interleave(each, 0)
    return (common + torch.randn(common.shape, generator=random)) / math.sqrt(2)


def _effects(cluster: Tensor, share: float, columns: int, random: torch.Generator) -> Tensor:
    effects = torch.randn(int(cluster.max()) + 1, columns, generator=random)[cluster]
    noise = torch.randn(len(cluster), columns, generator=random)
    return math.sqrt(share) * effects + math.sqrt(1 - share) * noise
