"""Badges are honest, and the first figure shows what the verdict says."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.diagnosis import diagnose_by
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.distributions import Ensemble

CORRELATED = 0.4 * torch.eye(3) + 0.6


def observed(n):
    noise = torch.randn(n, 3, generator=torch.Generator().manual_seed(5))
    return noise @ torch.linalg.cholesky(CORRELATED).mT


def normal(n, covariance):
    return MultivariateNormal(torch.zeros(n, 3), covariance)


def page_of(covariance, n=800, **options):
    found = prerank.diagnose(normal(n, covariance), observed(n), generator=0)
    return diagnosis_page(found, **options)


def words(page):
    return [(badge.status, badge.words) for badge in page.badges]


def test_rows_enough_have_a_tick():
    assert words(page_of(CORRELATED)) == [("good", "Nothing found")]


def test_few_rows_have_none_anywhere():
    page = page_of(CORRELATED, 120)
    assert words(page) == [("unclear", "Nothing found (few rows)")]
    outcomes = {row.outcome for row in page.overview.rows}
    assert outcomes == {("unclear", "nothing found (few rows)")}


def test_few_rows_have_no_tick_beside_a_failure():
    page = page_of(0.15 * CORRELATED, 60)
    assert words(page)[:2] == [("bad", "Problem"), ("bad", "Margins: wrong")]
    assert ("unclear", "Dependence: nothing found (few rows)") in words(page)
    assert all(row.outcome.status != "good" for row in page.overview.rows)


@pytest.mark.parametrize(
    ("covariance", "margins", "dependence"),
    [
        (0.35 * CORRELATED, ("bad", "wrong"), ("good", "nothing found")),
        (torch.eye(3), ("good", "nothing found"), ("bad", "wrong")),
        (1.6 * torch.eye(3), ("bad", "wrong"), ("bad", "wrong")),
    ],
    ids=["margins", "dependence", "both"],
)
def test_margins_and_dependence_stand_beside_each_other(covariance, margins, dependence):
    found = words(page_of(covariance))
    assert found == [
        ("bad", "Problem"),
        (margins[0], f"Margins: {margins[1]}"),
        (dependence[0], f"Dependence: {dependence[1]}"),
    ]


def test_a_dependence_that_samples_hide_is_not_called_fine():
    dist = Ensemble(normal(800, 0.3 * CORRELATED).sample((6,)))
    found = prerank.diagnose(dist, observed(800), generator=0)
    assert ("unclear", "Dependence: not tested") in words(diagnosis_page(found))


def test_groups_that_fail_are_not_hidden_by_the_whole(tmp_path):
    n = 1200
    y = observed(n)
    half = torch.arange(n) % 2 == 0
    bias = torch.where(half, 0.25, -0.25).unsqueeze(-1)
    spread = math.sqrt(1 - 0.25**2)  # over all rows the margins keep their spread
    found = diagnose_by(
        normal(n, CORRELATED), spread * y + bias, half.tolist(), preranks="marginal", generator=0
    )
    verdict = found.verdict()
    assert (verdict.status, found.overall.verdict().status) == ("bad", "good")
    page = diagnosis_page(found.overall, verdict=verdict, groups=found.groups)
    assert words(page) == [("bad", "Problem within groups")]


def test_groups_with_few_rows_are_counted():
    groups = ["a"] * 700 + ["b"] * 50 + ["c"] * 50
    found = diagnose_by(normal(800, CORRELATED), observed(800), groups, generator=0)
    point = found.verdict().points[0]
    assert point.endswith("; too few rows to tell in 2.")


def test_what_fails_comes_first_and_before_is_beside_after():
    y = observed(800)
    before = prerank.diagnose(normal(800, 0.35 * CORRELATED), y, generator=0)
    after = prerank.diagnose(normal(800, 1.6 * torch.eye(3)), y, generator=0)
    plot = diagnosis_page(after, before=before, change="the head").overview
    fails = [row.outcome.words == "fails" for row in plot.rows]
    assert fails == sorted(fails, reverse=True)
    assert {row.label for row in plot.rows if row.outcome.words == "fails"} == set(
        after.verdict().failing
    )
    for row in plot.rows:
        own, old = after.by_prerank[row.label], before.by_prerank[row.label]
        assert (row.mark.excess, row.before.excess) == (own.excess, old.excess)
        assert (row.mark.lower, row.mark.upper) == (own.lower, own.upper)
    assert f"{len(before.verdict().failing)} of 7 pre-ranks failed" in plot.lead
    assert f"{len(after.verdict().failing)} of 7" in plot.lead
    assert plot.worst.caption.startswith(plot.rows[0].label)


def test_weighted_samples_have_no_badge_of_success():
    samples = normal(300, CORRELATED).sample((50,))
    weights = torch.rand(50, 300, generator=torch.Generator().manual_seed(0))
    found = prerank.diagnose(Ensemble(samples, weights), observed(300), generator=0)
    page = diagnosis_page(found)
    assert words(page) == [("unclear", "No verdict")]
    assert {row.outcome.words for row in page.overview.rows} == {"not tested"}
