"""From 1 to 64 targets, 1 to 50 components, 2 to a million rows: against float64 and torch."""

import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank import (
    CalibrationPenalty,
    Ensemble,
    GaussianMixture,
    crps,
    diagnose,
    energy_score,
    nll,
    pce,
    pce_floor,
    pit,
    smooth_pit,
    variogram_score,
)
from prerank.calibration import pce_spread
from prerank.distributions import Draws
from properties.cases import DTYPES, SIZES, mixture, observations, same

FLOAT = torch.float32
EPS = torch.finfo(FLOAT).eps
ROWS, SAMPLES = 20, 100

CLOSED = ["marginal", "location"]
# Each with the fewest targets that it takes.
SMOOTH = {"scale": 2, "dependency": 3, "hdr": 1, "energy_score": 1}


@pytest.mark.parametrize("prerank", CLOSED)
@pytest.mark.parametrize("size", SIZES)
def test_closed_forms_in_float32(size, prerank):
    y = observations(ROWS, size)
    found = pit(mixture(ROWS, size, FLOAT), y.float(), prerank)
    assert found.dtype == FLOAT
    # Parameters are rounded to 24 bits, and the slope of the normal CDF is at most 0.4.
    same(found, pit(mixture(ROWS, size), y, prerank), 8 * (size[0] + size[1]) ** 0.5 * EPS)


@pytest.mark.parametrize(
    ("size", "prerank"), [(s, p) for s in SIZES for p, fewest in SMOOTH.items() if s[0] >= fewest]
)
def test_smooth_pits_in_float32(size, prerank):
    y, law = observations(ROWS, size), mixture(ROWS, size)
    points = law.sample((SAMPLES,), generator=3)
    expected = smooth_pit(law, y, prerank, draws=Draws(points, None))
    single = mixture(ROWS, size, FLOAT)
    found = smooth_pit(single, y.float(), prerank, draws=Draws(points.float(), None))
    # T has an error of a few units times its size over its spread, 64 for densities of 64 targets;
    # tau = 100 makes it as many times larger, for the few of the draws that are close to y.
    same(found, expected, 100 * 8 * max(8, size[0]) * EPS)


SCORES = {
    "nll": nll,
    "crps": crps,
    "energy": energy_score,
    "variogram": variogram_score,
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("size", SIZES)
def test_scores_in_float32(size, name):
    y, law, single = observations(ROWS, size), mixture(ROWS, size), mixture(ROWS, size, FLOAT)
    if name in ("energy", "variogram"):  # on the same draws
        points = law.sample((SAMPLES,), generator=3)
        law, single = Ensemble(points), Ensemble(points.float())
    # Errors of sums of up to D^2 terms, which add up like noise.
    same(SCORES[name](single, y.float()), SCORES[name](law, y), 32 * max(4, size[0]) * EPS)


@pytest.mark.parametrize("size", [(1, 50), (2, 50), (8, 50)])
def test_fifty_components_against_torch(size):
    law, y = mixture(ROWS, size), observations(ROWS, size)
    other = MixtureSameFamily(
        Categorical(logits=law.logits), MultivariateNormal(law.loc, scale_tril=law.scale_tril)
    )
    torch.testing.assert_close(nll(law, y), -other.log_prob(y), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(law.mean, other.mean, rtol=1e-12, atol=1e-12)
    spread = law.scale_tril.square().sum(-1).sqrt()  # (N, K, D)
    margins = torch.special.ndtr((y.unsqueeze(-2) - law.loc) / spread)
    expected = (law.probs.unsqueeze(-1) * margins).sum(-2)
    torch.testing.assert_close(pit(law, y, "marginal"), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(2, size) for size in SIZES] + [(3, (3, 50))])
def test_few_rows(rows, size, dtype):
    law, y = mixture(rows, size, dtype), observations(rows, size, dtype)
    table = diagnose(law, y, n_null=50, generator=0).table
    assert table.pce.between(0, 1).all()
    assert table.p_value.between(0, 1).all()
    whole = mixture(ROWS, size, dtype)
    for prerank in table.prerank.unique():
        value = CalibrationPenalty(prerank)(law, y, generator=0)
        assert 0 <= float(value) <= 1
    # Rows are judged one by one: the first two of many have the PITs that they have alone.
    alone = GaussianMixture(whole.logits[:rows], whole.loc[:rows], whole.scale_tril[:rows])
    several = observations(ROWS, size, dtype)
    together = pit(whole, several, "marginal")[:rows]
    same(pit(alone, several[:rows], "marginal"), together, 4 * torch.finfo(dtype).eps)


MANY = 10**6


def many(dtype):
    """Independent normals, the same in both precisions up to rounding, and draws of them."""
    g = torch.Generator().manual_seed(0)
    loc, noise = torch.randn(2, MANY, 2, generator=g, dtype=torch.float64).to(dtype)
    factor = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=dtype)
    return loc, factor, noise


@pytest.mark.parametrize("dtype", DTYPES)
def test_pce_of_a_million_rows(dtype):
    loc, factor, noise = many(dtype)
    law = MultivariateNormal(loc, scale_tril=factor.expand(MANY, 2, 2))
    y = loc + noise @ factor.mT
    for prerank in CLOSED:
        z = pit(law, y, prerank)
        # A perfect predictor: the floor, within five standard deviations.
        gap = (pce(z).double() - pce_floor(n=MANY)).abs().max()
        assert gap < 5 * pce_spread(MANY)
        # Counts of rows are exact, whatever the precision of the PITs.
        same(pce(z), pce(z.double()), 2 * torch.finfo(dtype).eps)
    z = pit(law, y, "marginal")
    same(z[:, 0], torch.special.ndtr((noise @ factor.mT)[:, 0].double()), 32 * EPS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_million_rows(dtype):
    loc, factor, noise = many(dtype)
    logits, factors = torch.zeros(MANY, 2, dtype=dtype), factor.expand(MANY, 2, 2, 2)
    law = GaussianMixture(logits, loc.unsqueeze(-2).expand(-1, 2, -1), factors)
    y = loc + noise @ factor.mT
    expected = 0.5 * noise.square().sum(-1) + math.log(2 * math.pi) + math.log(0.8)
    # z is rounded to 24 bits, and its square is at most some 30.
    same(nll(law, y), expected, 64 * torch.finfo(dtype).eps)
    # A perfect forecast scores half the mean distance of two draws, which is 1 / sqrt(pi) for one
    # standard normal target; means of a million have five standard errors.
    values = crps(law, y).double()
    error = 5 * float(values.std(0).max()) / MANY**0.5
    assert (values.mean(0) - 1 / math.sqrt(math.pi)).abs().max() < error
    pairs = 0.5 * ((noise - noise.roll(1, 0)) @ factor.mT).double().norm(dim=-1)
    energy = energy_score(law, y, n_samples=10, generator=0).double()
    error = 5 * float(energy.std() + 2 * pairs.std()) / MANY**0.5  # a draw is in two pairs
    assert (energy.mean() - pairs.mean()).abs() < error
    table = diagnose(law, y, preranks="marginal+location", n_samples=2, n_null=50).table
    assert table.p_value.between(0, 1).all()
    # Two floors, and what smooth levels add to them at 0 and 1: about 1e-4 each.
    assert float(CalibrationPenalty("marginal+location")(law, y)) < 2 * (pce_floor(n=MANY) + 1e-3)
