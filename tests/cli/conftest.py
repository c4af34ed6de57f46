"""A table, and a model that was fitted to it once."""

import numpy as np
import pandas as pd
import pytest

from cli.commands import QUICK, call
from pictures import leave_blank
from prerank.report.html import Page


@pytest.fixture(scope="session")
def rivers():
    """Two targets that hang together, from numbers, text and truth values."""
    random = np.random.default_rng(0)
    n = 100
    depth, common = random.normal(size=(2, n))
    bed, wet = random.choice(["mud", "sand", "sänd, coarse"], n), random.random(n) < 0.5
    flow = depth + common
    load = depth + common + 0.5 * random.normal(size=n) + (bed == "mud")
    table = {"depth": depth, "bed": bed, "wet": wet, "flow": flow, "load": load}
    return pd.DataFrame(table).round(4)


@pytest.fixture(scope="session")
def fitted(rivers, tmp_path_factory):
    """What `prerank fit` printed, and where: `rivers.csv` and `model` are there."""
    folder = tmp_path_factory.mktemp("fitted")
    rivers.to_csv(folder / "rivers.csv", index=False)
    words = ("--targets", "flow,load", "--strength", "5", "--out", "model", *QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        leave_blank(patch)
        return call("fit", "rivers.csv", *words), folder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Commands run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(place):
    """Write a table as a CSV file here, and name it."""

    def written(table, name="table.csv", **options):
        table.to_csv(place / name, index=False, **options)
        return name

    return written


@pytest.fixture
def unpainted(monkeypatch):
    """A page whose pictures are blank, with their titles and captions."""
    leave_blank(monkeypatch)


@pytest.fixture
def undrawn(monkeypatch):
    """A page without pictures, which take seconds."""

    def bare(found, **options):
        verdict = found.verdict()
        return Page(options["title"], verdict.headline, verdict.status, (), (), (), {})

    monkeypatch.setattr("prerank.estimators.model_page.diagnosis_page", bare)
