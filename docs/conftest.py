"""Every page runs in a folder of its own."""

from pathlib import Path

import pytest

# Settings of the build, and what it makes: copies of the examples, which it runs itself.
collect_ignore = ["conf.py", "gallery"]


@pytest.fixture(autouse=True)
def _empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
