"""Studies by seed: which rows are judged, what is summarised, and that they are resumed."""

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import head_predictors
import head_shift
import no_harm
import seedwise
from prerank import Ensemble
from prerank.datasets import Table
from prerank.models import MixtureNetwork

SEEDS = (1, 2)


def toy(rows=400):
    """A table whose second input divides the rows."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 2)).astype(np.float32)
    y = x + draw.normal(size=(rows, 2)).astype(np.float32)
    return Table("toy", x, y, ("a", "b"), ("y0", "y1"))


def lines(seed, method, excess, energy):
    """Lines of one seed and method: one pre-rank of the paper, one that is tied, one unseen."""
    about = {"dataset": "toy", "seed": seed, "forecast": "base", "method": method, "rows": 100}
    about |= {"trained": 200, "seconds": 1.0, "nll_change": excess, "energy": energy}
    for prerank, value, ties in (
        ("marginal", excess, 0.0),
        ("copula", 1.0, 0.99 if method == "none" else 0.9),
        ("directions", 2 * excess, 0.0),
    ):
        yield about | {"prerank": prerank, "excess": value, "ties": ties}


def study(name, seed):
    yield from lines(seed, "none", 0.02, 1.0)
    yield from lines(seed, "head", 0.01 * seed, 0.9)


def test_the_summary_is_paired_by_seed_and_without_tied_preranks():
    table = pd.DataFrame([line for seed in SEEDS for line in study("toy", seed)])
    found = seedwise.summary(table).set_index(["method", "seed"])
    # The copula is tied for one method, so it is left out of all.
    np.testing.assert_allclose(found.excess.loc["head"], [0.01, 0.02])
    np.testing.assert_allclose(found.excess_change.loc["head"], [-0.01, 0])
    np.testing.assert_allclose(found.unseen.loc["head"], [0.02, 0.04])
    np.testing.assert_allclose(found.energy_change.loc["head"], [-10, -10])
    row = seedwise.markdown(table)[-1]
    assert row.startswith("| toy | base | head | 150 | -50 ± ")
    assert "| marginal 150 | 300 |" in row


def test_intervals_widen_with_the_overlap_of_splits():
    values = pd.Series([1.0, 2.0, 3.0, 4.0, 5.0])
    # t(4, .975) = 2.776, s^2 = 2.5; test rows half as many as training rows: 1 / 5 + 1 / 2.
    found = seedwise.half_width(values, 100, 200)
    assert found == pytest.approx(2.7764 * math.sqrt(2.5 * 0.7), rel=1e-4)
    assert math.isnan(seedwise.half_width(values[:1], 100, 200))


def test_a_study_is_resumed_by_seed(tmp_path, monkeypatch, capsys):
    computed = []

    def records(name, seed):
        computed.append(seed)
        yield from study(name, seed)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["study", "--out", str(tmp_path), *arguments])
        seedwise.command("text", ["toy"], records, lambda table: f"{len(table)} lines")

    call("--seeds", "1")
    call("--seeds", "1", "2")
    assert computed == [1, 2]
    call("--page")
    assert capsys.readouterr().out.endswith("12 lines\n")


def test_no_judged_row_is_fitted_to():
    table = toy()
    shift = head_shift.Shift("b", lambda b: b < 0.3, "")
    parts = shift.parts(table, seed=1)
    assert len(torch.cat(list(parts.values())).unique()) == len(table.x)
    inside = torch.from_numpy(table.x[:, 1] < 0.3)
    assert all(
        bool((inside[rows] == (part not in ("few", "shifted"))).all())
        for part, rows in parts.items()
    )


def test_members_are_judged_without_a_density():
    table = toy()
    shift = head_shift.Shift("b", lambda b: b < 0.3, "")
    settings = seedwise.Settings(max_epochs=2)
    trained = seedwise.Trained(MixtureNetwork, table, shift.parts(table, 1), 1, settings)
    test = head_predictors.members(trained.forecast("test", most=50), seed=3)
    assert isinstance(test[0], Ensemble)
    found = pd.DataFrame(seedwise.judged({}, seedwise.fit_none, test, {"samples": test}, seed=1))
    assert (found.rows == 50).all()
    assert found.nll_change.isna().all()
    assert "hdr" not in set(found.prerank)


PAGE = Path(__file__).parents[2] / "docs" / "results" / "head.md"


@pytest.mark.parametrize(
    ("study", "folder", "names"),
    [
        (head_shift, "head_shift", head_shift.SHIFTS),
        (head_predictors, "head_predictors", head_predictors.DATASETS),
    ],
)
def test_the_page_shows_the_tables(study, folder, names):
    files = [pd.read_csv(PAGE.parent / "tables" / folder / f"{name}.csv") for name in names]
    assert study.page(pd.concat(files)).strip() in PAGE.read_text()


def test_the_page_shows_that_a_calibrated_forecast_stays():
    table = pd.read_csv(PAGE.parent / "tables" / "no_harm.csv")
    assert no_harm.markdown(table) in PAGE.read_text()
    settings = table.groupby(["targets", "rows", "ratio"]).data_set.nunique()
    assert (settings == no_harm.DATA_SETS).all()
    means = table[table.ratio == 1].groupby(["targets", "rows"])[["gain", "excess"]].mean()
    rows = means.index.get_level_values("rows")
    assert (-means.gain <= 1 / rows).all()
    assert (means.excess <= 0.1 / rows**0.5).all()
