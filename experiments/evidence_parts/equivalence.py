"""Confidence limits of the true PCE, and how many rows an equivalence needs."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank.calibration import mean_pce_limits, pce_limits
from prerank.calibration.curves import pce_of_curve
from prerank.defaults import LEVELS
from prerank.pits import project_pits
from prerank.preranks import PAPER

_NORMAL = torch.distributions.Normal(0.0, 1.0)
_Draw = Callable[[Tensor], Tensor]
# From standard normal errors to those of a forecast that is wrong in a known way.
SCENARIOS: dict[str, _Draw] = {
    "calibrated": lambda x: x,
    "bias .1": lambda x: x + 0.1,
    "bias 1": lambda x: x + 1,
    "sd ratio 1.1": lambda x: 1.1 * x,
    "sd ratio 3": lambda x: 3 * x,
    "sd ratio .5": lambda x: 0.5 * x,
    "always below": lambda x: 0.1 * x - 3,
    "one end or the other": lambda x: 6 * x.sign(),
}
_MANY = 400_000


def lines(data_sets: int = 1000) -> Iterator[dict[str, object]]:
    """How often each limit is wrong, and how often a calibrated forecast is shown to be so."""
    noise = torch.Generator().manual_seed(0)
    for scenario, wrong in SCENARIOS.items():
        sample = torch.randn(_MANY, 1, generator=noise, dtype=torch.float64)
        true = _error(_NORMAL.cdf(wrong(sample)))
        for n in (50, 500):
            for kind in ("component", "mean of three"):
                count = 1 if kind == "component" else 3
                missed = torch.zeros(2)
                for _ in range(data_sets):
                    shared = torch.randn(n, 1, generator=noise, dtype=torch.float64)
                    own = torch.randn(n, count, generator=noise, dtype=torch.float64)
                    x = own if count == 1 else (shared + own) / 2**0.5
                    lower, upper = mean_pce_limits(_NORMAL.cdf(wrong(x)))
                    # The true error is itself known to about .0005.
                    missed += torch.tensor([lower > true + 5e-4, upper < true - 5e-4])
                for event, number in zip(("lower above", "upper below"), missed, strict=True):
                    rate = float(number) / data_sets
                    yield _line(f"{scenario}, {kind}", n, event, rate, data_sets)
    yield from _attained(max(data_sets // 10, 20))


def _attained(data_sets: int) -> Iterator[dict[str, object]]:
    """Three targets with a correlation of .5: the largest limit over all rows of the table."""
    for n in (400, 800, 1500, 2300, 3000):
        worst = torch.tensor([_largest_limit(n, seed) for seed in range(data_sets)])
        for within in (0.02, 0.03, 0.05):
            rate = float((worst <= within).double().mean())
            yield _line("calibrated, D = 3, all pre-ranks", n, f"within {within}", rate, data_sets)


def _largest_limit(n: int, seed: int) -> float:
    dist = MultivariateNormal(torch.zeros(n, 3), 0.5 * torch.eye(3) + 0.5)
    noise = torch.Generator().manual_seed(seed)
    y = torch.randn(n, 3, generator=noise) @ torch.linalg.cholesky(dist.covariance_matrix[0]).T
    results = project_pits(dist, y, PAPER, generator=noise)
    own = [pce_limits(result.z).upper.amax() for result in results]
    whole = [mean_pce_limits(result.z).upper for result in results]
    return float(torch.stack(own + whole).amax())


def _error(z: Tensor) -> float:
    levels = torch.linspace(0, 1, LEVELS, dtype=torch.float64)
    curve = torch.searchsorted(z[:, 0].sort().values, levels, right=True) / len(z)
    return float(pce_of_curve(curve.unsqueeze(-1)))


def _line(scenario: str, n: int, event: str, rate: float, count: int) -> dict[str, object]:
    return {"scenario": scenario, "rows": n, "event": event, "rate": rate, "data_sets": count}
