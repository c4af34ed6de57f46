"""Every kind of page that prerank writes, as it writes it, in Chromium."""

import numpy as np
import pandas as pd
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from torch.distributions import MultivariateNormal

from prerank import Ensemble, MixtureRegressor, diagnose
from prerank.datasets import AR1Regression
from prerank.diagnosis import diagnose_by
from prerank.estimators.model_page import fit_page
from prerank.report.html import write_page
from prerank.study import Plan, Store, run_study
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


def test_pages_are_sound_on_a_desktop(visit, path):
    tab = visit(path.as_uri())
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
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    # Pictures of three targets fit: only corners, and the figures of a study, are wider by nature.
    wide = tab.locator(".sheet").evaluate_all(
        """all => all.filter((sheet) => sheet.scrollWidth > sheet.clientWidth)
            .map((sheet) => sheet.closest("section").querySelector("h2").textContent)"""
    )
    assert "study" in path.parts or set(wide) <= {"Single predictions"}, wide
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


def test_pages_print(visit, path, tmp_path):
    tab = visit(path.as_uri())
    assert tab.pdf(path=tmp_path / "page.pdf").startswith(b"%PDF")
