"""The page of prediction regions, and what it claims."""

import pandas as pd

from marked_pages import filled
from regions import LEVELS, NAMES, PAGE, TABLE, adjusted, page_tables

MEASURED = pd.read_csv(TABLE)


def test_the_page_shows_the_table():
    text = PAGE.read_text()
    assert filled(text, page_tables(MEASURED)) == text


def test_every_dataset_has_all_levels():
    assert set(MEASURED.dataset) == set(NAMES)
    assert (MEASURED.groupby(["dataset", "seed"])["level"].nunique() == len(LEVELS)).all()


def test_coverage_is_within_its_distribution():
    assert (adjusted(MEASURED) >= 0.05).all()
