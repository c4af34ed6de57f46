"""Duplicated rows, members and components, collinear targets, factors that are nearly singular."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import (
    CalibrationPenalty,
    Ensemble,
    GaussianMixture,
    MixtureRegressor,
    crps,
    diagnose,
    energy_score,
    nll,
    pit,
)
from prerank.distributions import Rounded
from prerank.errors import InputError
from properties.cases import DTYPES, mixture, observations, same

ROWS, SAMPLES, SIZE = 30, 40, (3, 2)
TARGETS = torch.tensor([1.0, 2.0, -4.0])
ALL = ["marginal", "location", "scale", "dependency", "pca", "pca(0.8)", "copula", "energy_score"]


def members(dtype):
    return mixture(ROWS, SIZE).sample((SAMPLES,), generator=3).to(dtype)


# Samples and observations that have lost a dimension or more.
DEGENERATE = {
    "duplicated members": lambda s, y: (s[:1].expand_as(s), y),
    "duplicated rows": lambda s, y: (s[:, :1].expand_as(s), y[:1].expand_as(y)),
    "collinear targets": lambda s, y: (s[..., :1] * TARGETS.to(s), y[..., :1] * TARGETS.to(y)),
    "equal targets": lambda s, y: (s[..., :1].expand_as(s), y[..., :1].expand_as(y)),
    "one constant target": lambda s, y: (s * torch.tensor([1, 1, 0]), y * torch.tensor([1, 1, 0])),
    "a point": lambda s, y: (torch.ones_like(s), torch.ones_like(y)),
    "a point elsewhere": lambda s, y: (torch.ones_like(s), y),
    "a point far away": lambda s, y: (torch.full_like(s, 1e12), torch.full_like(y, -1e12)),
    "a point at zero": lambda s, y: (torch.zeros_like(s), torch.zeros_like(y)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_samples(name, dtype):
    samples, y = DEGENERATE[name](members(dtype), observations(ROWS, SIZE, dtype))
    table = diagnose(Ensemble(samples), y, n_null=50, generator=0).table
    assert np.isfinite(table[["pce", "floor", "excess", "p_value", "ties"]].to_numpy()).all()
    for prerank in ALL:
        points = samples.clone().requires_grad_()
        value = CalibrationPenalty(prerank)(Ensemble(points), y, generator=0)
        (slope,) = torch.autograd.grad(value, points, materialize_grads=True)
        assert 0 <= float(value.detach()) <= 1, prerank
        assert bool(torch.isfinite(slope).all()), prerank
    points = samples.clone().requires_grad_()
    score = energy_score(Ensemble(points), y)
    (slope,) = torch.autograd.grad(score.sum(), points)
    assert bool(torch.isfinite(score).all() & torch.isfinite(slope).all())


def test_ties_of_degenerate_samples_are_broken_evenly():
    samples, y = torch.ones(SAMPLES, 10_000, 3), torch.ones(10_000, 3)
    for prerank in ("marginal", "scale", "dependency", "copula", "energy_score"):
        z = pit(Ensemble(samples), y, prerank, generator=0)[:, 0]
        # Uniform: the mean and the mean square within five standard errors.
        assert abs(float(z.mean()) - 1 / 2) < 5 * (1 / 12 / 10_000) ** 0.5, prerank
        assert abs(float(z.square().mean()) - 1 / 3) < 5 * (4 / 45 / 10_000) ** 0.5, prerank


@pytest.mark.parametrize("dtype", DTYPES)
def test_collinear_targets_tell_what_one_of_them_tells(dtype):
    samples, y = DEGENERATE["collinear targets"](members(dtype), observations(ROWS, SIZE, dtype))
    one = pit(Ensemble(samples[..., :1]), y[..., :1], "marginal", generator=0)
    # Multiples by powers of two are exact; the sign of the third target turns its ranks around.
    z = pit(Ensemble(samples), y, "marginal", generator=0)
    places = torch.stack([(samples < y).sum(0), (samples > y).sum(0)])
    same(((SAMPLES + 1) * z[:, :2]).floor(), places[0][:, :2].to(dtype), 0)
    same(((SAMPLES + 1) * z[:, 2]).floor(), places[1][:, 0].to(dtype), 0)
    same(((SAMPLES + 1) * one[:, 0]).floor(), places[0][:, 0].to(dtype), 0)
    # The first principal component is the line, oriented so that its entries have a positive sum.
    first = pit(Ensemble(samples), y, "pca(1)", generator=0)[:, 0]
    same(((SAMPLES + 1) * first).floor(), places[1][:, 0].to(dtype), 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicated_components_are_one(dtype):
    single, y = mixture(ROWS, (3, 1), dtype), observations(ROWS, (3, 1), dtype)
    logits = torch.randn(ROWS, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    copies = GaussianMixture(
        logits, single.loc.expand(-1, 50, -1), single.scale_tril.expand(-1, 50, -1, -1)
    )
    error = 50 * torch.finfo(dtype).eps  # of a sum over the components
    same(nll(copies, y), nll(single, y), error)
    same(crps(copies, y), crps(single, y), 4 * error)  # two terms that cancel in part
    for prerank in ("marginal", "location", "pca(1)"):
        same(pit(copies, y, prerank), pit(single, y, prerank), 4 * error)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("copies", [2, 100])
def test_duplicated_rows_have_the_same_answers(copies, dtype):
    law, y = mixture(ROWS, SIZE, dtype), observations(ROWS, SIZE, dtype)
    repeated = GaussianMixture(
        *(tensor.repeat_interleave(copies, 0) for tensor in (law.logits, law.loc, law.scale_tril))
    )
    error = 16 * torch.finfo(dtype).eps
    for score in (nll, crps, lambda law, y: pit(law, y, "marginal+location")):
        expected = score(law, y).repeat_interleave(copies, 0)
        same(score(repeated, y.repeat_interleave(copies, 0)), expected, error)


SMALL = [1e-3, 1e-6, 1e-9, 1e-12]

# Factors of unit size in which a target, a direction, all but a line, or everything is narrow.
FACTORS = {
    "a target": lambda e: [[e, 0, 0], [0.5, 1, 0], [-0.25, 0.5, 1]],
    "a direction": lambda e: [[1, 0, 0], [0.5, 1, 0], [-0.25, 0.5, e]],
    "a line": lambda e: [[1, 0, 0], [0.5, e, 0], [-0.25, 0, e]],
    "a point": lambda e: [[e, 0, 0], [0.5 * e, e, 0], [-0.25 * e, 0.5 * e, e]],
}


@pytest.mark.parametrize("where", FACTORS)
@pytest.mark.parametrize("small", SMALL)
def test_nearly_singular_factors(small, where):
    factor = torch.tensor(FACTORS[where](small)).double()
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(ROWS, 3, generator=g, dtype=torch.float64)
    y = noise @ factor.mT
    laws = {
        "normal": MultivariateNormal(
            torch.zeros(ROWS, 3).double(), scale_tril=factor.expand(ROWS, 3, 3)
        ),
        "mixture": GaussianMixture(
            torch.zeros(ROWS, 2).double(),
            torch.zeros(ROWS, 2, 3).double(),
            factor.expand(ROWS, 2, 3, 3),
        ),
    }
    log_det = factor.diagonal().log().sum()
    expected = 0.5 * (noise.square() + math.log(2 * math.pi)).sum(-1) + log_det
    margins = torch.special.ndtr(y / factor.norm(dim=-1))
    # y is rounded at its own size, which the inverse of the factor makes 1 / small times larger.
    whitening = 64 * torch.finfo(torch.float64).eps * (1 if where == "a point" else 1 / small)
    for name, law in laws.items():
        same(pit(law, y, "marginal"), margins, 1e-14)
        same(nll(law, y), expected, 1e-14 + whitening)
        assert bool(torch.isfinite(crps(law, y)).all()), name
        for prerank in ("pca", "hdr", "scale", "copula", "dependency", "energy_score"):
            z = pit(law, y, prerank, n_samples=20, generator=0)
            assert bool(((z >= 0) & (z <= 1)).all()), (name, prerank)


@pytest.mark.parametrize("where", FACTORS)
@pytest.mark.parametrize(
    ("dtype", "small"), [*zip(2 * DTYPES, SMALL, strict=True), (DTYPES[0], 1e-12)]
)
def test_training_through_nearly_singular_factors(dtype, small, where):
    factor = torch.tensor(FACTORS[where](small)).to(dtype).expand(ROWS, 2, 3, 3)
    parameters = [
        torch.zeros(ROWS, 2, dtype=dtype, requires_grad=True),
        torch.zeros(ROWS, 2, 3, dtype=dtype, requires_grad=True),
        factor.clone().requires_grad_(),
    ]
    law, y = GaussianMixture(*parameters), observations(ROWS, SIZE, dtype)
    penalty = CalibrationPenalty("marginal+location+scale+dependency+pca+hdr+copula")
    for loss in (
        penalty(law, y, generator=0),
        energy_score(law, y, n_samples=20, generator=0).mean(),
        crps(law, y).mean(),
    ):
        assert bool(torch.isfinite(loss))
        for slope in torch.autograd.grad(loss, parameters, retain_graph=True):
            assert bool(torch.isfinite(slope).all())


@pytest.mark.parametrize("diagonal", [0.0, -1e-12])
def test_a_factor_that_is_singular(diagonal):
    factor = torch.eye(3).double()
    factor[1, 1] = diagonal
    with pytest.raises(InputError, match="positive diagonal"):
        GaussianMixture(torch.zeros(1), torch.zeros(1, 3), factor.expand(1, 3, 3))


def table(rows):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 3)), rng.normal(size=(rows, 2))


# Rows to learn from that say less than they seem to.
TABLES = {
    "collinear targets": lambda x, y: (x, y[:, :1] * [1, 2]),
    "duplicated rows": lambda x, y: (x[[0, 1] * 20], y[[0, 1] * 20]),
    "one row": lambda x, y: (x[[0] * 40], y[[0] * 40]),
    "a constant target": lambda x, y: (x, y * [1, 0] + 3),
    "collinear inputs": lambda x, y: (x[:, :1] * [1, 2, -1], y),
    "constant inputs": lambda x, y: (0 * x + 7, y),
    "units far apart": lambda x, y: (x * [1e-12, 1, 1e12], y * [1e-12, 1e12]),
    "ten rows": lambda x, y: (x[:10], y[:10]),
}


@pytest.mark.parametrize("name", TABLES)
def test_estimators(name):
    x, y = TABLES[name](*table(40))
    model = MixtureRegressor(
        5,
        method="network",
        hidden=(8,),
        max_epochs=1,
        strength=1.0,
        preranks="marginal+hdr",
        random_state=0,
    ).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.score(x, y))
    law, observed = model.predict_dist(x), torch.from_numpy(y)
    if not isinstance(law, Rounded):  # duplicated rows have few values
        assert bool(torch.isfinite(nll(law, observed)).all())
    assert bool(torch.isfinite(energy_score(law, observed, generator=0)).all())
    assert model.diagnose(x, y).table.pce.between(0, 1).all()


def test_two_rows_are_too_few_to_learn_from():
    with pytest.raises(InputError, match="at least 10 rows"):
        MixtureRegressor().fit(*table(2))
