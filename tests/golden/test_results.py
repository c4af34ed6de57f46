"""Diagnoses, scores, PITs and penalties have the values of the golden files."""

import pytest

from golden import diagnoses
from golden.compare import check_same, read


@pytest.mark.parametrize("part", ["diagnoses", "scores", "pits", "penalties"])
def test_results(part):
    check_same(getattr(diagnoses, f"make_{part}")(), read("results", f"{part}.json"))
