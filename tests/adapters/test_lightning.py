"""The example with a LightningModule, run as it stands."""

import importlib.util
import sys
from pathlib import Path

import pytest

from adapters.judging import load
from prerank import pce_floor

lightning = load("lightning")
EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning_penalty.py"

# Of lightning, which is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("lightning_penalty", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lightning_penalty"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["lightning_penalty"]


def test_the_penalty_calibrates(example):
    free, held = example.fit(0.0), example.fit(10.0)
    # 0.138 and 0.025 with these seeds. A normal cannot follow log-normal errors, so likelihood
    # alone leaves ten times the error that chance makes.
    assert free > 10 * pce_floor(n=1000)
    assert held < free / 2
