"""The density estimated from samples beside the exact one: size, and power on mixtures."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from prerank import Ensemble, GaussianMixture, pit
from prerank.calibration.uniformity import component_p_values

ROWS, TARGETS = 300, 3


def mixture(spread: float, correlation: float, apart: float) -> GaussianMixture:
    """Two equally likely components at a distance, for all rows alike."""
    eye = torch.eye(TARGETS, dtype=torch.float64)
    factor = torch.linalg.cholesky(spread**2 * (correlation + (1 - correlation) * eye))
    loc = torch.stack([-torch.ones(TARGETS), torch.ones(TARGETS)]).double() * apart / 2
    expand = (ROWS, 2)
    return GaussianMixture(
        torch.zeros(expand, dtype=torch.float64),
        loc.expand(*expand, TARGETS),
        factor.expand(*expand, TARGETS, TARGETS),
    )


TRUTH = mixture(1.0, 0.5, 2.0)
FORECASTS: dict[str, Callable[[], GaussianMixture]] = {
    "calibrated": lambda: TRUTH,
    "spread .85": lambda: mixture(0.85, 0.5, 2.0),
    "spread 1.15": lambda: mixture(1.15, 0.5, 2.0),
    "correlation 0 for .5": lambda: mixture(1.0, 0.0, 2.0),
    "one mode for two": lambda: mixture(2**0.5, 0.75, 0.0),
}

CELLS = [
    ({"forecast": name, "members": members}, 100)
    for name in FORECASTS
    for members in (10, 20, 50, 100)
]


def _rejects(z: Tensor) -> bool:
    return float(component_p_values(z)) <= 0.05


def outcomes(seeds: range, *, forecast: str, members: int) -> Iterator[dict[str, bool]]:
    """Whether the p-values of the exact density and of the estimated one are at most 5 %."""
    dist = FORECASTS[forecast]()
    for seed in seeds:
        torch.manual_seed(seed)
        y, samples = TRUTH.sample(), dist.sample((members,))
        exact = pit(dist, y, "hdr", n_samples=members, generator=seed)
        estimated = pit(Ensemble(samples), y, "sample_density", generator=seed)
        yield {"hdr": _rejects(exact), "sample_density": _rejects(estimated)}
