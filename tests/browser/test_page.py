"""The report page in Chromium: what a reader sees, and what the page must not do."""

import itertools
import math
import re
import unicodedata

import numpy as np
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from pypdf import PdfReader

from prerank.files.visible_text import visible
from prerank.report.html import Page, Section, write_page

from .conftest import HOSTILE

pytestmark = pytest.mark.browser

WIDTHS = {"desktop": 1200, "phone": 360}
CONTRAST = """(selector) => {
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b]
        .map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    return [...document.querySelectorAll(selector)].map((element) => {
        let ground = element;
        while (channels(getComputedStyle(ground).backgroundColor)[3] === 0) {
            ground = ground.parentElement;
        }
        const back = light(channels(getComputedStyle(ground).backgroundColor));
        const ink = light(channels(getComputedStyle(element).color));
        return (Math.max(back, ink) + 0.05) / (Math.min(back, ink) + 0.05);
    });
}"""


def column(tab, name):
    """Raw values of a column as they stand; None where there is none."""
    return tab.evaluate(
        """(name) => {
            const table = document.querySelector("table");
            const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
            const values = [...table.tBodies[0].rows].map(
                (row) => row.cells[heads.indexOf(name)].dataset.value);
            return values.map((value) => value === undefined ? null : value);
        }""",
        name,
    )


def button(tab, name):
    return tab.get_by_role("columnheader", name=name, exact=True).get_by_role("button")


def sorting(tab):
    """`aria-sort` of the columns that have one."""
    heads = tab.locator("thead th[aria-sort]").all()
    return {head.text_content(): head.get_attribute("aria-sort") for head in heads}


def test_verdict_is_the_first_thing(visit, moods):
    words = {}
    for mood, report in moods.items():
        tab = visit(report.url)
        first = tab.locator("main > :first-child")
        lines = first.inner_text().splitlines()
        words[mood], headline = [line for line in lines if line][:2]
        assert headline == report.page.headline
        assert first.locator("svg").is_visible()
        top = tab.locator(".headline").bounding_box()
        assert top["y"] + top["height"] < 400
        for text in (*report.page.points, "What to try", *report.page.advice):
            assert first.get_by_text(text).is_visible()
    assert words == {"good": "Good", "bad": "Problem", "unclear": "Unclear"}


def test_page_has_all_its_parts_in_order(visit, report):
    tab = visit(report.url)
    assert tab.title() == report.page.title
    titles = [section.title for section in report.page.sections]
    headings = [h.text_content() for h in tab.locator("h2").all()]
    assert headings == [report.page.headline, *titles, "Settings and versions"]
    levels = [int(h.evaluate("e => e.tagName[1]")) for h in tab.locator("h1, h2, h3").all()]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert tab.locator("tbody tr").count() == len(report.table)
    for name, text in report.page.settings.items():
        assert tab.locator(".settings dl div", has_text=name).first.inner_text().endswith(text)


def test_pictures_are_drawn(visit, report):
    tab = visit(report.url)
    images = tab.locator("img")
    shown = [one for section in report.page.sections for one in section.illustrations]
    assert images.count() == len(shown)
    for image, illustration in zip(images.all(), shown, strict=True):
        assert image.evaluate("image => image.complete && image.naturalWidth > 0")
        assert illustration.caption in image.get_attribute("alt")
        box = image.bounding_box()
        width, height = illustration.figure.get_size_inches()
        assert box["width"] / box["height"] == pytest.approx(width / height, rel=0.02)


def test_a_mouse_sorts(visit, report):
    tab = visit(report.url)
    before = column(tab, "pce")
    assert [float(value) for value in before] == list(report.table.pce)
    button(tab, "pce").click()
    assert [float(value) for value in column(tab, "pce")] == sorted(report.table.pce)
    assert sorting(tab) == {"pce": "ascending"}
    button(tab, "pce").click()
    assert [float(v) for v in column(tab, "pce")] == sorted(report.table.pce, reverse=True)
    assert sorting(tab) == {"pce": "descending"}
    button(tab, "pce").click()
    assert column(tab, "pce") == before
    assert sorting(tab) == {}


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_keyboard_sorts(visit, report, key):
    tab = visit(report.url)
    focused = "document.activeElement.closest('th')?.textContent"
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate(focused) == "component":
            break
    tab.keyboard.press(key)
    assert sorting(tab) == {"component": "ascending"}
    ascending = column(tab, "component")
    assert ascending == sorted(ascending)
    assert ascending != list(report.table.component)
    assert tab.evaluate(focused) == "component"  # sorting keeps the focus
    tab.keyboard.press(key)
    assert sorting(tab) == {"component": "descending"}
    assert column(tab, "component") == sorted(ascending, reverse=True)


