"""The simulation study of faults by pre-ranks: its truths, its size, its tables on the page."""

import pandas as pd
import pytest
import torch
from scipy.stats import binomtest, kstest, kurtosis

from evidence_parts.sightlines import (
    CELLS,
    FAULTS,
    LEVEL,
    factor,
    forecast,
    lines,
    observations,
    outcomes,
    p_values,
)
from marked_pages import filled
from prerank.calibration import holm
from prerank.pits import project_pits
from prerank.preranks import parse
from sightlines_page import FIGURES, PAGE, TABLE, page_tables

MANY = 40_000
CORRELATION = (factor(8) @ factor(8).mT).float()


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(TABLE, keep_default_na=False, na_values=[""])


def drawn(fault, size, shape=(1, MANY), seed=0):
    return observations(fault, size, 8, shape, torch.Generator().manual_seed(seed)).flatten(0, 1)


# Standard errors of means and correlations of 40,000 rows are .005 at most: 5 of them are .025.
@pytest.mark.parametrize("size", [0.05, 0.2])
def test_every_truth_differs_from_the_forecast_in_one_way(size):
    y = drawn("none", 0.0)
    assert y.mean(0).abs().max() < 0.025
    assert (torch.corrcoef(y.T) - CORRELATION).abs().max() < 0.025
    assert torch.allclose(drawn("mean", size), y + size)
    assert torch.allclose(drawn("variance", size), y * (1 + size))
    weaker = drawn("correlation", size)
    assert (torch.corrcoef(weaker.T)[0] - (0.5 - size) ** torch.arange(8)).abs().max() < 0.025
    assert (weaker.std(0) - 1).abs().max() < 0.025
    order = drawn("order", 1.0)
    assert torch.equal(order.sort(-1).values, y.sort(-1).values)
    assert torch.equal(order[:, ::2], y[:, 1::2])


def test_tails_keep_the_copula_and_the_variance_and_copulas_keep_the_margins():
    y, tails, copula = drawn("none", 0.0), drawn("tails", 0.2), drawn("copula", 0.2)
    # An increasing function of each target keeps the copula.
    assert (tails.gather(0, y.argsort(0)).diff(dim=0) >= -1e-6).all()  # up to rounding in float32
    # Five degrees of freedom: a kurtosis of 9, of which samples show a part.
    assert (tails.var(0) - 1).abs().max() < 0.1
    assert kurtosis(tails.numpy()).min() > 2
    for margin in copula.T:
        assert kstest(margin.numpy(), "norm").pvalue > 1e-4
    # Joint tails: both of two neighbours beyond 2.5 standard deviations, more often than before.
    both = [(one[:, :2].abs() > 2.5).all(-1).float().mean() for one in (y, copula)]
    assert both[1] > 2 * both[0]
    # The correlation of the margins changes little.
    assert (torch.corrcoef(copula.T) - CORRELATION).abs().max() < 0.05


def test_p_values_of_several_components_are_uniform_under_the_truth(monkeypatch):
    monkeypatch.setattr("evidence_parts.sightlines._NULL", 2000)
    source = torch.Generator().manual_seed(7)
    y = observations("none", 0.0, 3, (600, 60), source).flatten(0, 1)
    (result,) = project_pits(forecast(3, len(y)), y, parse("marginal"))
    found = p_values(result.z.unflatten(0, (600, 60)), "marginal")
    # A null of 2,000 replicates is off by a standard error of .011, as large as that of 600 values.
    assert kstest(found.numpy(), "uniform").statistic < 0.09


def test_a_shift_is_seen_by_location_and_not_by_scale(monkeypatch):
    monkeypatch.setattr("evidence_parts.sightlines._NULL", 1000)
    cell = {"fault": "mean", "size": 0.4, "D": 3, "n": 80}
    found = pd.DataFrame(outcomes(range(20), **cell))
    made = pd.DataFrame(lines(cell, found)).set_index("prerank")
    assert made.rate[["marginal", "location", "average_rank"]].min() > 0.7
    assert made.rate[["scale", "dependency"]].max() < 0.3
    assert made.excess["location"] > 5 * made.excess_se["location"]
    assert (made.data_sets == 20).all()


def test_the_stored_table_has_every_cell_with_its_data_sets(table):
    keys = ["fault", "size", "D", "n"]
    assert table.groupby(keys, sort=False).ngroups == len(CELLS)
    wanted = {tuple(cell.values()): count for cell, count in CELLS}
    for cell, own in table.groupby(keys):
        assert set(own.data_sets) == {wanted[cell]}
        assert len(own) == 8 + (cell[2] > 2)
    assert set(table.fault) == {"none", *FAULTS}


def test_calibrated_forecasts_are_rejected_at_the_level(table):
    own = table[table.fault == "none"]
    hits = (own.rate * own.data_sets).round().astype(int)
    p = [binomtest(k, n, LEVEL).pvalue for k, n in zip(hits, own.data_sets, strict=True)]
    assert min(holm(p)) > 0.01
    # Mean of rates that partly share their data: no more than four standard errors of a single one.
    assert abs(own.rate.mean() - LEVEL) < 4 * (LEVEL * (1 - LEVEL) / own.data_sets.iloc[0]) ** 0.5
    assert own.excess.abs().max() < 5 * own.excess_se.max()


def test_pre_ranks_that_treat_all_targets_alike_do_not_see_their_order(table):
    own = table[table.fault == "order"].set_index("prerank")
    for label in ("marginal", "location", "scale", "copula", "average_rank", "band_depth"):
        # Four standard errors of .05 in 1,000 data sets.
        assert (own.rate[label] < 0.08).all()
    for label in ("pca", "dependency", "hdr"):
        assert own[own["size"] == 1].rate[label] > 0.95


def test_the_page_shows_the_tables_and_the_figures(table):
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, page_tables(table)) == text
    for name in ("matrix", "curves"):
        assert f"figures/sightlines-{name}.png" in text
        assert (FIGURES / f"sightlines-{name}.png").read_bytes().startswith(b"\x89PNG")
