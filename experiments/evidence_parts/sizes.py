"""How often calibrated forecasts are rejected: single rows of the table, Holm, the verdict."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Poisson

from prerank import Ensemble, GaussianMixture, diagnose
from prerank.calibration.error_table import ALL

ROWS, LEVEL = 200, 0.05
FORECASTS = ("mixture", "ensemble of 20", "counts with ties")
CELLS = [({"forecast": name, "n": ROWS, "D": d}, 4000) for d in (30, 8, 2, 1) for name in FORECASTS]

Case = tuple[Distribution, Tensor]


def calibrated(name: str, n: int, d: int) -> Case:
    """A calibrated forecast and observations, from the global generator."""
    if name == "mixture":
        dist = GaussianMixture(
            torch.randn(n, 2), torch.randn(n, 2, d), torch.eye(d).expand(n, 2, d, d)
        )
        return dist, dist.sample()
    if name == "ensemble of 20":
        truth = MultivariateNormal(torch.randn(n, d), 0.5 * torch.eye(d) + 0.5)
        return Ensemble(truth.sample((20,))), truth.sample()
    counts = Independent(Poisson(torch.rand(n, d) + 0.5), 1)
    return Ensemble(counts.sample((20,))), counts.sample()


def outcomes(seeds: range, *, forecast: str, n: int, D: int) -> Iterator[dict[str, bool]]:
    """Which p-values are at most 5 %, by pre-rank; whether Holm's are, and the verdict is bad."""
    for seed in seeds:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            dist, y = calibrated(forecast, n, D)
        found = diagnose(dist, y, n_samples=20, n_null=999, generator=seed)
        rows = [row for row in found.findings if row.component == ALL]
        rejected = {row.prerank: row.p_value <= LEVEL for row in rows}
        rejected["Holm"] = min(row.p_holm for row in rows) < LEVEL
        rejected["verdict"] = found.verdict().status == "bad"
        yield rejected
