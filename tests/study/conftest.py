"""Small datasets and finished studies that many tests look at, and none changes."""

import pytest

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
