"""Rounded distributions: probabilities, means, limits and draws agree, and PITs are uniform."""

import json

import pytest
import torch
from torch.distributions import (
    Independent,
    Laplace,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
)

from prerank import Ensemble, GaussianMixture, diagnose, energy_score, nll, pce, pit
from prerank.datasets import snap
from prerank.distributions import (
    Cells,
    Levels,
    Rounded,
    Rounding,
    affine,
    draw,
    round_to,
)
from prerank.errors import (
    GradientError,
    InputTypeError,
    NotApplicableError,
    PrerankError,
    ShapeError,
)
from prerank.penalty import CalibrationPenalty
from truths import CELLS, gaussian_mixture, independent_normal, multivariate_normal

F64 = torch.float64


def low_rank(*batch, dim=4, seed=0):
    normal = multivariate_normal(*batch, dim=dim, seed=seed)
    return LowRankMultivariateNormal(normal.loc, normal.scale_tril[..., :2], normal.variance)


BASES = {
    "mixture": gaussian_mixture,
    "normal": multivariate_normal,
    "low rank": low_rank,
    "independent": independent_normal,
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_moments_and_probabilities_are_those_of_draws(base):
    dist, n = Rounded(base(5), CELLS), 40_000
    draws = dist.sample((n,), generator=0)
    error = draws.std(0) / n**0.5
    assert bool(((draws.mean(0) - dist.mean).abs() < 4.5 * error).all())  # 20 means
    squares = (draws - dist.mean).square()
    error = squares.std(0) / n**0.5
    assert bool(((squares.mean(0) - dist.variance).abs() < 4.5 * error).all())
    for d in (0, 1, 3):
        share = (draws[..., d].unsqueeze(-1) == CELLS[d].values).double().mean(0)
        exact = dist.probabilities(d)
        noise = (exact * (1 - exact) / n).sqrt()
        assert bool(((share - exact).abs() <= 4.5 * noise + 1e-12).all())
    torch.testing.assert_close(dist.probabilities(0).sum(-1), torch.ones(5, dtype=F64))


@pytest.mark.parametrize(
    "cells", [Cells.nearest(torch.arange(2000.0)), CELLS[3]], ids=["counts", "atoms"]
)
def test_moments_far_from_the_first_value_are_exact_in_single_precision(cells):
    loc = torch.tensor([[1500.0], [1.0], [-1e4]], dtype=F64)
    scale = torch.tensor([[0.7], [40.0], [1.0]], dtype=F64)
    exact, single = (
        Rounded(Independent(Normal(loc.to(dtype), scale.to(dtype)), 1), [cells])
        for dtype in (F64, torch.float32)
    )
    error = (single.mean.double() - exact.mean).abs()
    assert bool((error <= 1e-6 * exact.mean.abs() + 1e-5 * exact.variance.sqrt()).all())
    torch.testing.assert_close(single.variance.double(), exact.variance, rtol=1e-4, atol=0)


def test_limits_are_the_shares_of_draws_below_and_up_to_a_value():
    dist, n = Rounded(gaussian_mixture(3), CELLS), 40_000
    draws = dist.sample((n,), generator=0)
    for value in (-1.0, 0.0, 0.3, 0.5, 3.0, 9.0):
        y = torch.full((3, 4), value, dtype=F64)
        for exact, share in zip(dist.limits(y), (draws < y, draws <= y), strict=True):
            noise = (exact * (1 - exact) / n).sqrt()
            assert bool(((share.double().mean(0) - exact).abs() <= 4.5 * noise + 1e-9).all())


@pytest.mark.parametrize("name", ["mixture", "laplace"])
def test_pits_are_uniform_in_closed_form_and_by_ranks(name):
    n = 400
    bases = {
        "mixture": gaussian_mixture(n),
        "laplace": Independent(Laplace(torch.zeros(n, 4), 1.0), 1),
    }
    dist = Rounded(bases[name], CELLS)
    y = dist.sample(generator=1)
    found = diagnose(dist, y, n_samples=30, n_null=200, generator=0)
    assert found.skipped.keys() == {"hdr"}
    assert float(found.table.p_holm.min()) > 0.01
    assert found.remarks == ()  # it knows the values


def test_closed_form_pits_are_the_limit_of_ranks():
    n = 400
    dist = Rounded(gaussian_mixture(n), CELLS)
    y = dist.sample(generator=1)
    left, right = dist.limits(y)
    for closed_forms in (True, False):
        z = pit(dist, y, "marginal", n_samples=1000, generator=0, closed_forms=closed_forms)
        slack = 0 if closed_forms else 5 * 0.5 / 1000**0.5  # a share of 1000 draws
        assert bool(((z >= left - slack) & (z <= right + slack)).all())


def test_a_wrong_probability_is_found():
    n = 4000
    base = MultivariateNormal(torch.zeros(n, 1, dtype=F64), torch.eye(1, dtype=F64))
    truth, guess = (Rounded(base, [Levels.at([0.0, 1.0], [edge])]) for edge in (0.0, 0.3))
    y = truth.sample(generator=0)
    # P(0) is .5 and forecast as .618: the PITs of zeros reach up to .618.
    assert float(pce(pit(guess, y, "marginal", generator=0))) == pytest.approx(0.059, abs=0.015)


def test_other_units_move_values_and_cells():
    dist = Rounded(gaussian_mixture(50), CELLS)
    y = dist.sample(generator=1)
    loc = torch.zeros(4, dtype=F64)
    scale = torch.tensor([2.0, 0.1, 3.0, 1 / 3], dtype=F64)
    moved = affine(dist, loc, scale)
    for own, other in zip(dist.limits(y), moved.limits(scale * y), strict=True):
        torch.testing.assert_close(own, other)
    torch.testing.assert_close(moved.mean, scale * dist.mean)
    assert diagnose(dist, y, scale=[1.0, 2.0, 3.0, 4.0], preranks="marginal+scale").remarks == ()


def test_precision_follows_the_base():
    base = gaussian_mixture(50)
    parts = (p.float() for p in (base.logits, base.loc, base.scale_tril))
    dist = Rounded(GaussianMixture(*parts), CELLS)
    values = torch.tensor([0.1, 0.2, 0.3], dtype=F64)
    tenths = Rounded(dist.base, [Cells.nearest(values)] * 4)
    draws = draw(tenths, 10, generator=0).points
    assert draws.dtype == dist.mean.dtype == dist.probabilities(0).dtype == torch.float32
    # Values of float64 tables meet those of float32 forecasts.
    y = values[torch.arange(200).remainder(3)].reshape(50, 4)
    left, right = tenths.limits(y.float())
    assert bool((right > left).all())
    assert pit(tenths, y, "marginal", generator=0).dtype == torch.float32


def test_rounding_to_the_values_of_a_table_is_what_snap_does():
    base, y = gaussian_mixture(50), torch.randn(30, 4, dtype=F64).round()
    rounded = round_to(base, y)
    assert torch.equal(
        draw(rounded, 10, generator=0).points, snap(draw(base, 10, generator=0).points, y)
    )
    members = Ensemble(torch.randn(10, 50, 4, dtype=F64))
    assert torch.equal(round_to(members, y).samples, snap(members.samples, y))


def test_expanded():
    dist = Rounded(gaussian_mixture(5), CELLS).expand((3, 5))
    assert dist.batch_shape == (3, 5)
    assert dist.mean.shape == (3, 5, 4)


def test_the_penalty_of_margins_reaches_the_base():
    base = gaussian_mixture(200)
    y = Rounded(base, CELLS).sample(generator=0)
    loc = (base.loc + 0.5).requires_grad_()
    moved = Rounded(GaussianMixture(base.logits, loc, base.scale_tril), CELLS)
    value = CalibrationPenalty("marginal")(moved, y, generator=0)
    (gradient,) = torch.autograd.grad(value, loc)
    assert bool((gradient.sum((0, 1)) > 0).all())  # back to where it was
    with pytest.raises(GradientError, match="Rounded"):
        CalibrationPenalty("scale")(moved, y, generator=0)


def test_what_it_cannot_do_is_said():
    dist = Rounded(gaussian_mixture(5), CELLS)
    y = torch.zeros(5, 4, dtype=F64)
    with pytest.raises(NotApplicableError, match=r"probabilities\(d\)"):
        nll(dist, y)
    with pytest.raises(NotApplicableError, match="hdr needs the joint probability"):
        pit(dist, y, "hdr")
    with pytest.raises(NotApplicableError, match="continuous"):
        dist.probabilities(2)
    with pytest.raises(NotApplicableError, match="margins of Independent"):
        Rounded(Independent(Laplace(torch.zeros(5, 4), 1.0), 1), CELLS).limits(y)
    with pytest.raises(ShapeError, match="cells has 1 entries"):
        Rounded(gaussian_mixture(5), CELLS[:1])
    with pytest.raises(InputTypeError, match="round_to"):
        Rounded(Ensemble(torch.zeros(3, 5, 4)), CELLS)
    with pytest.raises(ShapeError, match=r"\(M, 4\)"):
        round_to(gaussian_mixture(5), y[:, :2])


# --- Rounding ---------------------------------------------------------------------------------


def targets(n, seed=0):
    """Counts, rain and a continuous target with a common cause."""
    g = torch.Generator().manual_seed(seed)
    cause, *noise = torch.randn(4, n, generator=g, dtype=F64)
    rain = (cause + noise[1]).clamp(min=0)
    count = (0.7 * cause + noise[0]).exp().floor().clamp(max=9)
    return torch.stack([count, rain, cause + noise[2]], 1)


def test_spread_targets_keep_a_forecast_of_them_calibrated_when_rounded():
    # A normal forecast of rank-preserving spreads: calibrated for them, and for their values.
    y = targets(4000)
    rounding = Rounding.of(y)
    assert rounding.words(["count", "rain", "level"]) == ("count: 10 values", "rain: atoms at 0")
    spread = rounding.spread(y, generator=1)
    assert torch.equal(spread[:, 2], y[:, 2])
    dist = rounding(MultivariateNormal(spread.mean(0).expand(len(y), 3), spread.mT.cov()))
    shares = torch.stack([(y[:, 0] == v).double().mean() for v in y[:, 0].unique()])
    # The mean and the variance of the spreads inside their cells are a matter of chance.
    torch.testing.assert_close(dist.probabilities(0)[0], shares, atol=3 / 4000**0.5, rtol=0)
    plain = MultivariateNormal(y.mean(0).expand(len(y), 3), y.mT.cov())
    scores = [
        energy_score(forecast, y, n_samples=20, generator=0).mean()
        for forecast in (dist, round_to(plain, y))
    ]
    assert scores[0] < scores[1]


def test_a_rounding_is_written_as_json_and_read_again():
    y = targets(2000)
    rounding = Rounding.of(y)
    again = Rounding.from_json(json.loads(json.dumps(rounding.as_json(), allow_nan=False)))
    assert torch.equal(rounding.spread(y, generator=1), again.spread(y, generator=1))
    base = multivariate_normal(20, dim=3)
    assert torch.equal(rounding(base).mean, again(base).mean)
    assert rounding == again
    assert len({rounding, again, Rounding.of(y[:, :2])}) == 2
    assert rounding != Rounding.of(y + 1)
    assert rounding != "a rounding"


@pytest.mark.parametrize(
    ("stored", "match"),
    [
        ([{"values": [0.0]}], "cells of a target"),
        ([None, 3], "cells of a target.* dict or None, got 3"),
        ([{"values": ["a"], "edges": []}], "values"),
        (3, "a list with an entry for each target, got 3"),
        ({"values": [0.0]}, "a list with an entry for each target"),
    ],
)
def test_what_is_no_stored_rounding_is_refused(stored, match):
    with pytest.raises(PrerankError, match=match):
        Rounding.from_json(stored)


def test_nothing_is_done_to_continuous_targets():
    y = torch.randn(500, 3, dtype=F64)
    base = multivariate_normal(20, dim=3)
    for rounding in (Rounding.of(y), Rounding.none(3)):
        assert not rounding
        assert rounding(base) is base
        assert torch.equal(rounding.spread(y), y)
        assert rounding.words(["a", "b", "c"]) == ()
    with pytest.raises(ShapeError, match="2 targets"):
        Rounding.none(3).spread(y[:, :2])


def test_members_of_an_ensemble_are_rounded():
    y = targets(2000)
    rounding = Rounding.of(y)
    spread = rounding.spread(y, generator=1)
    members = rounding(Ensemble(spread[torch.randint(2000, (30, 50))]))
    assert isinstance(members, Ensemble)
    assert set(members.samples[..., 0].unique().tolist()) <= set(range(10))


def test_spreads_follow_the_seed():
    y = targets(200)
    rounding = Rounding.of(y)
    assert torch.equal(rounding.spread(y, generator=3), rounding.spread(y, generator=3))
    assert not torch.equal(rounding.spread(y, generator=3), rounding.spread(y, generator=4))


def test_normal_margins_of_the_rounding_are_not_shared_between_targets():
    base = Independent(Normal(torch.zeros(2, 2), torch.tensor([1.0, 3.0])), 1)
    dist = Rounded(base, [Cells.nearest([-1.0, 0.0, 1.0])] * 2)
    narrow, wide = (dist.probabilities(d)[0, 1].item() for d in range(2))
    assert (round(narrow, 3), round(wide, 3)) == (0.383, 0.132)
