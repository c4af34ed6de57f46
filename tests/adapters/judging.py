"""What the tests of adapters share: libraries that may be missing, and judging by a diagnosis."""

import os
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from prerank import Ensemble, calibrate, diagnose
from prerank.extras import library

REQUIRED = os.environ.get("PRERANK_REQUIRED", "").split()

# Where a prediction is right, the smallest corrected p-value of all checks is below this for one
# seed in a thousand.
CLEARED = 0.001
# 2,000 replicates of the null and seven checks leave no corrected p-value below 7 / 2001 = 0.0035.
BLAMED = 0.005


def load(name):
    """A library, or a skipped module; an error in an environment that was made for it."""
    package = name.partition(".")[0]
    if find_spec(package) is None and package not in REQUIRED:
        pytest.skip(f"{package} is not installed: make test-adapters", allow_module_level=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say when imported is not ours to mend
        return library(name, "a test")


def evidence(dist, y: object, **options):
    """Corrected p-value of each pre-rank."""
    table = diagnose(dist, y, generator=0, **options).table
    return table.query("component == 'all'").set_index("prerank")["p_holm"]


def judge(dist, y: object, *, blamed: str = "", cleared: str = "", **options) -> None:
    """Check that the diagnosis blames these pre-ranks and clears those; all, if none is blamed."""
    found = evidence(dist, y, **options)
    for name in blamed.split():
        assert found[name] < BLAMED, f"{name} is not blamed: {found.to_dict()}"
    for name in cleared.split() if blamed else found.index:
        assert found[name] > CLEARED, f"{name} is blamed: {found.to_dict()}"


def repair(samples, y, *, rows: str, blamed: str, **dims) -> None:
    """Check that a head, fitted to the first half of named rows, repairs the second half."""
    half = y.sizes[rows] // 2
    early, late = ([a.isel({rows: at}) for a in (samples, y)] for at in _halves(half))
    judge(*late, blamed=blamed, **dims)
    options = {name: value for name, value in dims.items() if name in ("target", "time")}
    judge(calibrate(*early, **options)(late[0]), late[1], **dims)


def repair_rows(dist: Ensemble, y, *, blamed: str) -> None:
    """The same for samples and a table."""
    early, late = ((Ensemble(dist.samples[:, at]), y[at]) for at in _halves(len(y) // 2))
    judge(*late, blamed=blamed)
    judge(calibrate(*early)(late[0]), late[1])


def _halves(middle: int):
    return slice(None, middle), slice(middle, None)


def correlated(rows: int, *, correlation: float = 0.8, seed: int = 0) -> Tensor:
    """Standard normal pairs `(rows, 2)`."""
    g = torch.Generator().manual_seed(seed)
    one, two = torch.randn(2, rows, generator=g, dtype=torch.float64)
    return torch.stack([one, correlation * one + (1 - correlation**2) ** 0.5 * two], -1)
