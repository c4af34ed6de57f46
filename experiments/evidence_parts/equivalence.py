"""Confidence limits of the true PCE, and how many rows an equivalence needs."""

from collections.abc import Callable, Iterator
from functools import cache

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
    "one of 20 at the other end": lambda x: torch.where(x < -1.645, -4.0, 2.2 + 0.1 * x),
}
_MANY = 400_000
_TOLERANCES = (0.02, 0.03, 0.05)

CELLS = [
    ({"scenario": f"{scenario}, {kind}", "rows": n}, 1000)
    for scenario in SCENARIOS
    for n in (10, 50, 500)
    for kind in ("component", "mean of three")
]
CELLS += [
    ({"scenario": "calibrated, D = 3, all pre-ranks", "rows": n}, 100)
    for n in (400, 800, 1500, 2300, 3000)
]


def outcomes(seeds: range, *, scenario: str, rows: int) -> Iterator[dict[str, bool]]:
    """Whether each limit is wrong; whether calibration is shown to within a tolerance."""
    name, _, kind = scenario.rpartition(", ")
    for seed in seeds:
        if kind == "all pre-ranks":
            worst = _largest_limit(rows, seed)
            yield {f"within {tolerance}": worst <= tolerance for tolerance in _TOLERANCES}
            continue
        noise = torch.Generator().manual_seed(seed)
        count = 1 if kind == "component" else 3
        x = torch.randn(rows, count, generator=noise, dtype=torch.float64)
        if count > 1:
            shared = torch.randn(rows, 1, generator=noise, dtype=torch.float64)
            x = (shared + x) / 2**0.5
        lower, upper = mean_pce_limits(_NORMAL.cdf(SCENARIOS[name](x)))
        true = _true_error(name)  # itself known to about .0005
        yield {"lower above": bool(lower > true + 5e-4), "upper below": bool(upper < true - 5e-4)}


@cache
def _true_error(name: str) -> float:
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(_MANY, 1, generator=noise, dtype=torch.float64)
    return _error(_NORMAL.cdf(SCENARIOS[name](x)))


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
