"""The counts of the reliability run are those of the committed tables, and nothing was lost."""

import pandas as pd

from chaos_page import PAGE, TABLES, by_variant, page_tables
from marked_pages import filled


def test_the_page_has_the_counts_of_the_tables():
    page = PAGE.read_text()
    assert filled(page, page_tables(TABLES)) == page
    counts = pd.read_csv(TABLES / "chaos.csv")
    total = counts[counts.scenario == "all"].iloc[0]
    assert (counts[counts.engine.isin(["processes", "local", "ray"])].faults == 0).all()
    assert total.training == counts[counts.scenario != "all"].training.sum()


def test_strikes_in_training_by_study_and_variant():
    strikes = pd.DataFrame(
        {
            "study": ["exact", "exact", "search", None],
            "moment": ["training", "writing", "training", "training"],
            "unit": ["cubes--hdr", "cubes--hdr", "cubes--none", None],
        }
    )
    table = by_variant(strikes).set_index("study")
    assert table.to_dict("index") == {
        "exact": {"hdr": 1, "none": 0},
        "search": {"hdr": 0, "none": 1},
    }
