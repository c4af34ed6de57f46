"""The table of `diagnose`: what is in it, what is left out, and why."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal, Poisson

from prerank import Diagnoser, Ensemble, GaussianMixture, diagnose, pce, pce_floor, pit
from prerank.calibration import holm, reliability_curve
from prerank.calibration.uniformity import component_p_values
from prerank.datasets import AR1Regression
from prerank.diagnosis import diagnose_by
from prerank.errors import InputError, NotApplicableError
from truths import discrete, gaussian_mixture, multivariate_normal, skewness, student_copula

COLUMNS = ["prerank", "component", "pce", "floor", "excess", "p_value", "p_holm", "ties"]
COLUMNS += ["method", "note", "lower", "upper"]
PAPER = ["marginal", "location", "scale", "dependency", "pca", "hdr", "copula"]


def diagnosed(dist, y=None, **options):
    y = dist.sample() if y is None else y
    return diagnose(dist, y, **{"n_null": 200, "generator": 1234} | options)


def overall(found):
    return found.table[found.table.component == "all"].set_index("prerank")


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    return diagnosed(gaussian_mixture(120))


def test_columns_and_order(found):
    assert list(found.table.columns) == COLUMNS
    assert list(overall(found).index) == PAPER
    assert list(found.pits) == PAPER
    assert found.skipped == {}


def test_rows_and_components(found):
    rows = found.table.groupby("prerank", sort=False).component.apply(list).to_dict()
    assert rows["marginal"] == ["all", "y0", "y1", "y2", "y3"]
    assert rows["pca"] == ["all", "pc1", "pc2", "pc3", "pc4"]
    for single in ("location", "scale", "dependency", "hdr", "copula"):
        assert rows[single] == ["all"]


def test_numbers_follow_from_the_pits(found):
    table = found.table
    assert (table.floor == pce_floor(120)).all()
    np.testing.assert_allclose(table.excess, table.pce - table.floor, rtol=0, atol=1e-15)
    for label, z in found.pits.items():
        rows = table[table.prerank == label]
        errors = pce(z).numpy()
        assert rows.pce.iloc[0] == pytest.approx(errors.mean(), rel=1e-12)
        if len(errors) > 1:
            np.testing.assert_allclose(rows.pce.iloc[1:], errors, rtol=1e-12)
            singles = rows.p_value.iloc[1:]
        else:
            singles = rows.p_value
        np.testing.assert_allclose(singles, component_p_values(z), rtol=1e-12)
        curve = reliability_curve(z)
        torch.testing.assert_close(found.curves[label].observed, curve.observed)
    assert ((table.p_value > 0) & (table.p_value <= 1)).all()


def test_holm_is_over_the_pre_ranks(found):
    whole = found.table.component == "all"
    assert found.table.p_holm[~whole].isna().all()
    rows = found.table[whole]
    np.testing.assert_allclose(rows.p_holm, holm(rows.p_value), rtol=1e-12)
    alone = diagnosed(gaussian_mixture(50), preranks="marginal").table
    assert alone.p_holm[0] == alone.p_value[0]


def test_methods_and_ties(found):
    method = overall(found).method
    for label in PAPER:
        closed = label in ("marginal", "location", "pca")
        assert method[label] == ("closed form" if closed else "ranks")
    assert (found.table.note == "").all()
    ties = overall(found).ties
    assert ties.drop("copula").eq(0).all()
    assert 0 < ties["copula"] < 0.9


def test_ties_are_those_of_the_samples():
    dist = Ensemble(torch.tensor([[[1.0], [0.0]], [[2.0], [0.0]], [[2.0], [0.0]], [[3.0], [1.0]]]))
    table = diagnosed(dist, torch.tensor([[2.0], [0.0]]), preranks="marginal").table
    assert table.ties[0] == pytest.approx((2 / 4 + 3 / 4) / 2)
    many = diagnosed(discrete(60), preranks="marginal").table
    assert (many.ties > 0.05).all()


def test_targets_are_named_after_columns():
    dist = multivariate_normal(40, dim=3)
    y = pd.DataFrame(dist.sample().numpy(), columns=["tmin", "tmax", 7])
    table = diagnosed(dist, y, preranks="marginal+pca").table
    assert list(table.component) == ["all", "tmin", "tmax", "7", "all", "pc1", "pc2", "pc3"]


def test_names_of_targets_go_before_columns():
    dist, y = Ensemble(torch.randn(9, 30, 2)), torch.randn(30, 2)
    named = diagnose(dist, pd.DataFrame(y.numpy(), columns=["a", "b"]), names=["rain", "wind"])
    assert list(named.table.component[:3]) == ["all", "rain", "wind"]
    by = diagnose_by(dist, y, ["u", "v"] * 15, preranks="marginal", names=["rain", "wind"])
    assert list(by.groups["u"].table.component) == ["all", "rain", "wind"]
    diagnoser = Diagnoser(preranks="marginal", names=["rain", "wind"])
    diagnoser.update(dist, y)
    assert "rain" in set(diagnoser.result().table.component)
    with pytest.raises(InputError, match="names has 1 names, but 2 are needed"):
        diagnose(dist, y, names=["rain"])


def test_functions_are_named_after_themselves():
    def two(y):
        return y[..., :2]

    table = diagnosed(multivariate_normal(40), preranks=[skewness, two]).table
    assert list(table.prerank) == ["skewness", "two", "two", "two"]
    assert list(table.component) == ["all", "all", "0", "1"]


# dist, labels that are skipped, words of the reasons
SKIPPED = [
    ("two targets", multivariate_normal(40, dim=2), {"dependency": ["D = 2", "copula"]}),
    (
        "one target",
        multivariate_normal(40, dim=1),
        {"scale": ["D = 1", "marginal"], "dependency": ["D = 1"]}
        | {label: ["same as marginal"] for label in ("location", "pca", "copula")},
    ),
    ("ensemble", Ensemble(torch.randn(20, 40, 3)), {"hdr": ["samples alone", "density"]}),
    (
        "ensemble of two",
        Ensemble(torch.randn(20, 40, 2)),
        {"dependency": ["D = 2"], "hdr": ["density"]},
    ),
]


@pytest.mark.parametrize(("dist", "skipped"), [s[1:] for s in SKIPPED], ids=[s[0] for s in SKIPPED])
def test_what_does_not_apply_is_named_with_its_reason(dist, skipped):
    found = diagnosed(dist)
    assert list(found.skipped) == list(skipped)
    for label, words in skipped.items():
        assert all(word in found.skipped[label] for word in words)
        assert f"skipped {label}: {found.skipped[label]}" in str(found)
        if "same as" in found.skipped[label]:
            assert list(diagnosed(dist, preranks=label).pits) == [label]
            continue
        with pytest.raises(NotApplicableError):
            diagnosed(dist, preranks=label)
    assert list(found.pits) == [label for label in PAPER if label not in skipped]
    assert set(found.table.prerank) == set(found.pits)


def test_the_same_pre_rank_twice_is_refused():
    with pytest.raises(InputError, match="twice"):
        diagnosed(multivariate_normal(40), preranks=["scale", "scale"])


# Units

SCALE = torch.tensor([0.1, 1.0, 20.0, 3.0], dtype=torch.float64)


def divided_normal(dist):
    return MultivariateNormal(dist.loc / SCALE, scale_tril=dist.scale_tril / SCALE[:, None])


UNITS = [
    (multivariate_normal(60), divided_normal),
    (
        gaussian_mixture(60),
        lambda d: GaussianMixture(d.logits, d.loc / SCALE, d.scale_tril / SCALE[:, None]),
    ),
    (
        Independent(Normal(torch.zeros(60, 4).double(), torch.ones(60, 4).double()), 1),
        lambda d: Independent(Normal(d.mean / SCALE, d.stddev / SCALE), 1),
    ),
    (Ensemble(torch.randn(20, 60, 4).double()), lambda d: Ensemble(d.samples / SCALE)),
]


@pytest.mark.parametrize(("dist", "divide"), UNITS, ids=[type(u[0]).__name__ for u in UNITS])
def test_scale_is_division_by_hand(dist, divide):
    y = dist.mean + torch.randn(60, 4, dtype=torch.float64)
    given = diagnosed(dist, y, scale=SCALE)
    by_hand = diagnosed(divide(dist), y / SCALE)
    for label, z in by_hand.pits.items():
        torch.testing.assert_close(given.pits[label], z, rtol=1e-9, atol=1e-9)
    pd.testing.assert_frame_equal(given.table, by_hand.table, rtol=1e-9)
    plain = diagnosed(dist, y)
    assert not torch.equal(given.pits["scale"], plain.pits["scale"])  # depends on units
    torch.testing.assert_close(given.pits["marginal"], plain.pits["marginal"])  # does not


def test_scale_of_another_distribution():
    dist = student_copula(60)
    y = dist.sample()
    given, plain = diagnosed(dist, y, scale=SCALE.numpy()), diagnosed(dist, y)
    torch.testing.assert_close(given.pits["marginal"], plain.pits["marginal"])
    assert not torch.equal(given.pits["location"], plain.pits["location"])


# Weights, power, randomness


def test_weighted_samples_have_no_p_value():
    dist = Ensemble(torch.randn(30, 40, 3), torch.rand(30))
    table = diagnosed(dist, torch.randn(40, 3)).table
    assert table.p_value.isna().all()
    assert table.p_holm.isna().all()
    assert (table.method == "weighted ranks").all()
    assert table.note.str.contains("no p-value").all()
    assert np.isfinite(table[["pce", "floor", "excess", "ties"]].to_numpy()).all()


def test_many_targets_leave_the_copula_without_power():
    dist = MultivariateNormal(torch.zeros(200, 14), torch.eye(14))
    table = overall(diagnosed(dist, preranks="copula+scale"))
    assert table.ties["copula"] > 0.99
    share = f"{table.ties['copula']:.0%}"
    assert table.note["copula"] == f"no power: {share} of the samples tie with the observation"
    assert table.note["scale"] == ""
    few = overall(diagnosed(multivariate_normal(200, dim=2), preranks="copula"))
    assert few.note["copula"] == ""


def test_seeds_make_it_reproducible():
    dist = gaussian_mixture(60)
    y = dist.sample(generator=1)
    before = torch.get_rng_state()
    first, again = diagnosed(dist, y, generator=5), diagnosed(dist, y, generator=5)
    pd.testing.assert_frame_equal(first.table, again.table, check_exact=True)
    other = diagnosed(dist, y, generator=6)
    assert not torch.equal(first.pits["copula"], other.pits["copula"])
    torch.testing.assert_close(first.pits["marginal"], other.pits["marginal"], rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())


def test_a_seed_shared_with_the_data_does_no_harm():
    dist = MultivariateNormal(torch.zeros(500, 14).double(), torch.eye(14).double())
    torch.manual_seed(0)
    ours = gaussian_mixture(500, dim=3)
    shared = {
        "global state": (dist, dist.sample()),
        "sample": (ours, ours.sample(generator=0)),
    }
    for law, y in shared.values():
        table = diagnosed(law, y, preranks="copula+scale", generator=0).table
        assert table.ties[1] == 0  # y is none of the draws
        assert table.p_value.min() > 1e-3
    truth = AR1Regression(dim=3)
    x, y = truth.sample(500, generator=0)
    table = diagnosed(truth.conditional(x), y, preranks="copula+scale", generator=0).table
    assert table.ties[1] == 0
    assert table.p_value.min() > 1e-3


def test_scale_keeps_ties():
    # 5 times 1/3 and 5 over 3 differ in the last digit.
    dist, y = Ensemble(torch.full((20, 50, 1), 5.0)), torch.full((50, 1), 5.0)
    found = diagnosed(dist, y, preranks="marginal", scale=[3.0])
    assert found.table.ties[0] == 1
    assert found.pits["marginal"].min() < 0.5


def test_pits_are_those_of_pit():
    dist = multivariate_normal(60)
    y = dist.sample()
    found = diagnosed(dist, y, preranks="marginal+location")
    torch.testing.assert_close(found.pits["marginal"], pit(dist, y, "marginal"))
    torch.testing.assert_close(found.pits["location"], pit(dist, y, "location"))


def test_levels_are_passed_on():
    dist = multivariate_normal(60)
    found = diagnosed(dist, preranks="scale+marginal", levels=11)
    assert (found.table.floor == pce_floor(60, levels=11)).all()
    assert found.curves["scale"].levels.shape == (11,)
    expected = float(pce(found.pits["scale"], levels=11))
    assert overall(found).pce["scale"] == pytest.approx(expected, rel=1e-12)


def test_a_stack_is_diagnosed_member_by_member():
    stack = gaussian_mixture(2, 60)
    y = gaussian_mixture(60).sample(generator=1)
    found = diagnosed(stack, y, preranks="marginal+scale")
    assert list(found.table.columns) == ["model", *COLUMNS]
    assert list(found.table.model) == [0] * 6 + [1] * 6
    for m in range(2):
        one = GaussianMixture(stack.logits[m], stack.loc[m], stack.scale_tril[m])
        alone = diagnosed(one, y, preranks="marginal+scale").table
        mine = found.table[found.table.model == m].reset_index(drop=True)
        np.testing.assert_allclose(mine.pce, alone.pce, rtol=1e-9)
        whole = mine[mine.component == "all"]
        np.testing.assert_allclose(whole.p_holm, holm(whole.p_value), rtol=1e-12)


def test_the_right_predictor_passes_and_wrong_ones_are_found():
    lag = (torch.arange(4).unsqueeze(-1) - torch.arange(4)).abs()
    factor = torch.linalg.cholesky(0.8 ** lag.double())
    zeros = torch.zeros(500, 4, dtype=torch.float64)
    truth = MultivariateNormal(zeros, scale_tril=factor)
    y = truth.sample()
    assert (overall(diagnosed(truth, y)).p_holm > 0.05).all()
    independent = overall(diagnosed(Independent(Normal(zeros, zeros + 1), 1), y)).p_holm
    assert (independent[["scale", "dependency", "hdr", "copula"]] < 0.01).all()
    assert independent["marginal"] > 0.05  # every margin is right
    biased = overall(diagnosed(MultivariateNormal(zeros + 0.5, scale_tril=factor), y)).p_holm
    assert (biased[["marginal", "location", "pca", "copula"]] < 0.05).all()


def test_text_holds_the_table(found):
    text = str(found)
    assert all(label in text for label in PAPER)
    assert "nan" not in text.lower()


class Sampler(Distribution):
    """A law that can be drawn from, and nothing else."""

    arg_constraints: ClassVar = {}

    def __init__(self, n):
        super().__init__(torch.Size((n,)), torch.Size((3,)), validate_args=False)

    def sample(self, sample_shape=()):
        return torch.randn(*sample_shape, *self.batch_shape, 3)


def test_a_law_without_density_is_diagnosed_without_hdr():
    found = diagnose(Sampler(40), torch.randn(40, 3), generator=0)
    assert list(found.skipped) == ["hdr"]
    assert "density" in found.skipped["hdr"]


def test_too_few_replicates_are_noted():
    found = diagnose(Sampler(40), torch.randn(40, 3), preranks="marginal", n_null=10, generator=0)
    assert "n_null" in found.table.note[0]
    assert not found.table.note[1:].any()


@pytest.mark.parametrize("label", ["marginal", "location", "pca", "scale", "hdr"])
def test_autocast_does_not_reach_the_ranks(label):
    dist = GaussianMixture(
        torch.zeros(200, 2), torch.full((200, 2, 3), 1000.3), torch.eye(3).expand(200, 2, 3, 3)
    )
    y = dist.sample(generator=1)
    plain = pit(dist, y, label, generator=0, closed_forms=False)
    with torch.autocast("cpu", torch.bfloat16):
        cast = pit(dist, y, label, generator=0, closed_forms=False)
    torch.testing.assert_close(cast, plain, rtol=0, atol=0)


def test_units_of_counts_may_be_changed():
    dist = Independent(Poisson(torch.full((50, 3), 3.0)), 1)
    y = dist.sample()
    found = diagnose(dist, y, scale=[3.0, 7.0, 0.1], generator=0)
    assert "hdr" in found.pits
    assert found.table.pce.notna().all()


def test_a_target_named_all_is_not_the_whole():
    y = pd.DataFrame(np.random.default_rng(0).normal(3.0, 1.0, (200, 2)), columns=["all", "b"])
    dist = MultivariateNormal(torch.zeros(200, 2), torch.eye(2))
    found = diagnose(dist, y, preranks="marginal")
    assert list(found.table.component) == ["all", "target all", "b"]
    assert found.table.p_holm.notna().tolist() == [True, False, False]
    assert found.by_prerank["marginal"].pce == found.table.pce[0]
