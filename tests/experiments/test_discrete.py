"""Treatments of discrete targets: the page shows the means of the table, and they hold."""

from pathlib import Path

import pandas as pd
import pytest

import discrete

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TABLE = pd.read_csv(RESULTS / "tables" / "discrete_treatments.csv")
SUMMARY = discrete.summary(TABLE)


def test_the_page_has_the_means_of_the_table():
    page = (RESULTS / "penalty.md").read_text()
    section = page[page.index("## Discrete targets") :]
    rows = [
        line for line in section.splitlines() if line.startswith("| ") and "dataset" not in line
    ]
    assert rows == discrete.lines(SUMMARY)


@pytest.mark.parametrize("name", discrete.DATASETS)
def test_rounding_calibrates_the_margins_at_no_cost(name):
    mine = TABLE[TABLE.dataset == name]
    assert mine.seed.nunique() >= 3
    found = SUMMARY[(SUMMARY.dataset == name) & (SUMMARY.treatment == "rounding")]
    assert found["head"].tolist() == [False, True]
    assert (found.marginal <= 0.012).all()
    assert (found.energy <= 0).all()
