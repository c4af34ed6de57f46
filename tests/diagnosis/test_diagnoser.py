"""Rows in batches, or in blocks of too many to hold: the diagnosis is that of all rows."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import Diagnoser, Ensemble, diagnose
from prerank.defaults import MANY_ROWS
from prerank.distributions import rows_of
from prerank.errors import InputError, ShapeError
from truths import gaussian_mixture, multivariate_normal

EXACT = ["pce", "floor", "excess", "ties", "lower", "upper"]


def in_batches(dist, y, sizes, **options):
    found, start = Diagnoser(**{"n_null": 200} | options), 0
    for size in sizes:
        rows = slice(start, start + size)
        found.update(rows_of(dist, rows), y[rows])
        start += size
    assert found.rows == start == len(y)
    return found.result()


@pytest.mark.parametrize("sizes", [[200], [1] * 20 + [180], [7, 150, 43]], ids=len)
def test_closed_forms_are_the_same_for_all_batches(sizes):
    dist = gaussian_mixture(200)
    y = dist.sample(generator=1)
    found = in_batches(dist, y, sizes, preranks="marginal+location")
    whole = diagnose(dist, y, preranks="marginal+location", n_null=200)
    for label, z in whole.pits.items():
        torch.testing.assert_close(found.pits[label], z, rtol=1e-13, atol=1e-13)
    same = whole.table[[*EXACT, "component", "method", "note"]]
    pd.testing.assert_frame_equal(found.table[same.columns], same, rtol=1e-10)
    parts = whole.table.component != "all"  # whose p-values need no stand-ins
    np.testing.assert_allclose(found.table.p_value[parts], whole.table.p_value[parts], rtol=1e-12)
    assert found.skipped == whole.skipped
    assert found.units == whole.units


def test_ranks_are_the_same_but_for_the_noise_within_them():
    source = torch.Generator().manual_seed(0)
    members, y = torch.randn(20, 300, 3, generator=source), torch.randn(300, 3, generator=source)
    dist = Ensemble(members)
    for sizes in ([300], [13, 200, 87]):
        found = in_batches(dist, y, sizes)
        whole = diagnose(dist, y, n_null=200)
        assert list(found.pits) == list(whole.pits)
        for label in ("marginal", "location", "pca", "scale"):
            # Principal axes may have another sign where entries sum to zero up to rounding.
            ranks = [(21 * one.pits[label]).floor() for one in (found, whole)]
            assert (ranks[0] != ranks[1]).float().mean() < 0.01, label
        rows = found.table.component == "all"
        assert (found.table.p_value[rows] > 0.01).all()
        assert found.verdict().status == whole.verdict().status


def test_a_failing_forecast_has_the_same_words():
    truth = multivariate_normal(900, dim=2)
    y = truth.sample()
    wide = MultivariateNormal(truth.loc, 2 * truth.covariance_matrix)
    pull = Ensemble(MultivariateNormal(truth.loc, torch.eye(2).double()).sample((40,)))
    for dist in (wide, pull):
        found = in_batches(dist, y, [400, 500])
        whole = diagnose(dist, y, n_null=200)
        assert found.verdict().headline == whole.verdict().headline
        assert found.verdict().failing == whole.verdict().failing


def test_targets_units_and_options():
    truth = multivariate_normal(100, dim=2)
    y = pd.DataFrame(truth.sample().numpy(), columns=["rain", "wind"])
    found = Diagnoser(preranks="marginal", scale=[2.0, 3.0], levels=7, units="mm")
    found.update(truth, y)
    result = found.result()
    assert list(result.table.component) == ["all", "rain", "wind"]
    assert result.units == "mm, each target divided by the given scale"
    assert result.levels == 7
    with pytest.raises(InputError, match=r"the targets are \('y0', 'y1'\)"):
        found.update(truth, y.to_numpy())
    assert found.rows == 100


def test_batches_that_do_not_fit_change_nothing():
    found = Diagnoser(preranks="marginal+pca(2)")
    with pytest.raises(InputError, match=r"call update\(dist, y\) first"):
        found.result()
    found.update(gaussian_mixture(30, dim=3), torch.zeros(30, 3))
    before = found.result()
    refused = [
        (gaussian_mixture(2, 30, dim=3), torch.zeros(2, 30, 3), ShapeError, "stack"),
        (gaussian_mixture(30, dim=3), torch.full((30, 3), math.nan), InputError, "NaN"),
        (Ensemble(torch.randn(9, 30, 3)), torch.zeros(30, 3), InputError, "by ranks"),
        (gaussian_mixture(30, dim=4), torch.zeros(30, 4), InputError, "the targets are"),
    ]
    for dist, y, error, words in refused:
        with pytest.raises(error, match=words):
            found.update(dist, y)
        assert found.rows == 30
    after = found.result()
    assert torch.equal(after.pits["marginal"], before.pits["marginal"])
    assert str(after) == str(before)
    found.update(gaussian_mixture(3, dim=3), torch.zeros(3, 3))
    assert found.result().n == 33


def test_the_number_of_samples_must_not_change():
    found = Diagnoser(preranks="marginal")
    found.update(Ensemble(torch.randn(9, 30, 3)), torch.zeros(30, 3))
    with pytest.raises(InputError, match="dist has 12 samples, and earlier rows 9"):
        found.update(Ensemble(torch.randn(12, 30, 3)), torch.zeros(30, 3))
    assert found.rows == 30


def test_the_number_of_components_must_not_change():
    found = Diagnoser(preranks="pca(0.7)")
    eye = torch.eye(3).expand(20, 3, 3)
    found.update(MultivariateNormal(torch.zeros(20, 3), eye), torch.zeros(20, 3))
    long = torch.diag(torch.tensor([100.0, 1.0, 1.0]))
    with pytest.raises(ShapeError, match="fixed number of components"):
        found.update(
            MultivariateNormal(torch.zeros(20, 3), long.expand(20, 3, 3)), torch.zeros(20, 3)
        )


def test_what_needs_all_rows_is_refused():
    with pytest.raises(InputError, match="pass divisors"):
        Diagnoser(scale="samples")


def test_weighted_samples_have_no_p_values():
    members = torch.randn(9, 40, 2)
    found = Diagnoser(preranks="marginal")
    for rows in (slice(0, 10), slice(10, 40)):
        found.update(
            rows_of(Ensemble(members, members[..., 0].exp()), rows), torch.zeros(40, 2)[rows]
        )
    assert found.result().table.p_value.isna().all()


def test_remarks_of_the_first_rows():
    members = torch.randn(5, 60, 2).repeat(8, 1, 1)
    found = Diagnoser(preranks="marginal")
    for rows in (slice(0, 30), slice(30, 60)):
        found.update(Ensemble(members[:, rows]), torch.randn(30, 2).round())
    remarks = " ".join(found.result().remarks)
    assert "repeated samples" in remarks
    assert "discrete targets" in remarks


def many_rows(n):
    source = torch.Generator().manual_seed(0)
    noise = torch.randn(n, 2, generator=source)
    return MultivariateNormal(torch.zeros(n, 2), torch.eye(2)), noise


def test_many_rows_go_in_blocks():
    dist, y = many_rows(MANY_ROWS + 10)
    found = diagnose(dist, y, preranks="marginal", n_null=300)
    batches = in_batches(dist, y, [MANY_ROWS - 5, 15], preranks="marginal", n_null=300)
    assert torch.equal(found.pits["marginal"], batches.pits["marginal"])
    same = ["pce", "floor", "lower", "upper"]
    pd.testing.assert_frame_equal(found.table[same], batches.table[same])
    assert (found.table.p_value > 0.01).all()


@pytest.mark.slow
def test_verdicts_on_many_rows():
    dist, y = many_rows(MANY_ROWS + 10)
    assert diagnose(dist, y, preranks="marginal", n_null=300).verdict().status == "good"
    spread = "each target divided by the spread of its samples"
    units = diagnose(dist, y, preranks="location", scale="samples", units="mm").units
    assert units == f"mm, {spread}"
    shifted = diagnose(dist, 0.02 + y, preranks="marginal", n_null=300)
    several, *single = shifted.table.p_value
    assert several == pytest.approx(len(single) * min(single))  # no replicate is as extreme
    assert several < 1 / 301
    assert "higher than predicted in every target" in shifted.verdict().headline
