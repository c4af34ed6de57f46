"""Every kind of page that prerank writes, as it writes it, in Chromium."""

import unicodedata

import numpy as np
import pandas as pd
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from pypdf import PdfReader
from torch.distributions import MultivariateNormal

from prerank import Ensemble, MixtureRegressor, diagnose
from prerank.datasets import AR1Regression
from prerank.diagnosis import diagnose_by
from prerank.estimators.model_page import fit_page
from prerank.report.html import Page, Section, write_page
from prerank.study import Plan, Store, run_study
from prerank.study.page_tables import page_table
from prerank.study.report_files import write_report

pytestmark = pytest.mark.browser

N = 500
NAMES = ["rain", "wind $x^$", "_hail"]
CORRELATED = 0.4 * torch.eye(3) + 0.6


def observed():
    generator = torch.Generator().manual_seed(5)
    y = torch.randn(N, 3, generator=generator) @ torch.linalg.cholesky(CORRELATED).mT
    return pd.DataFrame(y.numpy(), columns=NAMES)


def normal(covariance, mean=0.0):
    return MultivariateNormal(torch.full((N, 3), mean), covariance)


WRONG = {
    "too narrow": (normal(0.35 * CORRELATED), "predictions too narrow in every target"),
    "biased": (normal(CORRELATED, 0.6), "observed values lower than predicted in every target"),
    "wrong dependence": (normal(torch.eye(3)), "they move together more than predicted"),
}


@pytest.mark.parametrize("samples", [False, True], ids=["law", "samples"])
@pytest.mark.parametrize("fault", WRONG)
def test_the_verdict_names_the_fault(visit, tmp_path, fault, samples):
    dist, words = WRONG[fault]
    if samples:
        dist = Ensemble(dist.sample((60,)))
    path = diagnose(dist, observed(), generator=0).to_html(tmp_path / "report.html")
    tab = visit(path.as_uri())
    headline = tab.locator("main .headline").inner_text()
    assert words in headline
    assert "miscalibrated" in headline
    assert tab.get_by_text("What to try").is_visible()


def write_diagnosis(folder):
    return diagnose(normal(CORRELATED), observed(), generator=0).to_html(folder / "report.html")


def write_groups(folder):
    groups = np.arange(N) % 3
    found = diagnose_by(normal(torch.eye(3)), observed(), groups, generator=0)
    return found.to_html(folder / "groups.html")


def write_fit(folder):
    x, y = AR1Regression(dim=3).sample(400, generator=0)
    inputs = pd.DataFrame(x.numpy(), columns=[f"x{i}" for i in range(x.shape[1])])
    targets = pd.DataFrame(y.numpy(), columns=NAMES)
    model = MixtureRegressor(
        n_components=1,
        method="network",
        hidden=(16,),
        strength="auto",
        max_epochs=15,
        lr=3e-3,
        random_state=0,
    )
    model.fit(inputs[:300], targets[:300])
    page, _ = fit_page(model, inputs[300:], targets[300:], title="Model of rivers.csv")
    return write_page(page, folder / "fit.html")


def write_study(folder):
    plan = Plan.preset("quick").changed(
        {
            "datasets": '["ar1"]',
            "variants": '["none", "marginal", "hdr"]',
            "strengths": "[30.0]",
            "training.max_epochs": "3",
            "n_null": "100",
        }
    )
    run_study(plan, folder / "study")
    return write_report(Store(folder / "study"))


WRITERS = [write_diagnosis, write_groups, write_fit, write_study]


@pytest.fixture(scope="module", params=WRITERS, ids=lambda writer: writer.__name__)
def path(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("page"))


def unfold(tab):
    """Open what is folded, as a reader does."""
    for part in tab.locator("summary").all():
        part.click()
    assert tab.locator("details:not([open])").count() == 0


def is_study(path):
    return "study" in path.parts


def test_pages_are_sound_on_a_desktop(visit, path):
    tab = visit(path.as_uri())
    unfold(tab)
    drawn = tab.locator("main img").evaluate_all("all => all.map((i) => i.naturalWidth > 50)")
    assert len(drawn) >= 4
    assert all(drawn)
    heads = tab.locator("thead th button").all()
    assert heads
    heads[-1].click()  # of the last table
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


