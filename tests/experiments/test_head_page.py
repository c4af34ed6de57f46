"""The results page of the head: bounds, what a perfect forecast scores, criteria and tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from head import METHODS
from head_criteria import verdicts
from head_page import TABLES, page_tables
from head_results import PAPER, SHOWN, UNSEEN, Results, upper_bound
from marked_pages import MARKED, filled
from perfection import overlap, perfect, table_rows
from prerank.calibration.error import pce_spread
from prerank.datasets import published_split
from rivals import rivals

PAGE = Path(__file__).parents[2] / "docs" / "results" / "head.md"
TABLE = PAGE.parent / "tables" / "head"


def test_the_bound_by_hand():
    # s = 1 and t = 2.91999 with two degrees of freedom.
    found = upper_bound(pd.Series([1.0, 2.0, 3.0]), ratio=0.25)
    assert found == pytest.approx(2 + 2.91999 * (1 / 3 + 1 / 4) ** 0.5, abs=1e-4)


def test_the_bound_covers_equally_correlated_differences():
    """With correlation r the variance is right for a ratio of r / (1 - r), so that t is exact."""
    ratio, draw, tries = 0.25, np.random.default_rng(0), 2_000
    own, common = draw.normal(size=(tries, 5)), draw.normal(size=(tries, 1))
    bounds = [upper_bound(pd.Series(x), ratio) for x in own + ratio**0.5 * common]
    error = (0.05 * 0.95 / tries) ** 0.5
    assert abs(np.mean(np.array(bounds) > 0) - 0.95) < 4 * error


@pytest.mark.parametrize("n", [1_060, 1_137, 7_207, 10_000, 20_000])
def test_the_size_of_a_table_follows_from_its_test_rows(n):
    split = published_split(n, seed=0)
    judged = min(len(split.test), 3_000)
    assert table_rows(judged) == pytest.approx(n, rel=1 / 200)
    fitted = len(split.train) + len(split.validation) + len(split.calibration)
    assert overlap(judged) == pytest.approx(judged / fitted, rel=1 / 50)


@pytest.mark.parametrize(
    ("seeds", "shrinkage"),
    # Test sets share a fifth of their rows, and errors are as correlated as its square.
    [((0,), 1.0), ((0, 42, 866, 12, 4), (1 / 5 + 4 / 5 * 0.2**2) ** 0.5)],
)
def test_a_perfect_forecast_has_no_excess(seeds, shrinkage):
    tries = 300
    labels, excess, squared = perfect(399, 2, seeds, rows=1_000, replicates=tries)
    assert labels == [*(label for label in PAPER if label != "dependency"), *UNSEEN]
    spread = shrinkage * pce_spread(399)
    # A pool of 1,000 rows puts a level off by at most .001, of which 5 % remain in the mean.
    assert np.abs(excess.mean(0)).max() < 4 * spread / tries**0.5 + 5e-5
    assert (np.abs(squared.mean(0)) < 4 * squared.std(0) / tries**0.5 + 1e-6).all()
    alone = [labels.index(label) for label in ("location", "hdr", "copula", "energy_score")]
    # The standard deviation of a skewed value (kurtosis 6) is known to sqrt(5 / (4 B)).
    assert np.abs(excess[:, alone].std(0) / spread - 1).max() < 4 * (5 / (4 * tries)) ** 0.5


NONE = {"excess": 0.010, "nll": 2.0, "energy": 1.0}
RUNS = dict.fromkeys(SHOWN, NONE) | {
    ("base", "prototype"): {"excess": 0.006, "nll": 1.5, "energy": 1.0},
    ("base", "head"): {"excess": 0.003, "nll": 1.25, "energy": 0.99},
    ("ensemble", "head"): {"excess": 0.004, "nll": 1.0, "energy": 1.02},
    ("base", "likelihood"): {"excess": 0.003, "nll": 1.25, "energy": 0.99},
}


def lines(dataset, rows, *, shift=0.0):
    """Every seed the same numbers, those of the head larger by a shift; the copula only ties."""
    for seed in (0, 42, 866):
        for (forecast, method), run in RUNS.items():
            more = shift if (forecast, method) == ("base", "head") else 0.0
            change = run["nll"] - 2.0 + more
            scores = {"nll": run["nll"] + more, "energy": run["energy"] * (1 + more)}
            scores |= {f"nll_change{end}": change for end in ("", "_trimmed", "_median")}
            for prerank in (*PAPER, *UNSEEN):
                tied = prerank == "copula"
                excess = 1.0 if tied else run["excess"] + more
                yield {"dataset": dataset, "seed": seed, "forecast": forecast, "method": method} | {
                    **{"rows": rows, "seconds": 1.0, "variogram": 1.0, "prerank": prerank},
                    **{"excess": excess, "squared": excess**2, "ties": 0.99 * tied},
                    **scores,
                }


@pytest.fixture
def folder(tmp_path):
    for dataset, rows, shift in (("air", 2_318, 0.0), ("scm20d", 2_008, 0.009), ("wq", 212, 0.0)):
        table = pd.DataFrame(lines(dataset, rows, shift=shift))
        table.to_csv(tmp_path / f"{dataset}.csv", index=False)
    points = {"excess": 0.002, "largest": 0.004, "unseen": 0.002, "squared": 1e-5, "sd": 1e-3}
    perfect = pd.DataFrame([{"dataset": name} | points for name in ("air", "scm20d", "wq")])
    perfect.to_csv(tmp_path / "perfect.csv", index=False)
    return tmp_path


def test_criteria_are_read_off_the_files(folder):
    results = Results(folder)
    assert (results.continuous, results.discrete) == (["air", "scm20d"], ["wq"])
    # Equal seeds: bounds are the means. Head - prototype is -.003, on scm20d .006.
    missed = {verdict.criterion: verdict.missed for verdict in verdicts(results)}
    assert len(missed) == 13
    assert {name: found for name, found in missed.items() if found} == {
        "1. excess, head - prototype: upper bound at most +20 on each dataset": [
            "scm20d by +40 (mean +60)"
        ],
        **{
            f"1. continuous datasets with 1,000 test rows or more: {what} on each dataset": [
                f"scm20d by +{by}"
            ]
            for what, by in (("excess at most +30", 90), ("largest pre-rank at most +60", 60))
        },
    }
    found = {verdict.criterion: verdict.found for verdict in verdicts(results)}
    pooled = -0.75 + 0.009 * 2_008 / (2_318 + 2_008 + 212)
    assert found["2. NLL, head - base: mean over all test rows below 0"] == f"{pooled:+.3f}"
    # .006 to .003 on two datasets and .012 on the third.
    assert "-50 % (air -50 %, wq -50 %, scm20d +100 %)" in found.values()
    assert found["2. excess, five - one: upper bound at most +30 on each dataset"] == (
        "at most +10 (air)"
    )


def test_every_marker_of_the_page_gets_its_table(folder):
    text = PAGE.read_text()
    assert sorted(name for _, name, _ in MARKED.findall(text)) == sorted(TABLES)
    results = Results(folder)
    page = filled(text, page_tables(results))
    assert filled(page, page_tables(results)) == page
    for line in (
        "| air | 2,318 | one | head | 30 | 30 marginal | 30 | 9 | -0.750 | -0.750 | -0.750 | -1.00 "
        "| +0.00 | 1.0 |",
        "| scm20d | **+60 (+60)** | -0.741 (-0.741) | -0.11 % (-0.11 %) | +20 (+20) | -80 (-80) | "
        "-0.259 (-0.259) | +2.11 % (+2.11 %) |",
        "| none | 100 | 100 | 100 | 100 | 100 | +0.000 | +0.000 | +0.000 | +0.00 | +0.00 | 1.0 | "
        "1/2, 1/2, 2/2, 2/2, 0/2 |",
        "| likelihood | 30 | 30 | 30 | 9 | 30 | -0.750 | -0.750 | -0.750 | -1.00 | +0.00 | 1.0 | "
        "0/1, 0/1, 0/1, 0/1, 0/1 |",  # wq: equal to the head, so never higher
        "3 datasets, seeds 0, 42, 866. Judged rows over fitted rows: 0.25 to 0.30.",
        "| wq | 100 → 30 | 100 → 30 | 100 → 30 | 100 → 30 | 100 → 30 | 100 → 30 |  | 100 → 30 | "
        "100 → 30 | 100 → 30 | 100 → 30 |",
    ):
        assert line in page


def test_a_missing_run_is_named(folder):
    table = pd.read_csv(folder / "air.csv")
    last = (table.method == "prototype") & (table.seed == 866)
    table[~last].to_csv(folder / "air.csv", index=False)
    with pytest.raises(SystemExit, match="air: the lines of base, prototype lack a seed"):
        Results(folder)


def test_the_page_describes_every_method():
    text = PAGE.read_text()
    names = {*METHODS, *rivals(torch.empty(0), torch.empty(0))} - {"head"}
    assert [name for name in names if f"\n| {name} | " not in text] == []


@pytest.mark.skipif(not TABLE.exists(), reason="the files of experiments/head.py are not there")
def test_the_page_shows_the_files():
    text = PAGE.read_text()
    assert filled(text, page_tables(Results(TABLE))) == text
