"""Every fault that a verdict can name is named at the effect size of its scenario."""

import pandas as pd
import pytest

from evidence_parts.verdicts import CELLS, PHRASES, SCENARIOS, outcomes

SEEDS = range(50_000, 50_020)  # of its own: neither the published nor the tuned ones


def test_every_word_has_a_scenario():
    words = {word for *_, expected in SCENARIOS.values() for word in expected.split()}
    assert words == set(PHRASES) - {"shape"}


@pytest.mark.slow
@pytest.mark.parametrize("cell", [cell for cell, _ in CELLS], ids=lambda cell: cell["scenario"])
def test_words_of_a_fault(cell):
    counts = pd.DataFrame(outcomes(SEEDS, **cell)).sum()
    # Right words in 90 % and a wrong one in 5 %: 13 right of 20, and 5 wrong, have a probability of
    # .0024 and .0026.
    assert counts["rate"] >= 14
    assert counts["wrong"] <= 4
