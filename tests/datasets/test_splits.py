"""The published splits: their sizes, and their permutation."""

import csv
from pathlib import Path

import pytest
import torch

from prerank.datasets import PUBLISHED_SEEDS, published_split
from prerank.errors import InputError, InputTypeError

SHARED = Path(__file__).resolve().parents[3] / "shared"
SIZES = SHARED / "paper" / "reference_runs" / "splits_and_floor.csv"
PARTS = ("train", "validation", "calibration", "test")


def sizes(split):
    return [len(getattr(split, part)) for part in PARTS]


@pytest.mark.skipif(not SIZES.is_file(), reason=f"{SIZES} is not here")
def test_sizes_of_the_published_runs():
    with SIZES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 10
    for row in rows:
        expected = [int(row[name]) for name in ("train", "val", "calib", "test")]
        assert sizes(published_split(int(row["rows"]), seed=0)) == expected, row["dataset"]


# Computed by hand from the rule, so that the rule is checked without the file.
@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (10, [4, 1, 3, 2]),
        (100, [40, 10, 30, 20]),
        (101, [40, 10, 30, 21]),
        (1000, [400, 100, 300, 200]),
        (6826, [2730, 682, 2047, 1367]),
        (10_000, [4317, 1317, 2048, 2318]),
        (100_000, [49_317, 19_317, 2048, 29_318]),
    ],
)
def test_sizes(n, expected):
    assert sum(expected) == n
    assert sizes(published_split(n, seed=3)) == expected


@pytest.mark.parametrize("n", [10, 57, 6827, 9999, 50_000])
@pytest.mark.parametrize("seed", PUBLISHED_SEEDS)
def test_every_row_is_in_one_part(n, seed):
    split = published_split(n, seed)
    rows = torch.cat([getattr(split, part) for part in PARTS])
    assert rows.dtype == torch.int64
    assert torch.equal(rows.sort().values, torch.arange(n))


@pytest.mark.parametrize("n", [57, 9999])
def test_the_permutation_is_that_of_random_split(n):
    for seed in PUBLISHED_SEEDS:
        split = published_split(n, seed)
        generator = torch.Generator().manual_seed(seed)
        expected = torch.utils.data.random_split(range(n), sizes(split), generator=generator)
        for part, subset in zip(PARTS, expected, strict=True):
            assert getattr(split, part).tolist() == list(subset.indices)


def test_seeds_differ_and_repeat():
    one, again, other = (published_split(1000, seed) for seed in (0, 0, 42))
    assert torch.equal(one.train, again.train)
    assert not torch.equal(one.train, other.train)
    assert PUBLISHED_SEEDS == (0, 42, 866, 12, 4)


def test_the_global_state_is_not_used():
    state = torch.get_rng_state()
    published_split(100, 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("n", "error"), [(0, InputError), (-5, InputError), (9, InputError), (10.0, InputTypeError)]
)
def test_too_few_rows(n, error):
    with pytest.raises(error, match="n "):
        published_split(n, 0)
