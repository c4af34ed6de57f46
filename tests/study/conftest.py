"""Small datasets and finished studies that many tests look at, and none changes."""

import pytest
from matplotlib.figure import Figure

from prerank.study import run_study
from study.tiny import tiny, write_table


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A data folder with three datasets: `triple` has three targets, `pair` two, `quad` four."""
    folder = tmp_path_factory.mktemp("data")
    write_table(folder, "triple", 3)
    write_table(folder, "pair", 2)
    write_table(folder, "quad", 4)
    return folder


@pytest.fixture(scope="session")
def exact(tmp_path_factory):
    """Folder of a finished study under the exact protocol."""
    folder = tmp_path_factory.mktemp("exact")
    assert run_study(tiny(), folder).left == ()
    return folder


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """Folder of a finished study under the published protocol."""
    folder = tmp_path_factory.mktemp("published")
    plan = tiny(protocol="published", datasets=("ar1",), strengths="auto")
    assert run_study(plan, folder).left == ()
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made, and no image is drawn from them: the figures that were saved."""
    monkeypatch.setattr("prerank.report.html._svg", lambda figure: b"<svg/>")
    saved = []

    def save(figure, file, **options):
        saved.append(figure)
        file.write_bytes(b"")

    monkeypatch.setattr(Figure, "savefig", save)
    return saved
