"""The page of small and odd problems, and what it claims."""

import pandas as pd

from marked_pages import filled
from odd_problems import ENERGY_LIMIT, NLL_LIMIT, PAGE, PROBLEMS, differences, page_tables

TABLE = pd.read_csv(PAGE.parent / "tables" / "odd_problems" / "problems.csv")


def test_the_page_shows_the_table():
    text = PAGE.read_text()
    assert filled(text, page_tables(TABLE)) == text


def test_every_problem_has_the_default_of_ten_seeds():
    counts = TABLE[TABLE.method != "network"].groupby(["problem", "method"]).seed.nunique()
    assert set(TABLE.problem) == set(PROBLEMS)
    assert (counts == 10).all()


def test_the_default_harms_no_problem():
    means = differences(TABLE, "default").groupby("problem").mean()
    assert (means.nll <= NLL_LIMIT).all()
    assert (means.energy <= ENERGY_LIMIT).all()
