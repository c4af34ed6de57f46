"""Exact counts and sorted lines against the plain definitions."""

import pytest
import torch

from prerank.numerics.counts import below_and_tied, dominated
from prerank.numerics.sorting import line_order, line_places, sort_lines_

# Values that tie often, seldom, never and always, and extremes.
KINDS = {
    "continuous": lambda shape, g: torch.randn(shape, generator=g, dtype=torch.float64),
    "three values": lambda shape, g: torch.randint(3, shape, generator=g).double(),
    "fifty values": lambda shape, g: torch.randint(50, shape, generator=g).double(),
    "equal": lambda shape, g: torch.ones(shape, dtype=torch.float64),
    "signed zeros": lambda shape, g: 0.0 * torch.randn(shape, generator=g, dtype=torch.float64),
    "infinite": lambda shape, g: torch.randn(shape, generator=g, dtype=torch.float64) / 0.0,
    "huge and tiny": lambda shape, g: 10.0 ** torch.randint(-37, 38, shape, generator=g).double(),
}
# Around the words of 64 bits, the bytes of 255 counts, and several blocks of rows.
POOLS = [(1, 2, 1), (3, 5, 2), (2, 63, 3), (2, 64, 2), (2, 65, 4), (2, 3, 101, 6), (1, 257, 14)]
POOLS += [(700, 40, 2)]
SAMPLES = [(2, 1, 1), (255, 3, 2), (256, 3, 2), (511, 2, 3, 1), (3, 70_000, 1)]
DTYPES = [torch.float32, torch.float64]


def values_of(kind, shape, dtype):
    return KINDS[kind](shape, torch.Generator().manual_seed(0)).to(dtype)


def layouts(values):
    """The same values with the first, the last and a middle axis last in memory."""
    yield values
    yield values.movedim(0, -1).contiguous().movedim(-1, 0)
    yield values.movedim(0, 1).contiguous().movedim(1, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_dominated_members(kind, dtype):
    for shape in POOLS:
        points = values_of(kind, shape, dtype)
        below = (points.unsqueeze(-3) <= points.unsqueeze(-2)).all(-1).sum(-1) - 1
        for same in layouts(points):
            found = dominated(same)
            assert found.dtype == dtype
            assert torch.equal(found, below.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_samples_below_and_tied(kind, dtype):
    for shape in SAMPLES:
        pool = values_of(kind, (shape[0] + 1, *shape[1:]), dtype)
        for same in layouts(pool):
            value, samples = same[0], same[1:]
            below, tied = below_and_tied(value, samples)
            assert torch.equal(below.long(), (samples < value).sum(0))
            assert torch.equal(tied.long(), (samples == value).sum(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_places_and_orders_of_lines(kind, dtype):
    for shape in [(1, 1), (3, 2), (2, 5, 101), (3000, 100), (2, 300)]:
        lines = values_of(kind, shape, dtype)
        ordered = lines.sort(-1).values
        assert torch.equal(lines.gather(-1, line_order(lines)), ordered)
        assert torch.equal(sort_lines_(lines.clone()), ordered)
        first, last = line_places(lines)
        assert torch.equal(first.long(), torch.searchsorted(ordered, lines))
        assert torch.equal(last.long(), torch.searchsorted(ordered, lines, right=True) - 1)


def test_gradients_are_not_followed():
    points = torch.randn(2, 5, 3, requires_grad=True)
    counts = [dominated(points), *line_places(points), *below_and_tied(points[0], points)]
    assert not any(count.requires_grad for count in counts)
