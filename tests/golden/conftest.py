"""Golden answers are those of the plain forms, which round alike wherever they run."""

import pytest


@pytest.fixture(autouse=True)
def _plain_forms(monkeypatch):
    monkeypatch.setenv("PRERANK_COMPILED", "0")
