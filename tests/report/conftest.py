"""Drawing without a screen."""

from collections.abc import Iterator

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _headless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw without a screen, and fail a test whose code shows figures or changes settings."""
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("show was called"))
    with mpl.rc_context():
        plt.switch_backend("Agg")
        before = dict(mpl.rcParams)
        yield
        plt.close("all")
        assert dict(mpl.rcParams) == before
