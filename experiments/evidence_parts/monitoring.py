"""False alarms and delays of `prerank.Monitor`, in streams of 2,000 rows."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank import Ensemble, Monitor
from prerank.calibration.monitoring import EProcess

ROWS, LATE, DIM, ALPHA = 2000, 1000, 3, 0.01
FAULTS = ("bias .5", "sd ratio .7", "lost correlation")


CELLS = [
    ({"scenario": "PITs, calibrated", "rows": ROWS, "lead": lead, "alpha": alpha}, 2000)
    for lead in (1, 3)
    for alpha in (0.01, 0.05, 0.2)
]
CELLS += [
    ({"scenario": f"{kind}, {fault}", "rows": ROWS, "lead": 1, "alpha": ALPHA}, 40)
    for kind, fault in (
        ("normal", "calibrated"),
        ("20 members", "calibrated"),
        *(("normal", f"{fault} from row {start}") for start in (0, LATE) for fault in FAULTS),
    )
]


def outcomes(
    seeds: range, *, scenario: str, rows: int, lead: int, alpha: float
) -> Iterator[dict[str, float]]:
    """Whether there is an alarm, and how many rows after the fault."""
    kind, _, what = scenario.partition(", ")
    if kind == "PITs":
        for peak in _peaks(seeds, lead):
            yield {"alarm": bool(peak >= 1 / alpha)}
        return
    fault, _, row = what.partition(" from row ")
    start = int(row or 0)
    for seed in seeds:
        alarm = _alarm_row(seed, fault, start, kind)
        late = alarm is not None and alarm >= start
        if not row:
            yield {"alarm": alarm is not None}
        else:
            yield {"alarm": late, "delay": alarm - start + 1 if late else ROWS}


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each scenario, with the quantiles of the delay."""
    line = {**cell, "event": "alarm", "rate": table.alarm.mean(), "data_sets": len(table)}
    if "delay" in table.dropna(axis=1):
        line |= {"median_delay": table.delay.median(), "delay_90": table.delay.quantile(0.9)}
    yield line


def _peaks(seeds: range, lead: int) -> Tensor:
    """Largest evidence of calibrated streams with five components that depend on each other.

    With a lead of h rows, errors are moving averages of h shocks: dependent in between.
    """
    noise = torch.Generator().manual_seed(seeds[0])
    shape = (ROWS + lead - 1, len(seeds), 5)
    shocks = torch.randn(shape, generator=noise) + torch.randn((*shape[:2], 1), generator=noise)
    errors = sum(shocks[k : k + ROWS] for k in range(lead)) / math.sqrt(2 * lead)
    z = torch.special.ndtr(errors.double())
    paths = [EProcess(shape[1:]).update(z[i::lead]).mean(-1) for i in range(lead)]
    return torch.stack([path.amax(0) for path in paths]).amax(0) / lead


def _alarm_row(seed: int, fault: str, start: int, kind: str) -> int | None:
    """Row of the alarm; the truth has a correlation of .5 and one standard deviation."""
    noise = torch.Generator().manual_seed(seed)
    cov = 0.5 * torch.eye(DIM) + 0.5
    root = torch.linalg.cholesky(cov)
    y = torch.randn(ROWS, DIM, generator=noise) @ root.T
    loc, covs = torch.zeros(ROWS, DIM), cov.expand(ROWS, DIM, DIM).clone()
    if fault == "bias .5":
        loc[start:] = 0.5
    elif fault == "sd ratio .7":
        covs[start:] *= 0.7**2
    elif fault == "lost correlation":
        covs[start:] = torch.eye(DIM)
    dist = MultivariateNormal(loc, covs)
    if kind != "normal":
        members = torch.randn(20, ROWS, DIM, generator=noise) @ root.T
        dist = Ensemble(members)
    monitor = Monitor(alpha=ALPHA, seed=seed)
    monitor.update(dist, y)
    return monitor.alarm_row
