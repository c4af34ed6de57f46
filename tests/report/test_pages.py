"""The report page as a file: whole, self-contained, the same each time, and only text."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch.distributions import MultivariateNormal

from prerank import diagnose
from prerank.errors import InputError
from prerank.files.visible_text import visible
from prerank.report.error_plot import Badge
from prerank.report.html import Illustration, Page, Section, render_page, write_page

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></script></title>",
    "{{ 7 * 7 }}{% include 'page.css' %}",
    "&lt;b&gt; & http://example.org/",
    "שלום \u202e",
    "🌧️",
    "w" * 300,
]
VOID = {"meta", "link", "img", "wbr"}


class Reader(HTMLParser):
    """Elements in order, texts by element, and whether all tags are closed."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.open = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID and tag not in {"path", "circle"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in {"path", "circle"}:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag):
        return "".join(data for name, data in self.texts if name == tag)


def drawing(layout="constrained", size=(4, 4)):
    figure = Figure(figsize=size, layout=layout)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], label="a line with a long name")
    ax.imshow(np.eye(3), extent=(0, 1, 0, 1))
    ax.set_aspect("equal")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25))
    return figure


@pytest.fixture(scope="module")
def page():
    torch.manual_seed(0)
    forecast = MultivariateNormal(torch.zeros(100, 2), torch.eye(2))
    found = diagnose(forecast, 0.5 * torch.randn(100, 2), n_null=50, generator=0)
    shown = []
    for display in found.displays()[:2]:
        display.plot(Figure(figsize=(4, 4), layout="constrained").subplots())
        shown.append(Illustration(display.figure_, display.caption))
    wide = Figure(figsize=(16, 4), layout="constrained")
    found.plot(wide)
    return Page(
        "A forecast",
        "It is too wide.",
        "bad",
        ("Both margins are.",),
        ("Narrow it.",),
        (
            Section("Numbers", ("One.", "Two."), found.table, {"pce": "error"}),
            Section("Curves", illustrations=(*shown, Illustration(wide, "All.", "Overview"))),
            Section("More numbers", table=found.table),
        ),
        {"seed": "0"},
    )


@pytest.fixture(scope="module")
def html(page):
    return render_page(page)


@pytest.fixture(scope="module")
def read(html):
    return Reader(html)


def test_page_is_well_formed(page, read):
    assert read.open == []
    assert read.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"main", "table-1", "table-2", "figure-1", "figure-3"} <= set(ids)
    assert [link["href"] for link in read.all("a")] == ["#main"]
    assert len(read.all("main")) == len(read.all("h1")) == 1
    assert len(read.all("caption")) == len(read.all("table")) == 2
    assert read.text("title") == page.title
    regions = [a["aria-label"] for _, a in read.elements if a.get("role") == "region"]
    assert regions == ["Table 1: Numbers", "Table 2: More numbers"]
    assert all(a["tabindex"] == "0" for _, a in read.elements if a.get("role") == "region")


def test_page_asks_for_nothing_outside_itself(read):
    for _, attributes in read.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster", "style"):
            address = attributes.get(name)
            assert address is None or address.startswith(("data:", "#"))
        assert not any(name.startswith("on") for name in attributes)
    style = "".join(data for tag, data in read.texts if tag == "style")
    assert not re.search(r"url\(|@import|http", style)
    assert "http" not in read.text("script")
    for image in read.all("img"):
        kind, _, content = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        svg = base64.b64decode(content).decode()
        assert not re.search(r"""(href|src)=["'](?!#|data:)""", svg)


def test_policy_names_the_style_and_the_script(read):
    (policy,) = [m["content"] for m in read.all("meta") if "http-equiv" in m]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag in ("style", "script"):
        digest = hashlib.sha256(read.text(tag).encode()).digest()
        assert rules[f"{tag}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert "unsafe" not in policy


def page_of(text):
    """A page that says the same everywhere."""
    table = pd.DataFrame({text: [text, "b"]})
    picture = Illustration(Figure(figsize=(1, 1)), text, text)
    section = Section(text, (text,), table, {text: text}, (picture,))
    return Page(text, text, "good", (text,), (text,), (section,), {text: text})


def test_text_stays_text():
    expected = [tag for tag, _ in Reader(render_page(page_of("t"))).elements]
    for text in HOSTILE:
        read = Reader(render_page(page_of(text)))
        assert [tag for tag, _ in read.elements] == expected, text
        for tag in ("title", "h1", "h2", "bdi", "p", "dt", "dd", "figcaption"):
            assert visible(text) in read.text(tag)
        assert [a["data-value"] for a in read.all("th") if "data-value" in a] == [
            visible(text),
            "b",
        ]
        assert [image["alt"] for image in read.all("img")] == [visible(f"{text}: {text}")]


def test_halves_of_characters_can_be_written(tmp_path):
    page = Page("a \ud800 b", "h", "good", (), (), (), {})
    path = write_page(page, tmp_path / "page.html")
    assert "<title>a ? b</title>" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("layout", ["constrained", "tight", "none"])
def test_same_page_same_bytes(page, layout):
    page = replace(
        page, sections=(Section("s", illustrations=(Illustration(drawing(layout), "c"),)),)
    )
    first = render_page(page)
    assert render_page(page) == first
    again = Section("s", illustrations=(Illustration(drawing(layout), "c"),))
    assert render_page(replace(page, sections=(again,))) == first


def test_pages_do_not_depend_on_settings_or_time(page, html):
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "x", "svg.image_inline": False}):
        assert render_page(page) == html
        changed = dict(mpl.rcParams)
        section = Section("s", illustrations=(Illustration(drawing(), "c"),))
        one = render_page(replace(page, sections=(section,)))
        assert dict(mpl.rcParams) == changed
    assert render_page(replace(page, sections=(section,))) == one