def test_pages_are_sound_on_a_phone_in_the_dark(visit, path):
    tab = visit(path.as_uri(), width=360, color_scheme="dark", has_touch=True)
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()
    unfold(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize(("width", "height"), [(390, 844), (768, 1024), (1440, 900)])
def test_figures_are_whole_at_every_width(visit, path, width, height):
    tab = visit(path.as_uri(), width=width, height=height)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    if not is_study(path):
        # The figure stands below the headline, and all that it is made of lies inside.
        assert tab.locator(".headline + .overview").count() == 1
        parts = tab.locator(".overview, .overview svg, .overview img, .overview td:visible").all()
        assert len(parts) > 20
        for part in parts:
            assert_inside(part.bounding_box(), width)
    unfold(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    for image in tab.locator("main img").all():
        assert_inside(image.bounding_box(), width)
    for sheet in tab.locator(".sheet").all():
        assert sheet.evaluate("e => e.scrollWidth <= e.clientWidth")


def assert_inside(box, width):
    assert box["x"] >= 0
    assert box["width"] > 0
    assert box["x"] + box["width"] <= width + 0.5  # places are rounded


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_p_values_are_seen_on_a_phone(visit, path, scripts):
    if is_study(path):
        pytest.skip("a study's figures have no p-values")
    tab = visit(path.as_uri(), width=390, height=844, scripts=scripts, has_touch=True)
    proofs = tab.locator(".overview tbody .p")
    assert proofs.count() == 7
    for proof in proofs.all():
        assert proof.inner_text().startswith(("p = ", "p < "))
        assert_inside(proof.bounding_box(), 390)
    tab.locator("summary").first.click()
    table = tab.locator("details[open] table").first
    heads = [text.replace("\n", "") for text in table.locator("thead th").all_inner_texts()]
    for name in ("p_value", "p_holm"):
        cells = table.locator(f"tbody tr > :nth-child({heads.index(name) + 1})").all()
        assert cells
        for cell in cells:
            assert_inside(cell.bounding_box(), 390)


def test_what_matters_is_on_two_screens(visit, path):
    tab = visit(path.as_uri(), width=1440, height=900)
    verdict = tab.locator(".verdict").bounding_box()
    assert verdict["y"] + verdict["height"] < 1800
    tables = tab.locator(".scroll table, dl").all()
    assert tables
    assert not any(table.is_visible() for table in tables)  # folded
    if is_study(path):
        box = tab.locator("main img").first.bounding_box()
        assert box["y"] + box["height"] < 900
    else:
        box = tab.locator(".overview").bounding_box()
        assert box["y"] < 450
        assert box["y"] + box["height"] < 1000
        assert tab.locator(".reasons").is_visible()


def test_no_table_of_a_study_is_clipped_at_1280_pixels(visit, path):
    if not is_study(path):
        pytest.skip("of the study alone")
    tab = visit(path.as_uri(), width=1280)
    unfold(tab)
    areas = tab.locator(".scroll").all()
    assert len(areas) >= 6
    for area in areas:
        assert area.evaluate("e => e.scrollWidth - e.clientWidth") == 0


def test_the_widest_table_of_a_study_fits_a_desktop(visit, tmp_path):
    """All columns that there are, with numbers and names as long as they come."""
    cells = pd.DataFrame({"dataset": ["households", "blog_data"], "prerank": "dependency"})
    for name in ("mean", "se", "excess", "excess_se", "gain", "gain_se", "paper", "paper_se"):
        cells[name] = [0.034567, 0.45678] if not name.endswith("se") else [0.00012, 0.0123]
    cells["strength"], cells["runs"], cells["paper_strength"] = 100.0, [3, 5], 10.0
    cells["energy"], cells["nll"], cells["energy_ratio"] = 1.2345, -10.234, 1.0123
    section = Section("Wide", table=page_table(cells, 1000))
    page = Page("t", "h", "good", (), (), (section,), {})
    tab = visit(write_page(page, tmp_path / "wide.html").as_uri(), width=1280)
    assert tab.locator("thead th").count() == 12
    area = tab.locator(".scroll")
    assert area.evaluate("e => e.scrollWidth - e.clientWidth") == 0


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_what_is_folded_is_printed(visit, path, tmp_path, scripts):
    tab = visit(path.as_uri(), scripts=scripts)
    tab.pdf(path=tmp_path / "page.pdf", format="A4")
    sheets = [sheet.extract_text() for sheet in PdfReader(tmp_path / "page.pdf").pages]
    text = unicodedata.normalize("NFKC", " ".join(sheets))
    assert "Table 1" in text
    assert "torch" in text  # of the settings


def test_pages_print(visit, path, tmp_path):
    tab = visit(path.as_uri())
    assert tab.pdf(path=tmp_path / "page.pdf").startswith(b"%PDF")
