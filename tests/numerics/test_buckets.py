"""Intervals by a table, against a search."""

import pytest
import torch

from prerank.calibration.curves import level_grid
from prerank.calibration.uniformity import tail_levels
from prerank.numerics.buckets import Buckets

EDGES = [level_grid(n) for n in (2, 3, 100, 5000)] + [tail_levels(n) for n in (2, 300, 65536)]


@pytest.mark.parametrize("edges", EDGES, ids=len)
def test_equal_to_a_search(edges):
    near = [torch.nextafter(edges, edges + sign).clamp(0, 1) for sign in (-1, 1)]
    random = torch.rand(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ranks = torch.arange(102) / 101
    for values in (edges, *near, random, random.square() * 1e-4, random.float(), ranks):
        expected = torch.bucketize(values.double(), edges)
        assert torch.equal(Buckets(edges)(values), expected)
    rows = random.float().reshape(2, 50, 50).mT  # not contiguous
    assert torch.equal(Buckets(edges)(rows), torch.bucketize(rows.double().contiguous(), edges))
