"""Some rows of a forecast are the forecast of these rows."""

import pytest
import torch
from torch.distributions import (
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    Poisson,
)

from prerank import Ensemble, GaussianMixture, pit
from prerank.distributions import round_to, rows_of

N, ROWS = 12, slice(3, 8)
NOISE = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
SAMPLES = torch.randn(9, N, 3, generator=torch.Generator().manual_seed(1))

KNOWN = {
    "ensemble": Ensemble(SAMPLES),
    "weighted": Ensemble(SAMPLES, SAMPLES[..., 0].exp()),
    "mixture": GaussianMixture(
        NOISE[:, :2], NOISE.unsqueeze(1) * torch.ones(2, 1), torch.eye(3).expand(2, 3, 3)
    ),
    "normal": MultivariateNormal(NOISE, torch.eye(3)),
    "low rank": LowRankMultivariateNormal(NOISE, NOISE.unsqueeze(-1), NOISE.exp()),
    "independent": Independent(Normal(NOISE, NOISE.exp()), 1),
    "rounded": round_to(MultivariateNormal(NOISE, torch.eye(3)), NOISE.round()),
}


@pytest.mark.parametrize("name", KNOWN)
def test_pits_of_the_rows(name):
    dist = KNOWN[name]
    part = rows_of(dist, ROWS)
    assert type(part) is type(dist)
    assert part.batch_shape == (5,)
    assert part.event_shape == (3,)
    y = NOISE.round() if name == "rounded" else NOISE
    together, alone = (
        pit(d, at, "marginal", generator=torch.Generator().manual_seed(0))
        for d, at in ((dist, y), (part, y[ROWS]))
    )
    if name in ("ensemble", "rounded"):  # but for the noise within a step
        torch.testing.assert_close(
            together[ROWS], alone, rtol=0, atol=1 if name == "rounded" else 0.1
        )
    elif name != "weighted":
        assert torch.equal(together[ROWS], alone)
    torch.testing.assert_close(dist.mean[ROWS], part.mean)


def test_what_is_not_known():
    class Mine(MultivariateNormal):
        """A subclass, which may hold what has rows, too."""

    assert rows_of(Mine(NOISE, torch.eye(3)), ROWS) is None
    assert rows_of(Independent(Poisson(NOISE.exp()), 1), ROWS) is None
