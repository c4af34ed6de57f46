"""Power of the p-value of one component, beside the statistics that it could rest on alone.

PITs Z = Phi(x) of errors x are made directly. Each statistic has the null of n uniforms: the PCE,
the sum of Anderson and Darling and the maximum of Berk and Jones (see
`prerank.calibration.uniformity`), and the p-value of a diagnosis, from the smaller of the last two.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank.calibration import null_pce, pce
from prerank.calibration.uniformity import component_p_values, component_statistics

ROWS, LEVEL = 300, 0.05
_NULL = 20_000
FAULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "calibrated": lambda x, u: x,
    "sd ratio 1.15": lambda x, u: 1.15 * x,
    "3 % outliers of sd 5": lambda x, u: torch.where(u < 0.03, 5 * x, x),
    "shift of .115 sd": lambda x, u: x + 0.115,
}


CELLS = [({"scenario": fault, "n": ROWS}, 4000) for fault in FAULTS]


def outcomes(seeds: range, *, scenario: str, n: int) -> Iterator[dict[str, bool]]:
    """Whether each statistic rejects, and the p-value of a diagnosis."""
    noise = torch.Generator().manual_seed(seeds[0])
    x = torch.randn(n, len(seeds), generator=noise, dtype=torch.float64)
    u = torch.rand(n, len(seeds), generator=noise, dtype=torch.float64)
    z = torch.special.ndtr(FAULTS[scenario](x, u))
    names = ("PCE", "Anderson-Darling", "Berk-Jones")
    values = zip(names, limits(), (pce(z), *component_statistics(z)), strict=True)
    found = {name: value > limit for name, limit, value in values}
    found["diagnose"] = component_p_values(z) <= LEVEL
    for k in range(len(seeds)):
        yield {name: bool(hits[k]) for name, hits in found.items()}


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each statistic."""
    for test, rate in table.mean().items():
        yield {**cell, "test": test, "event": "p <= .05", "rate": rate, "data_sets": len(table)}


@cache
def limits() -> list[float]:
    """The 95 % quantiles of the three statistics of uniforms."""
    noise = torch.Generator().manual_seed(1)
    uniform = torch.rand(ROWS, _NULL, generator=noise, dtype=torch.float64)
    nulls = [null_pce(ROWS), *(one.numpy() for one in component_statistics(uniform))]
    return [float(np.quantile(null, 1 - LEVEL)) for null in nulls]