@pytest.mark.parametrize("presses", [1, 2])
def test_missing_values_come_last(visit, report, presses):
    tab = visit(report.url)
    for _ in range(presses):
        button(tab, "p_holm").click()
    values = column(tab, "p_holm")
    present = [float(value) for value in values if value is not None]
    missing = int(report.table.p_holm.isna().sum())
    assert missing > 0
    assert values[len(present) :] == [None] * missing
    assert present == sorted(report.table.p_holm.dropna(), reverse=presses == 2)
    blank = tab.locator("tbody tr").last.locator("td").nth(5)
    assert blank.inner_text() == ""


@pytest.mark.parametrize("presses", [1, 2])
def test_sorting_is_stable(visit, report, presses):
    tab = visit(report.url)
    rows = list(zip(column(tab, "prerank"), column(tab, "component"), strict=True))
    for _ in range(presses):
        button(tab, "floor").click()  # the same in all rows
    assert list(zip(column(tab, "prerank"), column(tab, "component"), strict=True)) == rows
    button(tab, "prerank").click()
    assert sorting(tab) == {"prerank": "ascending"}
    after = list(zip(column(tab, "prerank"), column(tab, "component"), strict=True))
    assert after == sorted(rows, key=lambda row: row[0])


def test_numbers_are_not_sorted_as_text(visit, tmp_path):
    values = [10.0, 9.0, -1.0, 1e-5, np.inf, np.nan, -np.inf, 2e10]
    table = pd.DataFrame({"name": [f"y{i}" for i in (10, 9, 2, 1, 0, 3, 4, 5)], "value": values})
    page = Page("t", "h", "good", (), (), (Section("s", table=table),), {})
    tab = visit(write_page(page, tmp_path / "numbers.html").as_uri())
    button(tab, "value").click()
    *present, missing = column(tab, "value")
    assert missing is None
    assert [float(value) for value in present] == sorted(v for v in values if not math.isnan(v))
    button(tab, "name").click()
    assert column(tab, "name") == [f"y{i}" for i in (0, 1, 2, 3, 4, 5, 9, 10)]


def test_tables_are_readable_without_scripts(visit, report):
    tab = visit(report.url, scripts=False)
    assert tab.locator("button").count() == 0
    assert tab.locator("thead").inner_text().split() == list(report.table.columns)
    assert tab.locator("tbody tr").last.is_visible()


def test_skip_link_leads_to_the_verdict(visit, report):
    tab = visit(report.url)
    tab.keyboard.press("Tab")
    link = tab.locator(":focus")
    assert link.inner_text() == "Skip to the verdict"
    assert link.bounding_box()["y"] >= 0
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_hostile_strings_are_only_text(visit, hostile, width):
    tab = visit(hostile.url, width=width)
    assert tab.evaluate("window.hit") is None
    assert tab.locator("script").count() == 1
    assert tab.locator("style").count() == 1
    assert tab.locator("img:not([src^='data:image/svg+xml'])").count() == 0
    assert tab.title() == visible(hostile.page.title)
    shown = [visible(text) for text in HOSTILE]
    assert tab.locator(".points li").all_text_contents() == shown
    assert tab.locator(".settings dt").all_text_contents() == shown
    heads = [head.text_content() for head in tab.locator("thead th").all()]
    assert heads[: len(HOSTILE)] == shown
    cells = tab.locator("tbody td:nth-child(2)").all_text_contents()
    assert set(shown) <= set(cells)
    for mark in tab.locator("thead button").all():
        mark.click()
    assert tab.evaluate("window.hit") is None


def test_policy_stops_what_the_page_does_not_hold(chromium, report, tmp_path):
    """Even a page that was tampered with runs no foreign script or style."""
    html = report.path.read_text(encoding="utf-8")
    added = "<script>window.hit = 1</script><b style='color: red' onclick='hit()'>b</b></body>"
    path = tmp_path / "tampered.html"
    path.write_text(html.replace("</body>", added), encoding="utf-8")
    tab = chromium.new_page()
    tab.goto(path.as_uri())
    assert tab.evaluate("window.hit") is None
    assert tab.locator("body > b").evaluate("b => getComputedStyle(b).color") != "rgb(255, 0, 0)"
    assert button(tab, "pce").is_visible()
    tab.close()


