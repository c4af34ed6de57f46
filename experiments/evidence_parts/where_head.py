"""`RegionalHead`: does a change of a region pay on fresh rows, and does it stay out elsewhere?

Forecasts, inputs and faults of `evidence_parts.where`, fitted to 2,000 rows and judged on 4,000
others. `excess_before` and `excess_after` are the PCE above its floor inside the planted region,
mean over the pre-ranks; `gain` and `gain_outside` the likelihood in nats per row.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

import prerank
from evidence_parts.where import PLACES, planted_data
from prerank.calibration import pce_floor
from prerank.pits import project_pits
from prerank.preranks import applicable
from prerank.recalibration import RegionalHead

FAULTS = ("spread halved", "spread doubled", "shift of 1 sd", "correlation lost")
ROWS, FRESH, DIM = 2000, 4000, 4
PERMUTATIONS = 99


CELLS = [({"scenario": fault, "n": ROWS}, 20) for fault in FAULTS]
CELLS += [({"scenario": "calibrated", "n": ROWS}, 200)]


def outcomes(seeds: range, *, scenario: str, n: int) -> Iterator[dict[str, float]]:
    """Whether a change is kept; where a fault is planted, what it does on fresh rows."""
    for seed in seeds:
        wrong = DIM if scenario in FAULTS else 0
        fault = scenario if scenario in FAULTS else FAULTS[0]
        dist, y, x, planted = planted_data(fault, PLACES[0], wrong, DIM, n + FRESH, seed)
        first, fresh = torch.arange(n), torch.arange(n, n + FRESH)
        head = RegionalHead(n_null=PERMUTATIONS, seed=seed)
        head.fit(rows_of(dist, first), y[first], x[first])
        before, y, inside = rows_of(dist, fresh), y[fresh], planted[fresh]
        after = head(before, x[fresh])
        gain = prerank.nll(before, y) - prerank.nll(after, y)
        found = {
            "kept": bool(head.changes_),
            "gain_outside": float(gain[~inside].mean()),
        }
        if wrong:
            found["excess_before"] = _excess(before, y, inside)
            found["excess_after"] = _excess(after, y, inside)
            found["gain"] = float(gain[inside].mean())
        yield found


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each fault."""
    means = table.mean()
    line = {**cell, "event": "a change is kept", "rate": means.pop("kept")}
    yield line | {"data_sets": len(table)} | means.to_dict()


def _excess(dist: Distribution, y: Tensor, inside: Tensor) -> float:
    results = project_pits(dist, y, applicable("all", dist)[0], generator=0)
    errors = [float(prerank.pce(one.z[inside]).mean()) for one in results]
    return float(np.mean(errors)) - pce_floor(int(inside.sum()))


def rows_of(dist: MultivariateNormal, rows: Tensor) -> MultivariateNormal:
    """Some of the predictions."""
    factor = dist.scale_tril.expand(*dist.loc.shape, dist.loc.shape[-1])
    return MultivariateNormal(dist.loc[rows], scale_tril=factor[rows])
