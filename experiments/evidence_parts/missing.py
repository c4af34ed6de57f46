"""How often calibrated forecasts are rejected where values are missing, by what decides on it."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from evidence_parts.sizes import LEVEL, ROWS, calibrated
from prerank import Ensemble, diagnose
from prerank.calibration.error_table import ALL

TARGETS = 4
SHARES = (0.0, 0.1, 0.25, 0.5)  # of the values of each target
DEPENDENT = "in time order, AR(.7)"
"""Rows that depend on each other, judged with `time=`."""

CELLS = [
    ({"forecast": name, "missing": why, "n": ROWS, "D": TARGETS}, 4000)
    for name in ("mixture", "ensemble of 20", "counts with ties")
    for why in ("at random", "in spells", "members too")
    if why != "members too" or name != "mixture"
]
CELLS += [({"forecast": DEPENDENT, "missing": "in spells", "n": ROWS, "D": TARGETS}, 4000)]


def gaps(why: str, n: int) -> Tensor:
    """Which values are missing, `(n, D)`: so many of each target, in random rows or in a run."""
    columns = []
    for share in SHARES:
        count = round(share * n)
        places = (torch.arange(n) + torch.randint(n, ())) % n
        rows = places if why == "in spells" else torch.randperm(n)
        columns.append(torch.zeros(n, dtype=torch.bool).index_fill(0, rows[:count], True))
    return torch.stack(columns, -1)


def series(n: int) -> tuple[Ensemble, Tensor]:
    """An ensemble of 20 whose standard normal errors are correlated in time and over targets."""
    noise, errors = torch.randn(n, TARGETS), []
    noise = math.sqrt(0.5) * (noise + torch.randn(n, 1))
    for new in noise:
        errors.append(0.7 * errors[-1] + math.sqrt(0.51) * new if errors else new)
    members = math.sqrt(0.5) * (torch.randn(20, n, TARGETS) + torch.randn(20, n, 1))
    return Ensemble(members), torch.stack(errors)


def outcomes(
    seeds: range, *, forecast: str, missing: str, n: int, D: int
) -> Iterator[dict[str, bool]]:
    """Which p-values are at most 5 %, by pre-rank and target; Holm's, and bad verdicts."""
    for seed in seeds:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            dist, y = series(n) if forecast == DEPENDENT else calibrated(forecast, n, D)
            y = y.masked_fill(gaps(missing, n), torch.nan)
            if missing == "members too" and isinstance(dist, Ensemble):
                samples = dist.samples.clone()
                samples[3, : n // 10, 1] = torch.nan  # one member, for a tenth of the rows
                dist = Ensemble(samples, missing="available")
        found = diagnose(
            dist,
            y,
            n_samples=20,
            n_null=999,
            generator=seed,
            missing="available",
            time=range(n) if forecast == DEPENDENT else None,
        )
        rows = [row for row in found.findings if row.component == ALL]
        rejected = {row.prerank: row.p_value <= LEVEL for row in rows}
        rejected |= {
            f"marginal, {share:.0%} missing": row.p_value <= LEVEL
            for row, share in zip(
                (row for row in found.findings if row.component.startswith("y")),
                SHARES,
                strict=True,
            )
        }
        rejected["Holm"] = min(row.p_holm for row in rows) < LEVEL
        rejected["verdict"] = found.verdict().status == "bad"
        yield rejected
