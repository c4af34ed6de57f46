"""How often calibrated forecasts are rejected: single rows of the table, Holm, the verdict."""

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Poisson

from prerank import Ensemble, GaussianMixture, diagnose
from prerank.calibration.evidence import ALL

DATA_SETS = 200
ROWS, LEVEL = 200, 0.05
DIMENSIONS = (1, 2, 8, 30)
FORECASTS = ("mixture", "ensemble of 20", "counts with ties")

Case = tuple[Distribution, Tensor]


def forecast(name: str, n: int, d: int) -> Case:
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


def lines(data_sets: int = DATA_SETS) -> Iterator[dict[str, object]]:
    """One line for each forecast, number of targets and test."""
    for name in FORECASTS:
        for d in DIMENSIONS:
            rejected: Counter[str] = Counter()
            for seed in range(data_sets):
                with torch.random.fork_rng():
                    torch.manual_seed(seed)
                    dist, y = forecast(name, ROWS, d)
                found = diagnose(dist, y, n_samples=20, n_null=999, generator=seed)
                rows = [row for row in found.findings if row.component == ALL]
                rejected.update({row.prerank: row.p_value <= LEVEL for row in rows})
                rejected["Holm"] += min(row.p_holm for row in rows) < LEVEL
                rejected["verdict"] += found.verdict().status == "bad"
            for test, count in rejected.items():
                yield {
                    "forecast": name,
                    "n": ROWS,
                    "D": d,
                    "test": test,
                    "event": "rejected at 5 %",
                    "rate": count / data_sets,
                    "data_sets": data_sets,
                }
