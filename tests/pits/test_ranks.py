"""Rank PITs: the formula, its invariances, and the exchangeability it rests on."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from prerank import Ensemble, GaussianMixture, diagnose, null_pce, pce, pit
from prerank.distributions import Rounded
from prerank.pits import project_pits, rank_pit
from prerank.pits.ranks import _pool_ranks
from prerank.preranks import (
    HDR,
    PCA,
    Copula,
    Custom,
    Dependency,
    Location,
    Marginal,
    PreRank,
    Projection,
    Scale,
    ThresholdExceedance,
    parse,
)
from truths import (
    PRERANKS,
    TRUTHS,
    discrete,
    gaussian_mixture,
    independent_normal,
    labels,
    multivariate_normal,
    skewness,
)

POINTWISE: list[PreRank] = [
    Marginal(),
    Location(),
    Scale(),
    Dependency(),
    Dependency(2),
    ThresholdExceedance(0.3),
    HDR(),
    Custom(skewness),
]


@pytest.mark.parametrize(
    ("observed", "samples", "uniform", "expected"),
    [
        (2.0, [1.0, 3.0, 5.0], 0.5, 1.5 / 4),  # one below, none tied
        (2.0, [1.0, 2.0, 2.0], 0.25, (1 + 0.25 * 3) / 4),  # one below, two tied
        (2.0, [2.0, 2.0, 2.0], 0.75, 0.75),  # all tied: uniform
        (0.0, [1.0, 2.0], 0.0, 0.0),
        (3.0, [1.0, 2.0], 0.999, 2.999 / 3),
        (-1.0, [-2.0, -1.0, 0.0, float("inf")], 0.5, (1 + 0.5 * 2) / 5),
    ],
)
def test_rank_pit_by_hand(observed, samples, uniform, expected):
    z = rank_pit(
        torch.tensor([observed], dtype=torch.float64),
        torch.tensor(samples, dtype=torch.float64).unsqueeze(-1),
        torch.tensor(uniform, dtype=torch.float64),
    )
    assert z.item() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("samples", "weights", "expected"),
    [
        ([1.0, 3.0, 5.0], [0.5, 0.3, 0.2], 0.5),  # mass below, no tie
        ([1.0, 2.0, 2.0], [0.5, 0.3, 0.2], 0.5 + 0.25 * 0.5),
        ([1.0, 2.0, 3.0], [0.0, 1.0, 0.0], 0.25),
        ([3.0, 4.0, 5.0], [0.2, 0.2, 0.6], 0.0),
    ],
)
def test_weighted_rank_pit_by_hand(samples, weights, expected):
    z = rank_pit(
        torch.tensor([[2.0]], dtype=torch.float64),
        torch.tensor(samples, dtype=torch.float64).reshape(-1, 1, 1),
        torch.tensor(0.25, dtype=torch.float64),
        torch.tensor(weights, dtype=torch.float64).reshape(-1, 1),
    )
    assert z.item() == pytest.approx(expected, abs=1e-15)


def test_rank_pit_treats_rows_and_components_alone():
    g = torch.Generator().manual_seed(0)
    values = torch.randint(4, (6, 3, 2), generator=g).double()
    uniform = torch.rand(3, 2, generator=g, dtype=torch.float64)
    z = rank_pit(values[0], values[1:], uniform)
    for n in range(3):
        for j in range(2):
            sample, t = values[1:, n, j].tolist(), values[0, n, j].item()
            count = sum(s < t for s in sample) + uniform[n, j].item() * (sample.count(t) + 1)
            assert z[n, j].item() == pytest.approx(count / 6, abs=1e-15)


# The proposition: strictly increasing transforms of a pre-rank leave the PIT as it is. In floating
# point two values may merge; the tests check that none do.
INCREASING = {
    "affine": lambda t: 3 * t - 7,
    "exp": torch.exp,
    "arctan": torch.arctan,
    "cube": lambda t: t**3,
    "softsign": lambda t: t / (1 + t.abs()),
}


@pytest.mark.parametrize("transform", INCREASING)
@pytest.mark.parametrize("base", POINTWISE, ids=labels(POINTWISE))
def test_increasing_transforms_change_no_bit(base, transform):
    g = INCREASING[transform]
    dist = gaussian_mixture(200, dim=4, seed=7)
    y = dist.sample(generator=8)

    def plain(points: Tensor) -> Tensor:
        return base.project(points, dist)

    seen = []

    def transformed(points: Tensor) -> Tensor:
        values = plain(points)
        seen.append((values, g(values)))
        return g(values)

    z = pit(dist, y, plain, n_samples=50, generator=9)
    assert torch.equal(pit(dist, y, transformed, n_samples=50, generator=9), z)
    [(before, after)] = seen
    assert before.unique().numel() == after.unique().numel()
    # The pre-rank itself, as a class, is the same function too.
    assert torch.equal(pit(dist, y, base, n_samples=50, generator=9, closed_forms=False), z)


TIED = arrays(np.float64, st.tuples(st.integers(2, 12), st.just(3)), elements=st.integers(-3, 3))
UNIFORMS = arrays(np.float64, (3,), elements=st.floats(0, 1))
DECREASING = {
    "minus": lambda t: -t,
    "exp of minus": lambda t: (-t).exp(),
    "reciprocal": lambda t: 1 / (t + 10),
    "minus cube": lambda t: 5 - t**3,
}


@pytest.mark.parametrize("transform", INCREASING)
@given(values=TIED, uniform=UNIFORMS)
def test_increasing_transforms_of_tied_values_change_no_bit(transform, values, uniform):
    t, u = torch.from_numpy(values), torch.from_numpy(uniform)
    g = INCREASING[transform](t)
    assert torch.equal(rank_pit(g[0], g[1:], u), rank_pit(t[0], t[1:], u))


@pytest.mark.parametrize("transform", DECREASING)
@given(values=TIED, uniform=UNIFORMS)
def test_decreasing_transforms_mirror_the_pit(transform, values, uniform):
    t, u = torch.from_numpy(values), torch.from_numpy(uniform)
    g = DECREASING[transform](t)
    torch.testing.assert_close(
        rank_pit(g[0], g[1:], 1 - u), 1 - rank_pit(t[0], t[1:], u), rtol=0, atol=1e-12
    )


@given(values=TIED, seed=st.integers(0, 1000))
def test_pool_ranks_are_the_rank_pits_of_each_member(values, seed):
    pool = torch.from_numpy(values).unsqueeze(-1)  # three rows, one component
    g = torch.Generator().manual_seed(seed)
    uniform = torch.rand(pool.shape, dtype=torch.float64, generator=g)
    everyone = _pool_ranks(pool, uniform)
    for i in range(len(pool)):
        others = torch.cat([pool[:i], pool[i + 1 :]])
        torch.testing.assert_close(
            everyone[i], rank_pit(pool[i], others, uniform[i]), rtol=0, atol=1e-15
        )


@pytest.mark.parametrize("spec", ["marginal", "pca"])
def test_stand_ins_are_the_pits_of_the_other_members(spec):
    law = discrete(40, dim=3, seed=1) if spec == "marginal" else gaussian_mixture(40, dim=3)
    members, y = law.sample((9,)), law.sample()

    def stream():
        return torch.Generator().manual_seed(5)

    [result] = project_pits(
        Ensemble(members), y, parse(spec), generator=stream(), with_null_pits=True
    )
    assert result.null_pits.shape == (9, 40, 3)
    uniform = torch.rand(10, 40, 3, dtype=torch.float64, generator=stream())
    assert torch.equal(pit(Ensemble(members), y, spec, generator=stream()), result.z)
    for i in range(9):
        # Member i and the observation change places.
        swapped = members.clone()
        swapped[i] = y
        [other] = project_pits(Ensemble(swapped), members[i], parse(spec), generator=stream())
        shift = (uniform[i + 1] - uniform[0]) / 10
        if spec == "pca":  # no ties, so the uniforms of the two calls move Z by a known amount
            torch.testing.assert_close(result.null_pits[i], other.z + shift, rtol=0, atol=1e-12)
        else:
            others = torch.cat([y[None], members[:i], members[i + 1 :]])
            expected = rank_pit(members[i], others, uniform[i + 1])
            torch.testing.assert_close(result.null_pits[i], expected, rtol=0, atol=1e-15)


def test_stand_ins_of_closed_forms_are_pits_of_fresh_draws():
    dist = multivariate_normal(4, dim=2)
    [result] = project_pits(
        dist, dist.sample(), (Marginal(),), n_samples=2000, generator=5, with_null_pits=True
    )
    assert (result.method, result.null_pits.shape) == ("closed form", (2000, 4, 2))
    # The dependence of the components is that of the targets: correlations of the probits, with a
    # standard error below 1 / sqrt(2000); five of them.
    probits = torch.special.ndtri(result.null_pits.double())
    for n in range(4):
        factor = dist.scale_tril[n]
        expected = (factor[1, 0] / factor[1].norm()).item()
        assert torch.corrcoef(probits[:, n].mT)[0, 1].item() == pytest.approx(expected, abs=0.112)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("prerank", PRERANKS, ids=labels(PRERANKS))
def test_preranks_treat_the_members_of_a_pool_alike(prerank, truth):
    # Reordering the pool reorders T and nothing else; equal points get exactly equal values, or
    # ties would be decided by rounding. PCA is the distribution's or the pool's, both symmetric.
    dist = TRUTHS[truth](30, dim=4, seed=2)
    if prerank.needs_log_prob and isinstance(dist, Rounded):
        pytest.skip("a rounded distribution has no density")
    pool = dist.sample((9,))
    pool = torch.cat([pool, pool[:4]])
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    values = prerank.project(pool, dist)
    moved = prerank.project(pool[order], dist)
    torch.testing.assert_close(moved, values[order], rtol=1e-9, atol=1e-9)
    if prerank.needs_log_prob and isinstance(dist, GaussianMixture):
        # Products of matrices, which round by place: draws of a density have no ties to break.
        torch.testing.assert_close(values[9:], values[:4], rtol=1e-12, atol=1e-12)
    else:
        assert torch.equal(values[9:], values[:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_pits_do_not_exceed_one(dtype):
    # Normalised weights sum to 1 up to rounding, on either side of it.
    g = torch.Generator().manual_seed(0)
    members = torch.randn(100, 500, 2, generator=g, dtype=dtype)
    dist, y = Ensemble(members, torch.rand(100, 500, generator=g)), torch.full((500, 2), 50.0)
    assert (dist.weights.sum(0) > 1).any()
    z = pit(dist, y, "marginal", generator=0)
    assert z.max() <= 1
    torch.testing.assert_close(z, torch.ones_like(z))
    assert (diagnose(dist, y, preranks="marginal").table.pce > 0.48).all()


N_TRAP = 20_000


def largest_error_by_chance() -> float:
    """PCE that uniform PITs exceed once in 10,000 times."""
    return float(np.quantile(null_pce(N_TRAP), 0.9999))


def self_dominating_copula(y: Tensor, samples: Tensor, seed: int) -> Tensor:
    """Trap: a sample is counted among its own dominators, and the observation is not."""

    def dominated(point: Tensor) -> Tensor:
        lower = torch.ones(samples.shape[:-1], dtype=torch.bool)
        for d in range(samples.shape[-1]):
            lower &= samples[..., d] <= point[..., d]
        return lower.sum(0).unsqueeze(-1)

    counts = torch.stack([dominated(point) for point in samples])
    g = torch.Generator().manual_seed(seed)
    uniform = torch.rand(len(y), 1, dtype=torch.float64, generator=g)
    return rank_pit(dominated(y), counts, uniform)


@pytest.mark.parametrize(
    ("dim", "size", "wrong"),
    # How wrong depends on the law: with 100 samples 0.012 to 0.021 for D = 2, 0.064 to 0.11 for
    # D = 4, 0.49 for D = 14 were measured. With fewer samples more points dominate no other.
    [
        (2, 20, 0.02),
        (4, 20, 0.1),
        pytest.param(2, 100, 0.009, marks=pytest.mark.slow),
        pytest.param(4, 100, 0.03, marks=pytest.mark.slow),
        pytest.param(14, 100, 0.4, marks=pytest.mark.slow),
    ],
)
def test_copula_that_counts_self_domination_calls_a_perfect_model_wrong(dim, size, wrong):
    dist = multivariate_normal(N_TRAP, dim=dim, seed=dim)
    y, samples = dist.sample(), dist.sample((size,))
    rows = 2_000 if wrong >= 0.4 else N_TRAP  # so large an error needs no more
    flawed = pce(self_dominating_copula(y[:rows], samples[:, :rows], seed=1))
    ours = pce(pit(Ensemble(samples), y, Copula(), generator=1))
    print(f"copula, D = {dim}, S = {size}: flawed {flawed.item():.4f}, ours {ours.item():.4f}")
    assert flawed.item() > max(wrong, largest_error_by_chance())
    assert ours.item() < largest_error_by_chance()


def test_components_fitted_on_the_samples_alone_call_a_perfect_model_wrong():
    dist = multivariate_normal(N_TRAP, dim=3, seed=3)
    y, samples = dist.sample(), dist.sample((10,))
    ensemble = Ensemble(samples)
    vectors = torch.linalg.eigh(ensemble.covariance_matrix)[1].mT.flip(-2)
    flawed = pce(pit(ensemble, y, Projection(vectors), generator=1))
    # The samples spread most along their first component and least along their last.
    assert bool((flawed[[0, -1]] > 2 * largest_error_by_chance()).all())
    for judged in (
        pit(ensemble, y, "pca", generator=1),  # of the pool
        pit(dist, y, "pca", n_samples=10, generator=1, closed_forms=False),  # of the law
        pit(dist, y, "pca"),
    ):
        assert bool((pce(judged) < largest_error_by_chance()).all())


def test_pca_uses_the_covariance_of_the_distribution_where_it_is_known():
    dist = multivariate_normal(30, dim=3, seed=3)
    pool = dist.sample((6,))
    own = PCA().directions(dist, pool)
    assert torch.equal(own, PCA().directions(dist))
    pooled = PCA().directions(Ensemble(pool[1:]), pool)
    assert not torch.allclose(own, pooled, atol=1e-2)


@given(values=TIED, uniform=UNIFORMS)
def test_equal_weights_are_within_one_rank_of_no_weights(values, uniform):
    t, u = torch.from_numpy(values), torch.from_numpy(uniform)
    size = len(t) - 1
    weights = torch.full((size,), 1 / size, dtype=torch.float64)
    plain = rank_pit(t[0], t[1:], u)
    weighted = rank_pit(t[0], t[1:], u, weights)
    # Without weights the observation counts as one more sample: Z = (S Z_w + U) / (S + 1).
    torch.testing.assert_close(plain, (size * weighted + u) / (size + 1), rtol=0, atol=1e-12)
    assert bool(((plain - weighted).abs() <= 1 / (size + 1) + 1e-12).all())


ENSEMBLE_PRERANKS = [p for p in PRERANKS if not p.needs_log_prob]


def equal_weight_cases():
    """Each pre-rank with 16 and 100 members."""
    cases = []
    for prerank in ENSEMBLE_PRERANKS:
        for size in (16, 100):
            cases.append(pytest.param(prerank, size, id=f"{prerank.label}-{size}"))
    return cases


@pytest.mark.parametrize(("prerank", "size"), equal_weight_cases())
def test_ensemble_with_equal_weights_is_within_one_rank_of_one_without(prerank, size):
    # Sums of weights of 1/16 are exact. Those of 1/100 round differently in another order, and
    # have to tie all the same where counts do.
    law = independent_normal(300, dim=4)
    y, samples = law.sample(), law.sample((size,))
    plain, weighted = (
        project_pits(Ensemble(samples, weights), y, (prerank,), generator=3)[0]
        for weights in (None, np.ones(size))
    )
    assert (plain.method, weighted.method) == ("ranks", "weighted ranks")
    torch.testing.assert_close(weighted.z, plain.z, rtol=0, atol=1 / (size + 1) + 1e-12)
    torch.testing.assert_close(weighted.ties, plain.ties)
    assert weighted.null_pits is None


OTHERS = [p for p in PRERANKS if p != Scale()]


@pytest.mark.parametrize("second", OTHERS, ids=labels(OTHERS))
def test_preranks_of_one_call_share_their_draws(second):
    dist = gaussian_mixture(100, dim=4, seed=4)
    y = dist.sample(generator=5)
    pools = []

    def watch(points: Tensor) -> Tensor:
        pools.append(points)
        return points.sum(-1)

    z = pit(dist, y, [Scale(), watch, second, watch], generator=0)
    assert torch.equal(z[:, :1], pit(dist, y, "scale", generator=0))
    pit(dist, y, watch, generator=0)
    before, after, alone = pools
    assert torch.equal(before, after)
    assert torch.equal(before, alone)
    assert torch.equal(before[0], y)


def test_text_names_the_same_preranks_in_the_same_order():
    dist = gaussian_mixture(100, dim=4, seed=4)
    y = dist.sample(generator=5)
    z = pit(dist, y, "scale+hdr", generator=0)
    assert z.shape == (100, 2)
    assert torch.equal(z[:, :1], pit(dist, y, "scale", generator=0))
    assert torch.equal(z, pit(dist, y, [Scale(), HDR()], generator=0))


def test_ties_are_reported_as_a_fraction():
    members = torch.tensor([[[0.0, 1.0]], [[0.0, 2.0]], [[3.0, 1.0]], [[0.0, 5.0]]])
    [result] = project_pits(Ensemble(members), [[0.0, 1.0]], (Marginal(),), generator=0)
    torch.testing.assert_close(result.ties, torch.tensor([0.75, 0.5]))


def test_values_stored_in_float32_tie_with_those_in_float64():
    levels = np.array([0.1, 0.2, 0.3])
    rng = np.random.default_rng(0)
    members, y = levels[rng.integers(0, 3, (20, 500, 2))], levels[rng.integers(0, 3, (500, 2))]
    double, single = (
        pit(Ensemble(members), values, "marginal", generator=0)
        for values in (y, y.astype(np.float32))
    )
    assert double.dtype == single.dtype == torch.float64
    for z in (double, single):
        assert pce(z).max() < 1.13 / 500**0.5  # the 99.99 % point under uniformity


def test_energy_scores_of_equal_distances_tie():
    g = torch.Generator().manual_seed(0)
    pool = torch.randint(0, 2, (4, 20_000, 3), generator=g).float()
    shuffled = pool[[2, 0, 3, 1]]
    (prerank,) = parse("energy_score")
    values, moved = (prerank.project(p, Ensemble(p)) for p in (pool, shuffled))
    below = (values[1:] < values[0]).sum(0)
    also = (moved[[0, 2, 3]] < moved[1]).sum(0)
    assert (below == also).double().mean() > 0.999


def test_null_pits_of_a_stack_are_those_of_its_members():
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(4, 3, 6, 2, generator=generator)  # (S, M, N, D)
    y = torch.randn(3, 6, 2, generator=generator)
    options = {"generator": 0, "with_null_pits": True}
    [whole] = project_pits(Ensemble(samples), y, (Marginal(),), **options)
    assert whole.null_pits.shape == (4, 3, 6, 2)
    for member in range(3):
        [alone] = project_pits(Ensemble(samples[:, member]), y[member], (Marginal(),), **options)
        torch.testing.assert_close(whole.z[member], alone.z)
        torch.testing.assert_close(whole.null_pits[:, member], alone.null_pits)
