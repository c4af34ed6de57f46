"""The examples in the documentation of adapters, where their library is installed."""

import doctest
import importlib

import pytest
import torch
from torch.distributions import Distribution

from adapters.judging import load

NEEDING = {
    "ngboost": ["ngboost"],
    "sbi": ["sbi"],
    "skpro": ["skpro"],
    "trajectories": ["gluonts", "darts"],
}


@pytest.mark.filterwarnings("default")  # of the libraries, which are not ours to mend
@pytest.mark.parametrize("name", NEEDING)
def test_examples(name):
    for needed in NEEDING[name]:
        load(needed)
    checks = Distribution._validate_args
    module = importlib.import_module(f"prerank.adapters.{name}")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    torch.manual_seed(0)
    try:
        outcome = doctest.testmod(module, optionflags=flags)
    finally:
        Distribution.set_default_validate_args(checks)  # sbi switches them off when imported
    assert outcome.attempted > 0
    assert outcome.failed == 0