@pytest.mark.parametrize("kind", ["report", "hostile"])
def test_a_phone_scrolls_only_downwards(visit, request, kind):
    tab = visit(request.getfixturevalue(kind).url, width=360, has_touch=True)
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    region = tab.get_by_role("region", name="Table 1")
    assert region.evaluate("e => e.scrollWidth > e.clientWidth")
    region.focus()
    tab.keyboard.press("ArrowRight")
    for _ in range(100):  # scrolling is smooth; the policy forbids wait_for_function
        if region.evaluate("e => e.scrollLeft") > 0:
            break
        tab.wait_for_timeout(20)
    assert region.evaluate("e => e.scrollLeft") > 0
    size = tab.locator("main p").first.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert size >= 14


def test_dark_is_dark_and_legible(visit, moods):
    grounds = {}
    for scheme, mood in itertools.product(["light", "dark"], moods):
        tab = visit(moods[mood].url, color_scheme=scheme)
        grounds[scheme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        texts = "h1, h2, h3, p, li, caption span, th, td, dt, dd, figcaption, figcaption b"
        assert min(tab.evaluate(CONTRAST, texts)) >= 4.5
    light, dark = (sum(map(int, re.findall(r"\d+", ground))) for ground in grounds.values())
    assert light > 3 * 240
    assert dark < 3 * 40


# Print


def printed(tab, folder):
    """The text of the page on paper, with a form feed between sheets."""
    tab.pdf(path=folder / "page.pdf", format="A4")
    sheets = [sheet.extract_text() for sheet in PdfReader(folder / "page.pdf").pages]
    return unicodedata.normalize("NFKC", "\f".join(sheets))  # letters for ligatures


def test_pdf_has_every_row_and_heads_on_every_sheet(visit, tmp_path):
    table = pd.DataFrame({"prerank": [f"row-{i:03}-end" for i in range(150)], "p_value": 0.5})
    page = Page("t", "A verdict", "good", (), (), (Section("Long", table=table),), {"a": "b"})
    tab = visit(write_page(page, tmp_path / "long.html").as_uri(), color_scheme="dark")
    text = printed(tab, tmp_path)
    assert re.findall(r"row-\d{3}-end", text) == list(table.prerank)
    assert "A verdict" in text
    assert "Skip to" not in text
    assert "to sort" not in text
    with_rows = [sheet for sheet in text.split("\f") if "row-" in sheet]
    assert len(with_rows) > 2
    assert all("p_value" in sheet for sheet in with_rows)


def test_pdf_of_a_report_has_all_cells(visit, report, tmp_path):
    tab = visit(report.url)
    cells = tab.locator("thead th, tbody th, tbody td").all_inner_texts()
    text = printed(tab, tmp_path)
    for cell in cells:
        assert cell.strip() in text
    assert report.page.settings["torch"] in text


@pytest.mark.parametrize("kind", ["report", "hostile"])
def test_paper_is_light_and_cuts_nothing(visit, request, kind):
    paper = 680  # pixels between the margins of A4
    tab = visit(request.getfixturevalue(kind).url, width=paper, height=1000)
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert min(tab.evaluate(CONTRAST, "h2, p, td, dd, figcaption")) >= 4.5
    assert tab.evaluate("document.documentElement.scrollWidth") == paper
    for image in tab.locator("img").all():
        box = image.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= paper
        assert box["height"] <= 1000
        figure = image.locator("xpath=ancestor::figure")
        assert figure.evaluate("e => getComputedStyle(e).breakInside") == "avoid"
    assert not tab.locator(".skip").is_visible()
    drawn = tab.locator("thead button").first.evaluate("e => getComputedStyle(e).display")
    assert drawn == "contents"  # the name without a button


# Accessibility


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("kind", ["good", "bad", "unclear", "hostile"])
def test_axe_finds_nothing(visit, moods, hostile, kind, width, scheme):
    tab = visit({**moods, "hostile": hostile}[kind].url, width=width, color_scheme=scheme)
    button(tab, HOSTILE[2] if kind == "hostile" else "pce").click()
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()
