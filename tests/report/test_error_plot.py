"""The first figure: places of errors, texts for those who cannot see them."""

import math

import pytest

from prerank.report.error_plot import Badge, ErrorMark, ErrorPlot, ErrorRow, plot_view
from prerank.report.html import Page, render_page

FAILS = Badge("bad", "fails")


def view_of(mark, before=None, **options):
    row = ErrorRow("hdr", "Where?", FAILS, "p < 0.001", mark, before)
    return plot_view(ErrorPlot((row,), "Errors.", **options))


def dots(view):
    return [mark["dot"] for row in view["rows"] for mark in row["marks"]]


def test_zones_are_those_of_the_words_and_fill_the_width():
    view = view_of(ErrorMark(0.2, 0.1, 0.4))
    assert [zone["name"] for zone in view["zones"]] == ["slight", "moderate", "strong"]
    stops = [zone["start"] + zone["width"] for zone in view["zones"]]
    assert stops[:-1] == pytest.approx([zone["start"] for zone in view["zones"]][1:])
    assert stops[-1] == pytest.approx(100)
    ticks = {tick["text"]: tick["at"] for tick in view["ticks"]}
    starts = [zone["start"] for zone in view["zones"]]
    assert [ticks["0"], ticks["0.01"], ticks["0.03"]] == starts


def test_places_keep_the_order_of_errors_and_stay_inside():
    errors = [-0.02, 0.0, 0.004, 0.01, 0.02, 0.03, 0.1, 0.3, 0.5]
    mark = ErrorMark(0.5, 0.5, 0.5, tuple(errors))
    places = view_of(mark)["rows"][0]["marks"][0]["parts"]
    assert places[0] == places[1]  # below 0 is chance
    assert places[1:] == sorted(set(places))
    assert min(places) > 0
    assert max(places) < 100


def test_before_stands_above_after_and_the_dot_within_its_limits():
    view = view_of(ErrorMark(0.28, 0.29, 0.31), ErrorMark(0.4, 0.35, 0.45), change="the head")
    before, now = view["rows"][0]["marks"]
    assert (before["kind"], now["kind"]) == ("before", "now")
    assert before["y"] < now["y"]
    assert before["dot"] > now["dot"] == now["limits"][0]
    assert now["words"] == "now: excess 0.280, true error between 0.290 and 0.310"


def test_without_limits_only_the_dot_is_drawn():
    (mark,) = view_of(ErrorMark(0.2))["rows"][0]["marks"]
    assert mark["limits"] is None
    assert mark["words"] == "excess 0.200"


def test_an_error_that_is_missing_leaves_its_row_empty():
    view = view_of(ErrorMark(math.nan))
    assert dots(view) == []
    assert view["rows"][0]["excess"] == ""


def test_an_excess_that_is_rounded_to_0_has_no_sign():
    texts = [view_of(ErrorMark(x))["rows"][0]["excess"] for x in (-0.0004, -0.0006, 0.2)]
    assert texts == ["0.000", "-0.001", "0.200"]


def test_all_numbers_are_text_of_the_page():
    row = ErrorRow("hdr", "Where?", FAILS, "p < 0.001", ErrorMark(0.2, 0.1, 0.3, (0.25,)))
    plot = ErrorPlot((row,), "Errors of all.", "Fewer than before.")
    html = render_page(Page("t", "h", "bad", (), (), (), {}, (), plot))
    for words in (
        "hdr",
        "Where?",
        "p &lt; 0.001",
        "fails",
        "0.200",
        "Errors of all.",
        "components",
    ):
        assert words in html
    assert "true error between 0.100 and 0.300" in html
    assert "Fewer than before." in html
    assert " style=" not in html  # which the policy would refuse


def test_names_are_only_text():
    hostile = "<script>alert(1)</script>\"><img src=x onerror='alert(1)'>"
    row = ErrorRow(hostile, hostile, Badge("bad", hostile), hostile, ErrorMark(0.2))
    page = Page("t", "h", "bad", (), (), (), {}, (), ErrorPlot((row,), hostile, hostile, hostile))
    html = render_page(page)
    assert html.count("<script>") == 1
    assert "<img" not in html
