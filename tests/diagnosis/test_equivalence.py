"""Calibrated to within a tolerance: in Python, in words and on the page."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from pictures import leave_blank
from prerank.diagnosis import diagnose_by
from prerank.errors import InputError


@cache
def diagnosed(n, spread=1.0, **options):
    y = torch.randn(n, 2, generator=torch.Generator().manual_seed(3)) / spread
    dist = MultivariateNormal(torch.zeros(n, 2), torch.eye(2))
    return prerank.diagnose(dist, y, preranks="marginal+location", **options)


def test_limits_stand_in_every_row():
    table = diagnosed(4000).table
    assert bool((table.lower <= table.pce).all())
    assert bool((table.pce < table.upper).all())


def test_many_rows_show_what_few_do_not():
    many, few = diagnosed(4000), diagnosed(100)
    claim = many.within(0.03)
    assert claim.shown
    assert claim.upper == many.table.upper.max() <= 0.03
    assert str(claim).startswith("Calibrated to within 0.03 at 95 %: every error is at most")
    verdict = many.verdict(within=0.03)
    assert verdict.headline == str(claim)
    assert verdict.status == "good"
    assert many.verdict().headline in verdict.points
    assert not few.within(0.03).shown
    words = few.verdict(within=0.03)
    assert words.headline == few.verdict().headline
    assert words.points[-1].startswith("Not shown to be calibrated to within 0.03 at 95 %")


def test_a_fault_may_be_real_and_small():
    diagnosis = diagnosed(20_000, spread=1.05, n_null=200)
    assert diagnosis.verdict().status == "bad"
    verdict = diagnosis.verdict(within=0.03)
    assert verdict.status == "bad"
    assert verdict.headline == diagnosis.verdict().headline
    assert verdict.points[-1].startswith("Calibrated to within 0.03")


def test_weighted_samples_show_nothing():
    members = prerank.Ensemble(torch.randn(9, 50, 2), torch.rand(9))
    diagnosis = prerank.diagnose(members, torch.randn(50, 2), preranks="marginal")
    assert diagnosis.table.upper.isna().all()
    claim = diagnosis.within(0.4)
    assert not claim.shown
    assert math.isnan(claim.upper)
    assert "no confidence limits" in str(claim)


def test_ties_are_left_out():
    zeros = torch.zeros(20, 3000, 2)
    zeros[..., 0] = torch.randn(20, 3000)
    y = torch.stack([torch.randn(3000), torch.zeros(3000)], -1)
    claim = prerank.diagnose(prerank.Ensemble(zeros), y, preranks="marginal").within(0.04)
    assert claim.left_out == ("marginal",)
    assert claim.worst == "marginal (y0)"
    assert claim.shown
    assert str(claim).endswith("Ties leave marginal out.")


def test_groups_need_it_each():
    n = 6000
    y = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    dist = MultivariateNormal(torch.zeros(n, 2), torch.eye(2))
    names = ["few"] * 100 + ["many"] * (n - 100)
    grouped = diagnose_by(dist, y, names, preranks="marginal")
    assert grouped.overall.within(0.03).shown
    assert not grouped.within(0.03).shown
    assert "Not shown" in grouped.verdict(within=0.03).points[-1]


def test_the_page_says_it(tmp_path, monkeypatch):
    leave_blank(monkeypatch)
    page = diagnosed(4000).to_html(tmp_path / "page.html", within=0.03)
    text = page.read_text(encoding="utf-8")
    assert "Calibrated to within 0.03 at 95" in text
    assert "the true error is at most this" in text


@pytest.mark.parametrize("bad", [0, 1.5, "x"])
def test_tolerances_are_checked(bad):
    with pytest.raises(InputError, match="within"):
        diagnosed(100).within(bad)


def test_numbers_of_numpy_are_tolerances():
    assert diagnosed(100).within(np.float32(0.25)) == diagnosed(100).within(0.25)
