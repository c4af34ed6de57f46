"""Rows of a unit: complete, and what the definitions say, under both protocols."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.calibration import p_value, pce_floor
from prerank.datasets import published_split
from prerank.distributions import draw
from prerank.distributions.noise import RunNoise
from prerank.penalty import CalibrationPenalty
from prerank.pits.published import published_pit
from prerank.preranks import HDR, PAPER, PCA, Marginal, parse
from prerank.scores import energy_score, nll
from prerank.study import Store, published_strength
from prerank.study.protocols import Problem, run_variant
from prerank.study.published_runs import (
    evaluate_as_published,
    null_replicates,
    two_set_energy,
)
from prerank.training import (
    Objective,
    Settings,
    choose_strength,
    evaluate,
    train,
    validation_trials,
)
from study.tiny import LABELS, SEVERAL, tiny, write_table

N_TEST = len(published_split(3000, 0).test)
KEYS = ["dataset", "variant", "part", "prerank", "strength", "seed"]


@pytest.fixture(scope="module")
def exact_rows(exact):
    return Store(exact).results()


@pytest.fixture(scope="module")
def published_rows(published):
    return Store(published).results()


# Exact protocol


def test_every_run_part_and_prerank_has_its_row(exact_rows):
    counts = exact_rows.groupby(["dataset", "variant"]).size()
    runs = {"none": 2, "marginal": 2 * 3, "hdr": 2 * 3}  # two seeds, and the strengths with 0
    for (_, variant), count in counts.items():
        assert count == runs[variant] * 2 * len(LABELS)
    assert not exact_rows.duplicated(KEYS).any()
    assert set(exact_rows.prerank) == set(LABELS)
    assert set(exact_rows.part) == {"validation", "test"}
    assert set(exact_rows.seed) == {0, 1}
    assert set(exact_rows[exact_rows.variant != "none"].strength) == {0.0, 1.0, 30.0}
    assert set(exact_rows[exact_rows.variant == "none"].strength) == {0.0}


def test_numbers_are_finite_and_in_range(exact_rows):
    assert np.isfinite(exact_rows[["pce", "floor", "energy", "nll"]]).all().all()
    # Largest where all PITs are 0 or 1: the mean of the levels, 1/2.
    assert exact_rows.pce.between(0, 0.5).all()
    assert (exact_rows.energy > 0).all()
    for part, count in (("test", N_TEST), ("validation", 300)):
        own = exact_rows[exact_rows.part == part]
        assert (own.n == count).all()
        assert (own.floor == pce_floor(count)).all()


def test_strength_0_of_every_variant_is_the_unpenalised_run(exact_rows):
    keys = ["dataset", "part", "prerank", "seed"]
    base = exact_rows[exact_rows.variant == "none"].set_index(keys).sort_index()
    for variant in ("marginal", "hdr"):
        own = exact_rows[(exact_rows.variant == variant) & (exact_rows.strength == 0)]
        own = own.set_index(keys).sort_index()
        assert own.index.equals(base.index)
        # The same parameters in a larger stack: only the order of sums may differ, by some 2^-20;
        # a PIT that rounding moves over a level changes the PCE by 1 / (100 n), or 2e-5 at most.
        np.testing.assert_allclose(own.energy, base.energy, rtol=2**-20)
        np.testing.assert_allclose(own.nll, base.nll, rtol=2**-18)
        np.testing.assert_allclose(own.pce, base.pce, rtol=0, atol=1e-4)


def test_penalties_change_the_runs(exact_rows):
    for variant in ("marginal", "hdr"):
        own = exact_rows[(exact_rows.variant == variant) & (exact_rows.part == "test")]
        own = own[own.prerank == variant].groupby("strength").pce.mean()
        assert own[30.0] < own[0.0]


def test_one_strength_is_selected_for_all_runs_of_a_variant(exact_rows):
    for _, own in exact_rows.groupby(["dataset", "variant"]):
        chosen = set(own[own.selected].strength)
        assert len(chosen) == 1
        assert own.selected.tolist() == own.strength.isin(chosen).tolist()


@pytest.mark.parametrize(("dataset", "variant"), [("ar1", "marginal"), ("outliers", "hdr")])
def test_the_selected_strength_is_the_choice_on_validation_rows(
    exact, exact_rows, dataset, variant
):
    store = Store(exact)
    plan, rows = store.plan, store.results()
    problem = Problem(dataset, plan)
    strengths = (0.0, *plan.strengths)
    runs = problem.runs(strengths)
    penalty = CalibrationPenalty(variant, n_samples=plan.n_samples, tau=plan.tau)
    result = train(
        problem.network,
        problem.data,
        runs,
        objective=Objective(penalty),
        settings=plan.training,
        start=store.read_base(dataset, "cpu").repeat(len(strengths), 1),
    )
    trials = validation_trials(
        problem.network,
        problem.data,
        runs,
        result.theta,
        parse(variant),
        n_samples=plan.n_samples,
    )
    selection = choose_strength(trials, budget=plan.budget)
    own = rows[(rows.dataset == dataset) & (rows.variant == variant)]
    assert set(own[own.selected].strength) == {selection.strength or 0.0}


def test_without_a_strength_that_qualifies_0_is_selected():
    still = Settings(lr=1e-12, batch_size=256, max_epochs=2)  # nothing moves, nothing is gained
    problem = Problem("ar1", tiny(strengths=(1.0,), training=still))
    _, base = run_variant(problem, "none")
    rows, theta = run_variant(problem, "marginal", base=base)
    assert set(rows[rows.selected].strength) == {0.0}
    assert torch.equal(theta, base)


def test_curves_and_nulls_are_kept_where_a_report_needs_them(exact_rows):
    shown = (exact_rows.part == "test") & exact_rows.selected
    assert (exact_rows.curve.notna() == shown).all()
    several = exact_rows.prerank.isin(SEVERAL)  # one component has a universal null
    assert (exact_rows["null"].notna() == (shown & several)).all()
    for curve in exact_rows[shown].curve:
        assert len(curve) == 100
        assert (np.diff(curve) >= 0).all()
        assert curve[-1] == 1
    for null in exact_rows[shown & several]["null"]:
        assert len(null) == 50
        assert (np.asarray(null) > 0).all()


def test_variogram_scores_are_of_the_chosen_runs_on_test_rows(exact_rows):
    wanted = exact_rows.selected & (exact_rows.part == "test")
    assert (exact_rows.variogram[wanted] > 0).all()
    assert exact_rows.variogram[~wanted].isna().all()
    of_runs = exact_rows[wanted].groupby(["dataset", "variant", "seed"]).variogram
    assert (of_runs.nunique() == 1).all()


def test_curves_belong_to_their_errors(exact_rows):
    single = exact_rows[exact_rows.curve.notna() & ~exact_rows.prerank.isin(SEVERAL)]
    levels = np.linspace(0, 1, 100)
    for row in single.itertuples():
        # Shares of float32, so that each of the differences is right to 2^-24.
        assert np.abs(np.asarray(row.curve) - levels).mean() == pytest.approx(row.pce, abs=1e-6)


def test_budgets_and_strengths_are_those_of_the_plan():
    plan = tiny(strengths="auto", budget=0.0, seeds=(0, 1), max_epochs=2, n_null=2)
    problem = Problem("outliers", plan)
    _, base = run_variant(problem, "none")
    rows, _ = run_variant(problem, "location", base=base)
    assert {0.0, 3.0, 10.0, 30.0, 100.0, 300.0} <= set(rows.strength)
    assert not rows.duplicated(KEYS).any()
    assert len(rows) == 2 * 2 * len(LABELS) * rows.strength.nunique()


def test_nulls_of_different_runs_are_independent():
    """`mean_null` takes the mean over runs, and says that it takes them for independent."""
    problem = Problem("ar1", tiny(seeds=(0, 1, 2), n_null=400, max_epochs=1))
    rows, _ = run_variant(problem, "none")
    for label in SEVERAL:
        own = rows[(rows.prerank == label) & (rows.part == "test")]
        found = np.corrcoef(np.stack(own["null"].tolist()))[np.triu_indices(3, 1)]
        # Correlations of 400 independent pairs have a standard error of 0.05.
        assert np.abs(found).max() < 0.25


def test_chosen_runs_are_judged_alike_whatever_else_is_in_the_stack():
    problem = Problem("ar1", tiny(seeds=(0, 1), max_epochs=2, n_null=5))
    alone = Problem("ar1", tiny(seeds=(1,), max_epochs=2, n_null=5))
    (rows, _), (own, _) = run_variant(problem, "none"), run_variant(alone, "none")
    both = rows[rows.seed == 1]
    # Rounding, which three epochs of training may have enlarged.
    for column in ("pce", "energy", "nll"):
        np.testing.assert_allclose(both[column], own[column], rtol=1e-3, atol=1e-4)


# Published protocol


def test_published_rows_are_of_the_test_part_with_the_published_columns(published_rows):
    assert set(published_rows.part) == {"test"}
    assert published_rows.selected.all()
    assert not published_rows.duplicated(KEYS).any()
    assert len(published_rows) == 3 * 2 * len(LABELS)
    columns = ["published_pce", "published_energy", "published_nll"]
    assert np.isfinite(published_rows[[*columns, "pce", "energy", "nll", "floor"]]).all().all()
    assert (published_rows.published_pce > 0).all()
    shared = published_rows.groupby(["variant", "seed"])[columns[1:]].nunique()
    assert (shared == 1).all().all()  # one energy score and likelihood for each run


def test_published_strengths_are_those_that_were_reported(published_rows):
    for variant, own in published_rows.groupby("variant"):
        expected = 0.0 if variant == "none" else published_strength("ar1", variant)
        assert set(own.strength) == {expected}
    problem = Problem("ar1", tiny(protocol="published", strengths=(2.0,), seeds=(0,)))
    rows, _ = run_variant(problem, "location")
    assert set(rows.strength) == {2.0}


def test_published_epochs_end_with_the_last_batch():
    seen = []
    problem = Problem("ar1", tiny(protocol="published", strengths="auto", seeds=(0,)))
    run_variant(problem, "none", on_epoch=seen.append)
    rows, size = problem.data.train.shape[1], problem.plan.training.batch_size
    assert rows % size
    assert seen[0].steps == rows // size + 1


def test_published_likelihood_and_exact_one_agree_but_for_the_batches(published_rows):
    # Unweighted means of 256, 256 and 88 rows against the mean over all: the difference is one of
    # means of the same values, so it is small against the values, and not 0.
    gap = (published_rows.published_nll - published_rows.nll).abs()
    assert gap.max() < 0.5
    assert gap.min() > 0


@pytest.fixture(scope="module")
def judged():
    """Two untrained runs and their rows under the published evaluation."""
    problem = Problem("ar1", tiny(protocol="published", strengths="auto", n_components=2))
    runs = problem.runs((0.0,))
    theta = torch.stack([problem.network.initial(run.seed) for run in runs]).float()
    x, y = problem.part("test", runs)
    found = evaluate_as_published(problem.network, theta, x, y, PAPER, n_samples=12, tau=100.0)
    return problem.network, theta, x, y, found


def batches(network, theta, x, y):
    for number, start in enumerate(range(0, x.shape[1], 256)):
        rows = slice(start, start + 256)
        dist = network(theta, x[:, rows])
        noise = RunNoise(torch.zeros(len(theta), dtype=torch.int64), number)
        yield dist, y[:, rows], noise


def test_published_pce_is_the_unweighted_mean_over_batches_of_256(judged):
    network, theta, x, y, found = judged
    levels = np.linspace(0, 1, 100)
    errors = {label: [] for label in LABELS}
    for dist, rows, noise in batches(network, theta, x, y):
        for prerank in PAPER:
            z = published_pit(dist, rows, prerank, n_samples=12, tau=100.0, generator=noise).z
            share = (z.double().numpy()[..., None] <= levels).mean(1)  # (M, J, levels)
            errors[prerank.label].append(np.abs(share - levels).mean(-1).mean(-1))
    assert [len(values) for values in errors.values()] == [3] * len(LABELS)
    for label, values in errors.items():
        # A PIT of float32 that lies on a level falls to either side: 1 / (100 x 88) each.
        np.testing.assert_allclose(found.pce[label].numpy(), np.mean(values, 0), atol=4e-4)
        weighted = np.average(values, axis=0, weights=[256, 256, N_TEST - 512])
        assert np.abs(np.mean(values, 0) - weighted).max() > 4e-4  # the test can tell


def test_published_scores_are_unweighted_means_over_batches(judged):
    network, theta, x, y, found = judged
    likelihoods = [
        nll(dist, rows).mean(1).detach().numpy() for dist, rows, _ in batches(network, theta, x, y)
    ]
    np.testing.assert_allclose(found.nll.numpy(), np.mean(likelihoods, 0), rtol=1e-6)


def test_the_two_set_energy_score_has_the_expectation_of_the_fair_one(judged):
    network, theta, x, y, _ = judged
    copies, size = 3000, 3
    dist = network(theta[:1].expand(copies, -1), x[:1, :4].expand(copies, -1, -1))
    rows = y[:1, :4].expand(copies, -1, -1)
    seeds = torch.arange(copies)
    two = two_set_energy(dist, rows, size, RunNoise(seeds, 0)).double()
    fair = energy_score(
        dist, rows, estimator="fair", n_samples=size, generator=RunNoise(seeds, 1)
    ).double()
    biased = energy_score(
        dist, rows, estimator="nrg", n_samples=size, generator=RunNoise(seeds, 1)
    ).double()
    error = ((two.var(0) + fair.var(0)) / copies).sqrt()
    assert ((two.mean(0) - fair.mean(0)).abs() < 4.5 * error).all()  # 4 rows: p < 3e-5
    assert ((two.mean(0) - biased.mean(0)).abs() > 9 * error).all()  # the test can tell


def test_dependency_of_two_targets_exists_in_the_published_form_only(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    write_table(tmp_path, "pair", 2)
    problem = Problem("pair", tiny(protocol="published", strengths="auto"))
    rows, _ = run_variant(problem, "dependency")
    assert sorted(rows.prerank.unique()) == sorted(LABELS)
    own = rows.prerank == "dependency"
    assert rows[own].pce.isna().all()
    assert rows[~own].pce.notna().all()
    assert rows.published_pce.notna().all()
    assert not rows.duplicated(KEYS).any()


# What a right predictor would have


@pytest.mark.parametrize("prerank", [Marginal(), PCA()], ids=str)
def test_p_values_of_a_right_model_are_uniform(prerank):
    problem = Problem("ar1", tiny(seeds=(0,), n_components=1))
    network, theta = problem.network, problem.network.initial(0).float()
    x = problem.data.x[0, :60]
    found = []
    for number in range(150):
        generator = torch.Generator().manual_seed(number)
        y = draw(network(theta[None], x[None]), 2, generator=generator).points[0].detach()
        seen = evaluate(network, theta[None], x[None], y, (prerank,), n_samples=20)
        null = null_replicates(
            network, theta, x, y[0], prerank, n_samples=20, n_null=99, seed=1000 + number
        )
        found.append(p_value(float(seen.pce[prerank.label]), null))
    # Values k / 100 of a uniform k: off from the continuous law by 0.01 at most, which the test,
    # with a critical distance of 0.13 at this level, does not see.
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_p_values_of_a_wrong_model_are_small():
    problem = Problem("ar1", tiny(seeds=(0,)))
    network, theta = problem.network, problem.network.initial(0).float()
    x, y = problem.data.x[0, :200], problem.data.y[0, :200] * 3 + 1
    seen = evaluate(network, theta[None], x[None], y[None], (Marginal(),), n_samples=20)
    null = null_replicates(network, theta, x, y, Marginal(), n_samples=20, n_null=99)
    assert p_value(float(seen.pce["marginal"]), null) == 0.01  # the least that 99 can tell


def test_pre_ranks_of_one_component_have_no_null_of_their_own():
    problem = Problem("ar1", tiny(seeds=(0,)))
    theta = problem.network.initial(0).float()
    x, y = problem.data.x[0, :20], problem.data.y[0, :20]
    assert null_replicates(problem.network, theta, x, y, HDR(), n_samples=5, n_null=7) is None
    null = null_replicates(problem.network, theta, x, y, PCA(), n_samples=5, n_null=7)
    assert null.shape == (7,)
    assert all(math.isfinite(value) for value in null)
