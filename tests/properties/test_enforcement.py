"""The penalty does its work: less calibration error, at little cost, on fresh rows."""

import runpy
from pathlib import Path

import pytest

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "truths.py"
# One of draws and one with a closed form; what the others teach is in test_penalty.py.
PRERANKS = ["hdr", "marginal"]


@pytest.mark.slow
@pytest.mark.skipif(
    not EXPERIMENT.exists(), reason=f"{EXPERIMENT} is not in this copy of the source"
)
@pytest.mark.parametrize("prerank", PRERANKS)
def test_the_penalty_calibrates_a_model_that_cannot_be_right(prerank):
    experiment = runpy.run_path(str(EXPERIMENT))["experiment"]
    found = experiment(prerank, rows=2_000, fresh=10_000)  # a quarter of the experiment's
    print(found)
    assert found.before >= 0.02
    assert found.cut >= 0.70
    assert found.energy <= 0.10
