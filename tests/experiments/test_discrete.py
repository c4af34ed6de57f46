"""Treatments of discrete targets: the page shows the means of the table, and they hold."""

from pathlib import Path

import pandas as pd
import pytest

import discrete

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = {  # the treatment was chosen on the seeds of the first
    "penalty.md": ("## Discrete targets\n", "discrete_treatments.csv", 3),
    "head.md": ("## Discrete targets, rounded\n", "discrete_published.csv", 5),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_means_of_its_table(name):
    title, table, _ = PAGES[name]
    page = (RESULTS / name).read_text()
    section = page[page.index(title) + len(title) :].partition("\n## ")[0]
    rows = [
        line for line in section.splitlines() if line.startswith("| ") and "dataset" not in line
    ]
    assert rows == discrete.lines(discrete.summary(pd.read_csv(RESULTS / "tables" / table)))


@pytest.mark.parametrize("name", PAGES)
def test_rounding_calibrates_the_margins_at_no_cost(name):
    _, table, seeds = PAGES[name]
    lines = pd.read_csv(RESULTS / "tables" / table)
    assert set(lines.dataset) == set(discrete.DATASETS)
    assert (lines.groupby("dataset").seed.nunique() >= seeds).all()
    found = discrete.summary(lines)
    found = found[found.treatment == "rounding"]
    assert found.groupby("dataset")["head"].agg(list).tolist() == [[False, True]] * 5
    assert (found.marginal <= 0.012).all()
    assert (found.energy <= 0).all()
