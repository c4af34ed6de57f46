"""What ties alone do to a predictor with a density."""

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, Poisson

from prerank import Ensemble, GaussianMixture, diagnose, pce, pit
from prerank.calibration import tie_error
from prerank.datasets import snap, spread_ties

N = 4000
SHARES = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])  # of the values 0, 1, 2 of two targets


def targets(n=N, seed=0):
    g = torch.Generator().manual_seed(seed)
    columns = [torch.multinomial(p, n, replacement=True, generator=g) for p in SHARES]
    return torch.stack(columns, 1).double()


def peaks(d, n=N, width=1e-3):
    """Narrow Gaussians at the values of one target."""
    loc = torch.arange(3.0, dtype=torch.float64).reshape(1, 3, 1).expand(n, 3, 1)
    factor = torch.full((n, 3, 1, 1), width, dtype=torch.float64)
    return GaussianMixture(SHARES[d].double().log().expand(n, 3), loc, factor)


@pytest.mark.parametrize("d", [0, 1])
def test_a_predictor_of_the_shares_has_this_error(d):
    y = targets()[:, d : d + 1]
    # A share has a standard error of at most .008, the error one of p/2 times that.
    assert float(pce(pit(peaks(d), y, "marginal"))) == pytest.approx(tie_error(y)[0], abs=0.01)
    exact = float(SHARES[d].square().sum()) / 4
    assert tie_error(y)[0] == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("d", [0, 1])
def test_spread_over_their_cells_the_same_shares_are_calibrated(d):
    y = spread_ties(targets()[:, d : d + 1], generator=1)
    edges = torch.tensor([-0.5, 0.5, 1.5, 2.5], dtype=torch.float64)
    cdf = torch.cat([torch.zeros(1), SHARES[d].cumsum(0)]).double()
    place = torch.bucketize(y, edges).clamp(1, 3)
    z = cdf[place - 1] + (y - edges[place - 1]) * (cdf[place] - cdf[place - 1])
    assert float(pce(z)) < 4 * 0.31 / N**0.5  # four times the floor


def test_rounded_samples_of_the_right_law_have_uniform_ranks():
    # Grades are what is left of a hidden normal variable: the predictor knows its law.
    g = torch.Generator().manual_seed(0)
    loc = torch.randn(N, 2, generator=g, dtype=torch.float64)
    hidden = torch.distributions.Normal(loc, 1)
    y = 3 * ((loc + torch.randn(N, 2, generator=g, dtype=torch.float64)) / 3).round().clamp(-1, 1)
    samples = loc + torch.randn(100, N, 2, generator=g, dtype=torch.float64)
    assert float(pce(pit(Independent(hidden, 1), y, "marginal")).mean()) > 0.01
    z = pit(Ensemble(snap(samples, y)), y, "marginal", generator=0)
    assert float(pce(z).max()) < 4 * 0.31 / N**0.5  # four times the floor


def test_errors_of_continuous_targets_vanish():
    y = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(tie_error(y), 1 / 4000)


def normal(n, d):
    return Independent(Normal(torch.zeros(n, d), torch.ones(n, d)), 1)


def test_a_diagnosis_says_what_to_do():
    y = targets(400)
    y[:, 0] += torch.rand(400, generator=torch.Generator().manual_seed(0))
    found = diagnose(normal(400, 2), y, preranks="marginal", generator=0)
    (remark,) = found.remarks
    assert "y1 (3 values, one in 8" in remark
    assert "y0" not in remark
    assert "round_to" in remark
    assert remark in str(found)


def test_it_says_nothing_where_there_is_nothing_to_do():
    y = targets(400)
    g = torch.Generator().manual_seed(0)
    continuous = torch.randn(400, 2, generator=g)
    assert diagnose(normal(400, 2), continuous, preranks="marginal", generator=0).remarks == ()
    # Predictors that know the values: the ties are broken at random, and all is well.
    counts = Independent(Poisson(torch.ones(400, 2)), 1)
    assert diagnose(counts, y, preranks="marginal", generator=0).remarks == ()
    members = Ensemble(torch.stack([targets(400, seed) for seed in range(1, 30)]))
    assert diagnose(members, y, preranks="marginal", generator=0).remarks == ()


def test_samples_that_never_meet_the_values_are_told():
    y = targets(400)
    g = torch.Generator().manual_seed(0)
    members = Ensemble(torch.randn(30, 400, 2, generator=g, dtype=torch.float64))
    assert len(diagnose(members, y, preranks="marginal", generator=0).remarks) == 1


def test_a_remark_draws_nothing_from_the_generator():
    continuous = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    states = []
    for y in (continuous, continuous.round()):
        g = torch.Generator().manual_seed(7)
        found = diagnose(normal(400, 2), y, preranks="scale", generator=g)
        states.append((len(found.remarks), g.get_state()))
    assert [count for count, _ in states] == [0, 1]
    assert torch.equal(states[0][1], states[1][1])