def test_figures_are_left_alone():
    plt.switch_backend("Agg")
    figure, ax = plt.subplots(layout="constrained")
    ax.set_title("a title")
    before, known = ax.get_position().bounds, plt.get_fignums()
    canvas, dpi = figure.canvas, figure.dpi
    section = Section("s", illustrations=(Illustration(figure, "c"),))
    render_page(Page("t", "h", "good", (), (), (section,), {}))
    assert ax.get_position().bounds == before
    assert plt.get_fignums() == known
    assert figure.canvas is canvas
    assert figure.dpi == dpi
    assert figure.get_layout_engine() is not None
    plt.close(figure)


def test_wide_pictures_have_a_row_of_their_own(read):
    assert [figure.get("class") for figure in read.all("figure")] == [None, None, "wide"]
    assert "#figure-3 { --inches: 16.00; }" in read.text("style")


def test_order_is_verdict_sections_settings(page, html):
    parts = [page.headline, *page.points, "What to try", *page.advice]
    parts += [section.title for section in page.sections]
    parts += ["Settings and versions"]
    main = html[html.index("<main") :]
    places = [main.index(f">{part}<") for part in parts]
    assert places == sorted(places)


def test_empty_parts_leave_no_trace():
    bare = render_page(Page("t", "h", "unclear", (), (), (), {}))
    read = Reader(bare)
    assert not {"ul", "section", "table", "figure", "dl", "h3"} & {tag for tag, _ in read.elements}
    empty = Section("s", table=pd.DataFrame({"a": []}))
    assert "This table has no rows." in render_page(Page("t", "h", "good", (), (), (empty,), {}))


def test_sections_fold_and_the_settings_with_them():
    sections = (Section("a", ("One.",), folded=True, gist="2 of 3"), Section("b", ("Two.",)))
    some = Reader(render_page(Page("t", "h", "good", (), (), sections, {"seed": "0"})))
    assert some.open == []
    assert some.all("details") == [{}, {}]  # closed
    assert some.text("h2") == "habSettings and versions"
    assert "2 of 3" in some.text("span")
    none = Reader(render_page(Page("t", "h", "good", (), (), sections[1:], {"seed": "0"})))
    assert none.all("details") == []


def test_badges_replace_the_word_of_the_mood():
    badges = (Badge("bad", "Margins: wrong"), Badge("good", "Dependence: nothing found"))
    read = Reader(render_page(Page("t", "h", "bad", (), (), (), {}, badges)))
    classes = [p["class"] for p in read.all("p") if "mood" in p.get("class", "")]
    assert classes == ["mood bad", "mood good"]
    assert "Margins: wrong" in read.text("p")
    assert "Problem" not in read.text("p")


def test_moods_are_checked():
    with pytest.raises(InputError, match="mood must be one of good, bad, unclear, got 'fine'"):
        render_page(Page("t", "h", "fine", (), (), (), {}))


def test_writing_is_atomic(page, tmp_path):
    page = replace(page, sections=(Section("s", illustrations=(Illustration(drawing(), "c"),)),))
    path = tmp_path / "new" / "report.html"
    assert write_page(page, path) == path
    assert path.read_bytes() == render_page(page).encode("utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    before = path.read_bytes()
    broken = replace(page, sections=(Section("s", illustrations=(Illustration(None, "c"),)),))
    with pytest.raises(AttributeError):
        write_page(broken, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_templates_are_part_of_the_package():
    files = {file.name for file in (resources.files("prerank.report") / "templates").iterdir()}
    assert {"page.html", "page.css", "page.js"} <= files


def test_control_characters_and_marks_of_direction_are_shown():
    page = Page("a\x1b[2Jb", "x\u202ey", "bad", (), (), (), {})
    html = render_page(page)
    assert not set(html) & {"\x1b", "\u202e"}
    assert "a\\u001b[2Jb" in html
    assert "x\\u202ey" in html
