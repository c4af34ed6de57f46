"""Every page runs in a folder of its own."""

from pathlib import Path

import pytest

collect_ignore = ["gallery"]  # copies of the examples, which the build of the pages makes and runs


@pytest.fixture(autouse=True)
def _empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
