"""A stack of predictors in one call gives what a call for each of them gives."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from prerank import (
    Ensemble,
    GaussianMixture,
    ProjectedCalibrationError,
    crps,
    diagnose,
    energy_score,
    nll,
    pce,
    pit,
    pit_histogram,
    reliability_curve,
    smooth_pit,
    variogram_score,
)
from prerank.distributions import Bounded, Rounded
from prerank.pits import project_pits
from prerank.preranks import PAPER, PCA, PreRank
from truths import (
    PRERANKS,
    bounded,
    gaussian_mixture,
    independent_normal,
    multivariate_normal,
    rounded,
)

M, N, DIM = 3, 40, 4


def ensemble(*batch: int, dim: int = DIM, seed: int = 0) -> Ensemble:
    g = torch.Generator().manual_seed(seed)
    return Ensemble(torch.randn(12, *batch, dim, generator=g, dtype=torch.float64))


def weighted_ensemble(*batch: int, dim: int = DIM, seed: int = 0) -> Ensemble:
    g = torch.Generator().manual_seed(seed)
    return Ensemble(
        torch.randn(12, *batch, dim, generator=g, dtype=torch.float64),
        0.1 + torch.rand(12, *batch, generator=g, dtype=torch.float64),
    )


FAMILIES: dict[str, Callable[..., Distribution]] = {
    "gaussian mixture": gaussian_mixture,
    "multivariate normal": multivariate_normal,
    "independent normal": independent_normal,
    "ensemble": ensemble,
    "weighted ensemble": weighted_ensemble,
    "rounded": rounded,
    "bounded": bounded,
}
WITHOUT_DENSITY = ("ensemble", "weighted ensemble", "rounded")


def member(dist: Distribution, m: int) -> Distribution:
    """One predictor of a stack, made from its own parameters."""
    if isinstance(dist, GaussianMixture):
        return GaussianMixture(dist.logits[m], dist.loc[m], dist.scale_tril[m])
    if isinstance(dist, MultivariateNormal):
        return MultivariateNormal(dist.loc[m], scale_tril=dist.scale_tril[m])
    if isinstance(dist, Ensemble):
        return Ensemble(dist.samples[:, m], None if dist.weights is None else dist.weights[:, m])
    if isinstance(dist, Rounded):
        return Rounded(member(dist.base, m), dist.cells)
    if isinstance(dist, Bounded):
        return Bounded(member(dist.base, m), dist.links)
    return Independent(Normal(dist.base_dist.loc[m], dist.base_dist.scale[m]), 1)


def observations(*shape: int, seed: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(*shape, generator=g, dtype=torch.float64)


def applies(prerank: PreRank, family: str) -> bool:
    return not (prerank.needs_log_prob and family in WITHOUT_DENSITY)


def assert_same(stacked: Tensor, separate: list[Tensor]) -> None:
    # Batched linear algebra may round differently; a rank that moved would differ by 1/101.
    torch.testing.assert_close(stacked, torch.stack(separate), rtol=1e-9, atol=1e-10)


# A fraction of variance picks one number of components per call: see the test for it below.
FIXED = [p for p in PRERANKS if not (isinstance(p, PCA) and isinstance(p.components, float))]
# Every pre-rank with the family that has closed forms, densities and components, and with every
# other family one of each kind: linear, of the pool, of the density, counted, with ties.
KINDS = ["marginal", "location", "scale", "pca", "hdr", "copula", "band_depth"]
CASES = [
    (family, prerank)
    for family in FAMILIES
    for prerank in FIXED
    if applies(prerank, family) and (family == "gaussian mixture" or prerank.label in KINDS)
]


@pytest.mark.parametrize(("family", "prerank"), CASES, ids=lambda v: getattr(v, "label", v))
def test_pits(family, prerank):
    dist, y = FAMILIES[family](M, N, dim=DIM), observations(M, N, DIM)
    for closed_forms in (True, False):
        options = {"generator": 3, "closed_forms": closed_forms}
        stacked = pit(dist, y, prerank, **options)
        assert stacked.shape[:-1] == (M, N)
        assert_same(stacked, [pit(member(dist, m), y[m], prerank, **options) for m in range(M)])


@pytest.mark.parametrize(("family", "prerank"), CASES, ids=lambda v: getattr(v, "label", v))
def test_stand_ins_and_ties(family, prerank):
    dist, y = FAMILIES[family](M, N, dim=DIM), observations(M, N, DIM)
    [stacked] = project_pits(dist, y, (prerank,), generator=3, with_null_pits=True)
    separate = [
        project_pits(member(dist, m), y[m], (prerank,), generator=3, with_null_pits=True)[0]
        for m in range(M)
    ]
    assert {result.method for result in separate} == {stacked.method}
    assert_same(stacked.ties, [result.ties for result in separate])
    if stacked.null_pits is None:
        assert all(result.null_pits is None for result in separate)
    else:
        assert_same(stacked.null_pits.movedim(1, 0), [result.null_pits for result in separate])


def test_pits_of_two_stack_axes():
    dist, y = gaussian_mixture(2, M, N, dim=DIM), observations(2, M, N, DIM)
    stacked = pit(dist, y, FIXED, generator=3)
    assert_same(stacked, [pit(member(dist, m), y[m], FIXED, generator=3) for m in range(2)])


@pytest.mark.parametrize("lead", [(), (1,)], ids=["left out", "of size 1"])
@pytest.mark.parametrize("family", FAMILIES)
def test_observations_are_shared_where_their_stack_axis_is(family, lead):
    dist, y = FAMILIES[family](M, N, dim=DIM), observations(*lead, N, DIM)
    one = y.reshape(N, DIM)
    assert_same(
        pit(dist, y, "scale+copula", generator=3),
        [pit(member(dist, m), one, "scale+copula", generator=3) for m in range(M)],
    )
    assert_same(
        energy_score(dist, y, generator=3),
        [energy_score(member(dist, m), one, generator=3) for m in range(M)],
    )


def test_fraction_of_variance_picks_one_count_for_the_whole_stack():
    # Alone, the first predictor needs one component for 80 %, the second all four; together the
    # mean cumulative fractions (0.6125, 0.735, 0.8575, 0.98) ask for three.
    scales = torch.tensor([[0.98**0.5, 0.1, 0.07, 0.07], [0.5] * 4], dtype=torch.float64)
    loc = observations(2, N, DIM, seed=2)
    dist = Independent(Normal(loc, scales.unsqueeze(1).expand(2, N, DIM)), 1)
    y = observations(2, N, DIM)
    stacked = pit(dist, y, "pca(0.8)")
    counts = [pit(member(dist, m), y[m], "pca(0.8)").shape[-1] for m in range(2)]
    assert (stacked.shape[-1], counts) == (3, [1, 4])
    assert_same(stacked, [pit(member(dist, m), y[m], "pca(3)") for m in range(2)])


@pytest.mark.parametrize(
    ("family", "prerank"),
    [(f, p) for f, p in CASES if p in PAPER and f != "rounded"],  # which has no gradient
    ids=lambda v: getattr(v, "label", v),
)
def test_smooth_pits(family, prerank):
    dist, y = FAMILIES[family](M, N, dim=DIM), observations(M, N, DIM)
    for closed_forms in (True, False):
        options = {"generator": 3, "closed_forms": closed_forms, "n_samples": 20}
        stacked = smooth_pit(dist, y, prerank, **options)
        assert_same(
            stacked, [smooth_pit(member(dist, m), y[m], prerank, **options) for m in range(M)]
        )


def test_errors_curves_and_histograms():
    g = torch.Generator().manual_seed(0)
    z = torch.rand(2, M, N, DIM, generator=g, dtype=torch.float64) ** 1.5
    flat = z.reshape(-1, N, DIM)
    assert torch.equal(pce(z).reshape(-1, DIM), torch.stack([pce(one) for one in flat]))
    curve, histogram = reliability_curve(z), pit_histogram(z, bins=7)
    assert curve.observed.shape == (2, M, 100, DIM)
    assert histogram.density.shape == (2, M, 7, DIM)
    assert torch.equal(
        curve.observed.reshape(-1, 100, DIM),
        torch.stack([reliability_curve(one).observed for one in flat]),
    )
    assert torch.equal(
        histogram.density.reshape(-1, 7, DIM),
        torch.stack([pit_histogram(one, bins=7).density for one in flat]),
    )
    assert torch.equal(curve.levels, reliability_curve(flat[0]).levels)
    assert torch.equal(histogram.edges, pit_histogram(flat[0], bins=7).edges)


SCORES: dict[str, Callable[..., Tensor]] = {
    "nll": nll,
    "energy score, fair": lambda dist, y: energy_score(dist, y, generator=3),
    "energy score, nrg": lambda dist, y: energy_score(dist, y, generator=3, estimator="nrg"),
    "variogram score": lambda dist, y: variogram_score(dist, y, generator=3),
    "crps": lambda dist, y: crps(dist, y, generator=3),
}


@pytest.mark.parametrize(
    ("family", "score"),
    [(f, s) for f in FAMILIES for s in SCORES if s != "nll" or f not in WITHOUT_DENSITY],
)
def test_scores(family, score):
    dist, y = FAMILIES[family](M, N, dim=DIM), observations(M, N, DIM)
    stacked = SCORES[score](dist, y)
    assert stacked.shape == ((M, N, DIM) if score == "crps" else (M, N))
    assert_same(stacked, [SCORES[score](member(dist, m), y[m]) for m in range(M)])


@pytest.mark.parametrize("family", FAMILIES)
def test_streaming_error(family):
    spec = "marginal+scale+copula"
    batches = [
        (FAMILIES[family](M, N, dim=DIM, seed=seed), observations(M, N, DIM, seed=10 + seed))
        for seed in range(2)
    ]
    stacked = ProjectedCalibrationError(spec, generator=3)
    separate = [ProjectedCalibrationError(spec, generator=3) for _ in range(M)]
    for dist, y in batches:
        stacked.update(dist, y)
        for m, metric in enumerate(separate):
            metric.update(member(dist, m), y[m])
    assert stacked.compute().shape == (M, DIM + 2)
    assert_same(stacked.pits, [metric.pits for metric in separate])
    assert_same(stacked.compute(), [metric.compute() for metric in separate])


@pytest.mark.parametrize("family", FAMILIES)
def test_diagnosis(family):
    dist, y = FAMILIES[family](M, N, dim=DIM), observations(M, N, DIM)
    found = diagnose(dist, y, n_null=99, generator=3)
    assert list(found.table["model"].unique()) == list(range(M))
    for m in range(M):
        alone = diagnose(member(dist, m), y[m], n_null=99, generator=3)
        assert "model" not in alone.table
        assert alone.skipped == found.skipped
        for label, z in alone.pits.items():
            torch.testing.assert_close(found.pits[label][m], z, rtol=1e-9, atol=1e-10)
        ours = found.table[found.table["model"] == m].reset_index(drop=True)
        same = ["prerank", "component", "method", "note"]
        assert ours[same].equals(alone.table[same])
        close = ["pce", "floor", "excess", "ties"]
        np.testing.assert_allclose(ours[close], alone.table[close], rtol=0, atol=1e-10)
        # The null of a mean over components is drawn with noise that runs on from one predictor
        # to the next; those of single components are universal.
        several = alone.table["prerank"].isin(["marginal", "pca"])
        universal = ~(several & (alone.table["component"] == "all"))
        np.testing.assert_allclose(
            ours["p_value"][universal], alone.table["p_value"][universal], rtol=0, atol=1e-10
        )
        assert np.isnan(ours["p_value"]).tolist() == np.isnan(alone.table["p_value"]).tolist()


def test_diagnosis_of_two_stack_axes_numbers_the_models_in_order():
    dist, y = multivariate_normal(2, M, N, dim=DIM), observations(2, M, N, DIM)
    table = diagnose(dist, y, preranks="location+scale", generator=3).table
    flat = [
        diagnose(member(member(dist, i), j), y[i, j], preranks="location+scale", generator=3).table
        for i in range(2)
        for j in range(M)
    ]
    for column in ("pce", "p_value", "p_holm"):
        values = np.concatenate([one[column] for one in flat])
        np.testing.assert_allclose(table[column], values, rtol=0, atol=1e-10)
    assert list(table["model"]) == [m for m in range(2 * M) for _ in range(2)]


def test_equal_models_have_equal_p_values():
    one = gaussian_mixture(60, dim=3)
    y = one.sample(generator=1)
    table = diagnose(one.expand((2, 60)), y, preranks="marginal+pca", generator=0).table
    first, second = (table[table.model == m].p_value.to_numpy() for m in (0, 1))
    assert (first == second).all()
