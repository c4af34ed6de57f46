"""The omnibus test: size, and power for dependence beyond correlation."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.distributions import Chi2

from prerank.calibration import omnibus_test

MEMBERS = 50
Draw = Callable[[int, int, torch.Generator], Tensor]


def _normal(n: int, targets: int, draw: torch.Generator) -> Tensor:
    return torch.randn(n, targets, generator=draw, dtype=torch.float64)


def independent(n: int, targets: int, draw: torch.Generator) -> Tensor:
    """Calibrated."""
    return torch.special.ndtr(_normal(n, targets, draw))


def equal_sizes(n: int, targets: int, draw: torch.Generator) -> Tensor:
    """Two targets that differ in their signs alone: uncorrelated."""
    x = _normal(n, targets, draw)
    x[:, 1] = x[:, 0].abs() * x[:, 1].sign()
    return torch.special.ndtr(x)


def parity(n: int, targets: int, draw: torch.Generator) -> Tensor:
    """Three targets, any two of them independent."""
    x = _normal(n, targets, draw)
    x[:, 2] = x[:, 2].abs() * (x[:, 0] * x[:, 1]).sign()
    return torch.special.ndtr(x)


def heavy_copula(n: int, targets: int, draw: torch.Generator) -> Tensor:
    """A t copula with 3 degrees of freedom and no correlation."""
    torch.manual_seed(draw.initial_seed())
    x = _normal(n, targets, draw) / (Chi2(3.0).sample(torch.Size((n, 1))).double() / 3).sqrt()
    return _student_cdf(x)


def correlated(n: int, targets: int, draw: torch.Generator) -> Tensor:
    """Two targets with a correlation of .3."""
    x = _normal(n, targets, draw)
    x[:, 1] = 0.3 * x[:, 0] + (1 - 0.3**2) ** 0.5 * x[:, 1]
    return torch.special.ndtr(x)


def _student_cdf(x: Tensor) -> Tensor:
    """Of 3 degrees of freedom, in closed form."""
    root = 3**0.5
    return 0.5 + (x / root / (1 + x * x / 3) + (x / root).atan()) / torch.pi


SCENARIOS: dict[str, Draw] = {
    "calibrated": independent,
    "equal up to the sign": equal_sizes,
    "pairwise independent": parity,
    "t3 copula": heavy_copula,
    "correlation .3": correlated,
}


CELLS = [
    ({"scenario": name, "n": n, "targets": targets}, 100)
    for name in SCENARIOS
    for n, targets in ((300, 3), (300, 8), (1_000, 8))
]


def outcomes(seeds: range, *, scenario: str, n: int, targets: int) -> Iterator[dict[str, bool]]:
    """Whether the test rejects."""
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        z = SCENARIOS[scenario](n, targets, generator)
        pool = torch.rand(MEMBERS, n, targets, generator=generator, dtype=torch.float64)
        yield {"p <= .05": omnibus_test(z, pool, n_null=199, generator=seed).p_value <= 0.05}
