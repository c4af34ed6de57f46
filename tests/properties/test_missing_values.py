"""Missing values: PITs of what is there are uniform, p-values have their size, scores are of it."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest
from torch.distributions import MultivariateNormal

import prerank
from named_fields import EVENT, fields, plain
from prerank import CalibrationHead, Ensemble, Monitor, compare, diagnose, diagnose_where, pit
from prerank.calibration import histogram_band, pit_histogram
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.error_table import ALL, Finding
from prerank.calibration.gaps import available_rows
from prerank.calibration.periods import period_means, periods_of
from prerank.calibration.rotations import dependent_histogram_band
from prerank.diagnosis import Diagnoser, Diagnosis, check_omnibus, diagnose_by
from prerank.distributions import Rounded, rows_of
from prerank.distributions.availability import separable, sub_events, targets_of
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.preranks import Conditional, Projection, ReferenceDistance
from truths import PRERANKS, TRUTHS, gaussian_mixture, independent_normal, multivariate_normal

N, FEW, DIM, MEMBERS = 1500, 400, 4, 15
NAN = torch.nan
ROUTES = ("distribution", "ensemble", "ensemble with missing members")
COMPONENTS = sum(DIM if p.label in ("marginal", "pca", "pca(0.8)") else 1 for p in PRERANKS)
CASES = [
    ("gaussian mixture", "distribution"),
    ("rounded", "distribution"),
    ("student copula", "ensemble"),
    ("discrete", "ensemble with missing members"),
]
"""All pre-ranks by each route, and ties with a distribution and with an ensemble."""
TESTS = len(CASES) * COMPONENTS  # at most, for Bonferroni

AVAILABLE = {"missing": "available"}
FINDING = Finding(0, "marginal", ALL, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0, "", "")


def with_gaps(y, share=0.3, seed=3):
    """Some values left out, as many in each 50 rows of a target: nulls are shared."""
    noise = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed))
    ranks = noise.reshape(-1, 50, y.shape[-1]).argsort(1).argsort(1).reshape(y.shape)
    return y.masked_fill(ranks < round(50 * share), NAN)


def forecast(truth: str, route: str, n: int = FEW):
    dist = TRUTHS[truth](n, dim=DIM, seed=1)
    y = with_gaps(dist.sample())
    if route == "distribution":
        return dist, y
    samples = dist.sample((MEMBERS,))
    if route == "ensemble":
        return Ensemble(samples), y
    samples[3, :, 1:2] = with_gaps(samples[3, :, 1:2], 0.1, seed=4)
    return Ensemble(samples, missing="available"), y


@pytest.mark.parametrize(("truth", "route"), CASES)
def test_pits_of_the_truth_are_uniform(truth, route):
    dist, y = forecast(truth, route, N)
    samples_only = isinstance(dist, Ensemble | Rounded) or truth in ("student copula", "discrete")
    generator = torch.Generator().manual_seed(ROUTES.index(route))
    for term in PRERANKS:
        if term.needs_log_prob and samples_only:
            continue
        z = pit(dist, y, term, n_samples=20, generator=generator, **AVAILABLE)
        for column in z.unbind(-1):
            own = column[~column.isnan()]
            assert 0 < len(own) < N
            # Of all tests together one fails by chance with a probability of .001.
            assert kstest(own.numpy(), "uniform").pvalue > 0.001 / TESTS, term.label


def test_rows_are_used_where_a_prerank_is_defined():
    dist, y = forecast("gaussian mixture", "distribution")
    present = (~y.isnan()).sum(-1)
    fewest = {"location": 1, "scale": 2, "dependency": 3, "pca": DIM, "hdr": 1, "copula": 1}
    for label, least in fewest.items():
        z = pit(dist, y, label, generator=0, **AVAILABLE)
        assert torch.equal(~z.isnan().any(-1), present >= least), label
    z = pit(dist, y, "marginal", **AVAILABLE)
    assert torch.equal(z.isnan(), y.isnan())
    whole = pit(dist, y.nan_to_num(0), "marginal")
    assert torch.allclose(z[~y.isnan()], whole[~y.isnan()])


def test_the_mean_is_that_of_the_targets_that_are_there():
    covariance = 0.5 * torch.eye(3, dtype=torch.float64) + 0.5
    dist = MultivariateNormal(torch.zeros(2, 3, dtype=torch.float64), covariance)
    y = torch.tensor([[1.0, NAN, 0.5], [NAN, 2.0, NAN]], dtype=torch.float64)
    z = pit(dist, y, "location", **AVAILABLE)
    # The mean of two targets has the variance (1 + 1 + 2 * .5) / 4.
    expected = torch.special.ndtr(torch.tensor([0.75 / math.sqrt(0.75), 2.0]).double())
    assert torch.allclose(z[:, 0], expected)


@pytest.mark.parametrize("make", [gaussian_mixture, multivariate_normal, independent_normal])
def test_the_distribution_of_some_targets_is_a_margin(make):
    dist, targets = make(7), torch.tensor([1, 3])
    part = targets_of(rows_of(dist, torch.tensor([5, 0])), targets)
    assert torch.allclose(part.mean, dist.mean[[5, 0]][:, targets])
    assert torch.allclose(part.variance, dist.variance[[5, 0]][:, targets])
    if hasattr(dist, "covariance_matrix"):
        expected = dist.covariance_matrix[[5, 0]][:, targets][:, :, targets]
        assert torch.allclose(part.covariance_matrix, expected)


def test_an_unknown_family_is_an_ensemble_of_its_draws():
    dist = TRUTHS["student copula"](30)
    known = separable(dist, n_samples=12, generator=0)
    assert isinstance(known, Ensemble)
    assert known.samples.shape == (12, 30, DIM)
    mixture = gaussian_mixture(30)
    assert separable(mixture, n_samples=12) is mixture


def test_nothing_changes_where_nothing_is_missing():
    dist = gaussian_mixture(FEW)
    y = dist.sample()
    options = {"preranks": "marginal+scale+hdr+copula", "n_samples": 20, "n_null": 99}
    plainly, allowed = diagnose(dist, y, **options), diagnose(dist, y, **options, **AVAILABLE)
    assert str(plainly) == str(allowed)
    assert "n" not in plainly.table
    assert torch.equal(
        pit(dist, y, "hdr", generator=0), pit(dist, y, "hdr", generator=0, **AVAILABLE)
    )


SIZES = (60, 54, 45, 30)
"""Numbers of available values of each target."""


def small_case(kind: str, seed: int):
    """60 rows of a calibrated forecast; which values are missing does not depend on them."""
    torch.manual_seed(seed)
    factor = torch.linalg.cholesky(0.8 + 0.2 * torch.eye(4))
    truth = MultivariateNormal(torch.randn(60, 4), scale_tril=factor)
    y, dist = truth.sample(), truth
    if kind == "ties":
        y, dist = y.round(), Ensemble(truth.sample((10,)).round())
    for target, size in enumerate(SIZES):
        y[torch.randperm(60)[size:], target] = NAN
    return dist, y


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_p_values_of_dependent_components_have_their_size(kind):
    p_values = []
    for seed in range(250):
        dist, y = small_case(kind, seed)
        found = diagnose(
            dist, y, preranks="marginal", n_samples=15, n_null=199, generator=seed, **AVAILABLE
        )
        assert [row.n for row in found.findings] == [60, *SIZES]
        p_values.append([row.p_value for row in found.findings])
    for column in np.array(p_values).T:
        # p-values are discrete, in steps of up to 2/200, and valid: their distribution is at most
        # uniform, by more than 1.95 / sqrt(250) with a probability of .0005 each.
        ordered = np.sort(column)
        assert (np.arange(1, 251) / 250 - ordered).max() < 1.95 / math.sqrt(250)
        assert column.mean() < 0.5 + 3 * math.sqrt(1 / 12 / 250) + 0.01


def test_a_wrong_target_is_named_among_gaps():
    dist, y = forecast("gaussian mixture", "distribution")
    y[:, 2] += 2.0
    table = pd.DataFrame(y.numpy(), columns=list("abcd"))
    found = diagnose(dist, table, preranks="marginal+scale", **AVAILABLE)
    verdict = found.verdict()
    assert verdict.status == "bad"
    assert "c" in verdict.headline
    assert "lower than" not in verdict.headline
    [words] = [point for point in verdict.points if point.startswith("Values are missing")]
    sizes = (~y.isnan()).sum(0).tolist()
    assert f"{sizes[0]:,} of a" in words
    assert f"of {FEW:,} rows" in words
    assert found.table.n.tolist()[:5] == [int((~y.isnan()).any(-1).sum()), *sizes]


def test_a_wrong_dependence_is_found_in_the_complete_rows():
    torch.manual_seed(0)
    y = torch.randn(FEW, 1) * 0.9**0.5 + 0.1**0.5 * torch.randn(FEW, 3)
    dist = MultivariateNormal(torch.zeros(FEW, 3), torch.eye(3))
    verdict = diagnose(dist, with_gaps(y), preranks="marginal+scale", **AVAILABLE).verdict()
    assert "move together more than predicted" in verdict.headline


def test_values_that_decide_whether_they_are_missing_make_a_calibrated_forecast_fail():
    # y1 is missing where y2 > .5, at a correlation of .8: the PITs of y1 given y2 <= .5.
    torch.manual_seed(0)
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
    dist = MultivariateNormal(torch.zeros(4000, 2), covariance)
    y = dist.sample()
    y[y[:, 1] > 0.5, 0] = NAN
    found = diagnose(dist, y, preranks="marginal", n_null=99, **AVAILABLE)
    _, first, second = found.findings
    # F(z) = P(y1 <= q | y2 <= .5) is above z everywhere, so PCE = 1/2 - E Z = .121 by integration.
    assert first.pce == pytest.approx(0.121, abs=4 * math.sqrt(1 / 12 / first.n))
    assert first.p_value < 0.001 < second.p_value


def test_figures_and_pages_have_a_band_for_each_number_of_pits(tmp_path):
    dist, y = forecast("gaussian mixture", "distribution")
    y[: FEW // 2, 1] = NAN
    found = diagnose(dist, y, preranks="marginal", **AVAILABLE)
    band = found.displays()[0].band
    assert torch.equal(band.n, (~y.isnan()).sum(0))
    for j, n in enumerate(band.n.tolist()):
        assert torch.equal(band.upper[:, j], prerank.calibration.reliability_band(n).upper)
    assert found.to_html(tmp_path / "page.html").stat().st_size > 10_000
    [bars] = found.histograms(bins=8)
    for j, column in enumerate(found.pits["marginal"].split(1, -1)):
        own, alone = column[~column.isnan().any(-1)], bars.of_component(j)
        assert torch.equal(alone.histogram.density, pit_histogram(own, bins=8).density)
        expected = histogram_band(len(own), 8)
        assert (alone.band.n, alone.band.upper) == (len(own), pytest.approx(expected.upper))
    assert found.histograms()[0].histogram.density.shape == (10, DIM)  # y1 has few values


@pytest.mark.parametrize("dependence", [None, row_units(range(FEW), None, FEW)])
def test_reliability_over_time_is_that_of_the_values_of_each_target(dependence):
    # Rows of a period in which the target has no value, or the pre-rank nothing, are no rows.
    z = with_gaps(torch.rand(FEW, 3, generator=torch.Generator().manual_seed(0)))
    z[:100, 0], z[300:] = NAN, NAN
    found = Diagnosis((), {"marginal": z}, {}, dependence=dependence)
    found = replace(found, findings=tuple(replace(FINDING, component=c) for c in ["all", *"abc"]))
    means = found.over_time(range(FEW), every=100).means
    assert means.periods == ("0", "100", "200")
    assert means.counts[:, 0].tolist() == [0, 70, 70]
    assert means.location[0, 0].isnan()
    for j, column in enumerate(z.unbind(-1)):
        at = (~column.isnan()).nonzero().flatten()
        periods = periods_of(at.tolist(), 100, len(at))
        rows = None if dependence is None else dependence.of_rows(at)
        alone = period_means(column[at].unsqueeze(-1), periods, rows)
        own = means.counts[:, j] > 0
        assert torch.equal(means.location[own, j], alone.location[:, 0])
        assert torch.equal(means.spread[own, j], alone.spread[:, 0])
        assert torch.equal(means.reach[:, own, j], alone.reach[..., 0])
    display = found.over_time(range(FEW), every=100).plot()
    assert np.isnan(display.lines_[0].get_ydata()[0])
    found = replace(found, pits={"marginal": torch.full_like(z, NAN)})
    with pytest.raises(InputError, match="no PITs"):
        found.over_time(range(FEW), every=100)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Conditional(lambda y, x: (y * x).sum(-1), x),
        lambda x: ReferenceDistance(points=x),
        lambda x: Projection(x.unsqueeze(1)),
    ],
)
def test_preranks_of_given_rows_keep_what_they_hold_of_the_complete_ones(make):
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    x = torch.randn(FEW, DIM, generator=torch.Generator().manual_seed(5), dtype=y.dtype)
    z = pit(dist, y, make(x), **AVAILABLE)
    [whole] = [part for part in sub_events(dist, y) if len(part.targets) == DIM]
    assert torch.equal((~z.isnan()).all(-1).nonzero().flatten(), whole.rows)
    expected = pit(whole.dist, whole.y, make(x[whole.rows]))
    # Without ties the rank is that of the values; where Z lies in its interval is random.
    ranks = [(values * (MEMBERS + 1)).floor() for values in (z[whole.rows], expected)]
    assert torch.equal(*ranks)
    found = diagnose(dist, y, preranks=[make(x)], **AVAILABLE)
    assert found.findings[0].n == len(whole.rows)


def test_groups_without_a_target_are_judged_by_the_others():
    dist, y = forecast("gaussian mixture", "ensemble")
    y[: FEW // 2, 1] = NAN
    groups = ["a"] * (FEW // 2) + ["b"] * (FEW - FEW // 2)
    found = diagnose_by(dist, y, groups, preranks="marginal+pca(1)", **AVAILABLE)
    assert found.verdict().status != "bad"
    table = found.table.set_index(["group", "prerank", "component"])
    assert table.n["a", "marginal", "y1"] == 0
    assert math.isnan(table.pce["a", "marginal", "y1"])
    assert table.n["a", "pca(1)", ALL] == 0
    assert table.p_value["a", "marginal", ALL] > 0.001
    assert str(found.groups["a"])
    [margins, components] = found.groups["a"].displays()
    assert margins.caption.endswith("no values in y1.")
    assert components.caption == "pca(1): no values."
    grid = found.plot(prerank="marginal")
    assert list(grid.rows) == ["y0", "y1", "y2", "y3"]
    assert [title for title, _ in grid.panels[1]] == ["a", "b"]
    assert not grid.axes_[1, 0].axison
    assert {ax.texts[0].get_text() for ax in grid.axes_.flatten() if ax.axison} == {"n = 140"}
    alone = found.plot(prerank="marginal", component="y1")
    assert [ax.get_title() for ax in alone.axes_.flatten()] == ["b"]
    bare = replace(found, groups={"a": found.groups["a"]})
    with pytest.raises(InputError, match="no PITs of 'y1'"):
        bare.plot(prerank="marginal", component="y1")


@pytest.mark.parametrize("rows", [{"time": range(FEW)}, {"cluster": [k % 60 for k in range(FEW)]}])
def test_rows_that_depend_on_each_other_may_have_gaps(rows):
    dist, y = forecast("gaussian mixture", "ensemble")
    options = {"preranks": "marginal+scale", **rows, **AVAILABLE}
    assert diagnose(dist, y, **options).verdict().status != "bad"
    y[:, 0] += 1.0
    verdict = diagnose(dist, y, **options).verdict()
    assert verdict.status == "bad"
    assert "y0" in verdict.headline


@pytest.mark.parametrize(
    ("preranks", "subject"), [("marginal", r"Ghent \(marginal\)"), ("scale+pca", "pca")]
)
def test_a_target_at_too_few_times_is_named(preranks, subject):
    values = torch.randn(21, 200, 3)
    y = pd.DataFrame(values[0].numpy(), columns=["Bonn", "Ghent", "Oslo"])
    y.loc[6:, "Ghent"] = np.nan
    for kind, labels, count in (("time", range(200), 6), ("cluster", np.arange(200) // 2, 3)):
        words = f"{kind} has {count} different values in the rows that have PITs of {subject}, .*"
        with pytest.raises(InputError, match=f"{words}leave out a target .*, or {kind}, and"):
            diagnose(
                Ensemble(values[1:]),
                y,
                preranks=preranks,
                generator=0,
                **{kind: labels},
                **AVAILABLE,
            )


def test_bands_of_bars_allow_for_the_dependence_of_the_rows_that_a_target_has():
    dist, y = forecast("gaussian mixture", "ensemble")
    times = [k // 8 for k in range(FEW)]
    found = diagnose(dist, y, preranks="marginal", time=times, **AVAILABLE)
    [bars] = found.histograms(bins=5)
    for j, column in enumerate(found.pits["marginal"].split(1, -1)):
        at = available_rows(column)
        rows = row_units([times[k] for k in at.tolist()], None, len(at))
        expected = dependent_histogram_band(column[at], rows, bins=5)
        assert float(bars.band.upper[j]) == pytest.approx(expected.upper)


def test_batches_give_the_same_errors_as_all_rows_at_once():
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    y[:150, 0] = NAN  # no complete row at first
    diagnoser = Diagnoser(preranks="marginal+pca(2)+copula", **AVAILABLE)
    for start in range(0, FEW, 100):
        rows = slice(start, start + 100)
        diagnoser.update(rows_of(dist, rows), y[rows])
    found = diagnoser.result()
    expected = diagnose(dist, y, preranks="marginal+pca(2)+copula", **AVAILABLE)
    for one, other in zip(found.findings, expected.findings, strict=True):
        assert (one.prerank, one.component, one.n) == (other.prerank, other.component, other.n)
        assert one.pce == pytest.approx(other.pce, abs=0.01)  # ties and ranks are random
        assert one.ties == pytest.approx(other.ties)
        assert one.p_value > 0.001
    assert found.verdict().status != "bad"
    assert found.n == FEW


def test_a_prerank_without_rows_is_skipped_or_refused():
    dist = forecast("gaussian mixture", "ensemble")[0]
    y = dist.samples[0].clone()
    y[torch.arange(FEW), torch.arange(FEW) % DIM] = NAN
    found = diagnose(dist, y, n_null=99, **AVAILABLE)
    assert "missing" in found.skipped["pca"]
    for call in (
        lambda: diagnose(dist, y, preranks="pca+scale", **AVAILABLE),
        lambda: pit(dist, y, "pca", **AVAILABLE),
    ):
        with pytest.raises(NotApplicableError, match="no row has enough targets"):
            call()


def test_units_by_the_spread_of_the_samples_leave_gaps_out():
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    factor = torch.tensor([1.0, 100.0, 1.0, 0.01], dtype=torch.float64)
    large = Ensemble(dist.samples * factor, missing="available")
    options = {"preranks": "location+scale", "scale": "samples", **AVAILABLE}
    small, other = diagnose(dist, y, **options), diagnose(large, y * factor, **options)
    for one, two in zip(small.findings, other.findings, strict=True):
        assert one.pce == pytest.approx(two.pce, abs=1e-9)


# --- scores ---------------------------------------------------------------------------------------


def test_scores_are_those_of_the_targets_that_are_there():
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    for score in (prerank.energy_score, prerank.variogram_score, prerank.crps):
        found = score(dist, y, **AVAILABLE)
        for part in sub_events(dist, y):
            own = found[part.rows]
            if score is prerank.crps:
                own, other = own[:, part.targets], score(part.dist, part.y)
            elif score is prerank.variogram_score and len(part.targets) == 1:
                assert own.isnan().all()
                continue
            else:
                other = score(part.dist, part.y)
            assert torch.allclose(own, other)
    weights = torch.arange(16.0).reshape(4, 4).double()
    assert prerank.variogram_score(dist, y, weights=weights, **AVAILABLE).nanmean() > 0


def test_exact_scores_of_targets_do_not_depend_on_what_else_is_missing():
    dist, y = forecast("gaussian mixture", "distribution")
    found, whole = prerank.crps(dist, y, **AVAILABLE), prerank.crps(dist, y.nan_to_num(0))
    assert torch.equal(found.isnan(), y.isnan())
    assert torch.allclose(found[~y.isnan()], whole[~y.isnan()])


# --- what is refused, and what is accepted --------------------------------------------------------


def test_missing_values_are_refused_by_default_and_the_option_is_named():
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    whole = Ensemble(dist.samples.nan_to_num(0))
    calls = [
        lambda **o: diagnose(whole, y, preranks="scale", **o),
        lambda **o: pit(whole, y, "scale", **o),
        lambda **o: prerank.energy_score(whole, y, **o),
        lambda **o: diagnose(dist, y.nan_to_num(0), preranks="scale", **o),
        lambda **o: Ensemble(dist.samples, **o),
    ]
    for call in calls:
        with pytest.raises(prerank.PrerankError, match="missing='available'"):
            call()
        call(missing="available")
        with pytest.raises(prerank.PrerankError, match="missing must be"):
            call(missing="drop")


def test_what_needs_all_values_refuses_missing_ones():
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    whole, rows = y.nan_to_num(0), torch.rand(FEW, 1)
    entries = [
        lambda y: compare(dist, dist, y),
        lambda y: diagnose_where(dist, y, rows),
        lambda y: CalibrationHead().fit(dist, y),
        lambda y: Monitor().update(dist, y),
        lambda y: check_omnibus(dist, y),
        lambda y: prerank.nll(dist, y),
    ]
    for entry in entries:
        for observed in (y, whole):
            with pytest.raises(prerank.PrerankError, match=r"missing|NaN"):
                entry(observed)


def test_weights_stacks_and_infinities_are_refused():
    dist, y = forecast("gaussian mixture", "ensemble with missing members")
    with pytest.raises(InputError, match="weights"):
        Ensemble(dist.samples, torch.ones(MEMBERS), **AVAILABLE)
    infinite = y.clone()
    infinite[0, 0] = math.inf
    with pytest.raises(InputError, match="1 infinite values"):
        pit(dist, infinite, "scale", **AVAILABLE)
    stack = gaussian_mixture(2, 50)
    with pytest.raises(ShapeError, match="one by one"):
        pit(stack, with_gaps(stack.sample()), "marginal", **AVAILABLE)
    with pytest.raises(InputError, match="no row"):
        diagnose(gaussian_mixture(20), torch.full((20, 4), NAN), **AVAILABLE)


def test_tables_and_masked_arrays_say_what_is_missing():
    dist = gaussian_mixture(50)
    y = with_gaps(dist.sample()).numpy()
    expected = pit(dist, y, "marginal", **AVAILABLE)
    table = pd.DataFrame(y).astype("Float64")
    for observed in (table, np.ma.masked_invalid(y), pd.DataFrame(y)):
        assert torch.equal(pit(dist, observed, "marginal", **AVAILABLE).isnan(), expected.isnan())


def test_arrays_with_names_may_have_gaps():
    samples, y = fields()
    rng = np.random.default_rng(0)
    samples = samples.where(rng.random(samples.shape) > 0.01)
    y = y.where(rng.random(y.shape) > 0.1)
    with pytest.raises(InputError, match="missing='available'"):
        diagnose(samples, y, target=EVENT)
    found = diagnose(samples, y, target=EVENT, time="time", **AVAILABLE)
    members, observed = plain(samples, y)
    dist = Ensemble(members, **AVAILABLE)
    expected = diagnose(dist, observed, time=range(len(observed)), **AVAILABLE)
    assert found.table.n.tolist() == expected.table.n.tolist()
    assert found.table.pce.tolist() == pytest.approx(expected.table.pce.tolist())
    assert (
        prerank.crps(samples, y, target=EVENT, **AVAILABLE)
        .isnull()
        .equals(y.isnull() | samples.isnull().any("number"))
    )
