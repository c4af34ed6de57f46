"""Report pages from real results, and a real browser that is cut off from the network."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from playwright.sync_api import sync_playwright
from torch.distributions import MultivariateNormal

import prerank
from prerank.report.html import Illustration, Page, Section, write_page

HOSTILE = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 2">',
    "</style></title><svg onload='window.hit = 3'>",
    "{{ 7 * 7 }} {% raw %} &lt; &amp;",
    "שלום \u202e עולם",
    "🌧️ rain 👩‍🔬",
    "w" * 300,
)
LEGEND = {
    "pce": "distance of the PITs from uniform",
    "floor": "what a perfect predictor scores on average with as many rows",
    "p_holm": "evidence against calibration, corrected for looking at several pre-ranks",
}


def diagnosed(names):
    """A forecast that has the margins too wide and takes correlated targets for independent."""
    dim = len(names)
    generator = torch.Generator().manual_seed(0)
    factor = torch.linalg.cholesky(0.4 * torch.eye(dim) + 0.6)
    y = torch.randn(200, dim, generator=generator) @ factor.T
    forecast = MultivariateNormal(torch.zeros(200, dim), 1.8 * torch.eye(dim))
    observed = pd.DataFrame(y.numpy(), columns=list(names))
    return prerank.diagnose(forecast, observed, n_null=200, generator=0)


def pictures(found, title=""):
    shown = []
    for display in found.displays():
        ax = Figure(figsize=(4, 4), layout="constrained").subplots()
        shown.append(Illustration(ax.figure, display.plot(ax).caption, title))
    return tuple(shown)


def build_page(found):
    overview = Figure(figsize=(17, 4), layout="constrained")
    found.plot(overview)
    return Page(
        title="Forecast of rain, wind and hail",
        headline="This forecast is not jointly calibrated.",
        mood="bad",
        points=("The margins are too wide.", "The targets move together more than predicted."),
        advice=('Train with CalibrationPenalty("marginal+hdr").', "Use a full covariance."),
        sections=(
            Section("All pre-ranks", ("Each row is a question.",), found.table, LEGEND),
            Section("Reliability", ("The diagonal is right.",), illustrations=pictures(found)),
            Section("Overview", illustrations=(Illustration(overview, "All of them."),)),
        ),
        settings={"prerank": prerank.__version__, "torch": torch.__version__, "rows": "200"},
    )


@dataclass(frozen=True)
class Report:
    """A page, its table and the file that holds it."""

    page: Page
    table: pd.DataFrame
    path: Path

    @property
    def url(self):
        return self.path.as_uri()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def report(folder):
    found = diagnosed(["rain", "wind", "hail"])
    page = build_page(found)
    return Report(page, found.table, write_page(page, folder / "report.html"))


@pytest.fixture(scope="session")
def moods(report, folder):
    """The page in each mood."""
    pages = {mood: replace(report.page, mood=mood) for mood in ("good", "bad", "unclear")}
    return {
        mood: Report(page, report.table, write_page(page, folder / f"{mood}.html"))
        for mood, page in pages.items()
    }


@pytest.fixture(scope="session")
def hostile(folder):
    """A page whose every string tries to be something else."""
    found = diagnosed(HOSTILE)
    text = " ".join(HOSTILE)
    page = Page(
        title=text,
        headline=text,
        mood="unclear",
        points=HOSTILE,
        advice=HOSTILE,
        sections=(
            Section(
                text,
                HOSTILE,
                found.table.rename(columns=dict(zip(found.table, HOSTILE, strict=False))),
                dict.fromkeys(HOSTILE, text),
                pictures(diagnosed(HOSTILE[:3]), text)[:1],
            ),
        ),
        settings=dict.fromkeys(HOSTILE, text),
    )
    return Report(page, found.table, write_page(page, folder / "hostile.html"))


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium on the PATH: `make test-browser` installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Log:
    """What a page asked for and said."""

    requests: list = field(default_factory=list)
    messages: list = field(default_factory=list)


@pytest.fixture
def visit(chromium):
    """Open a file without network; afterwards it must have asked for nothing and said nothing."""
    visits = []

    def open_file(url, *, width=1200, height=900, scripts=True, **options):
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            offline=True,
            java_script_enabled=scripts,
            **options,
        )
        tab, log = context.new_page(), Log()
        tab.on("request", lambda request: log.requests.append(request.url))
        tab.on("console", lambda message: log.messages.append(message.text))
        tab.on("pageerror", lambda error: log.messages.append(str(error)))
        tab.on("dialog", lambda dialog: (log.messages.append(dialog.message), dialog.dismiss()))
        visits.append((context, url, log))
        tab.goto(url)
        return tab

    yield open_file
    for context, url, log in visits:
        context.close()
        asked = [request for request in log.requests if not request.startswith("data:")]
        assert asked == [url]
        assert log.messages == []
