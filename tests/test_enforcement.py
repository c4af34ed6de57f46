"""The penalty does its work: less calibration error, at little cost, on fresh rows."""

import runpy
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "truths.py"


@pytest.mark.slow
@pytest.mark.parametrize("prerank", ["marginal", "location", "dependency", "pca", "hdr"])
def test_the_penalty_calibrates_a_model_that_cannot_be_right(prerank):
    if not BENCHMARK.exists():
        pytest.skip(f"{BENCHMARK} is not part of this copy of the source")
    # Half the rows of the benchmark, which also covers the two dearest pre-ranks.
    found = runpy.run_path(str(BENCHMARK))["experiment"](prerank, rows=4_000)
    print(found)
    assert found.before >= 0.02
    assert found.cut >= 0.70
    assert found.energy <= 0.10
