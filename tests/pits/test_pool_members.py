"""PITs of random members of a pool, against counts of all."""

import math

import pytest
import torch

from prerank.pits.pool_members import member_pits


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def limits(values):
    """Between which the PIT of each member lies."""
    below = (values.unsqueeze(1) < values.unsqueeze(0)).sum(0)
    up_to = (values.unsqueeze(1) <= values.unsqueeze(0)).sum(0)
    return below / len(values), up_to / len(values)


@pytest.mark.parametrize("size", [2, 101, 300, 600])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_places_are_those_of_members(size, levels):
    values = torch.randint(levels, (size, 7, 2), generator=source(1)).float()
    z, ties = member_pits(values, 20, source())
    low, high = limits(values)
    assert ((z[0] >= low[0] - 1e-6) & (z[0] <= high[0] + 1e-6)).all()
    inside = (z[1:, None] >= low - 1e-6) & (z[1:, None] <= high + 1e-6)  # (M, S + 1, N, J)
    # One member explains both components of a row.
    assert inside.all(-1).any(1).all()
    torch.testing.assert_close(ties, (values[1:] == values[0]).float().mean((0, 1)))


def test_memory_order_and_blocks_do_not_matter():
    values = torch.randn(50, 30_000, 2, generator=source(2))  # several chunks
    moved = values.movedim(0, -1).contiguous().movedim(-1, 0)
    for a, b in zip(member_pits(values, 3, source()), member_pits(moved, 3, source()), strict=True):
        assert torch.equal(a, b)


def test_members_are_exchangeable_with_the_first():
    # Sorted members: the first one is as any other of them, and choices are independent.
    rows = 4000
    values = torch.randn(21, rows, 1, generator=source(3))
    z, _ = member_pits(torch.cat([values[:1], values[1:].sort(0).values]), 4, source())
    for one in z.squeeze(-1):
        # Uniform: mean 1/2 with a standard error of 1 / sqrt(12 n).
        assert abs(float(one.mean()) - 0.5) < 4 / math.sqrt(12 * rows)
    # Places of independent choices are independent.
    correlation = torch.corrcoef(z.squeeze(-1)) - torch.eye(5)
    assert correlation.abs().max() < 5 / math.sqrt(rows)


def test_a_stack_shares_its_noise():
    values = torch.randn(30, 1, 8, 2, generator=source(4))
    z, ties = member_pits(values.expand(-1, 3, -1, -1), 5, source())
    assert z.shape == (6, 3, 8, 2)
    assert ties.shape == (3, 2)
    assert torch.equal(z[:, 0], z[:, 2])
    assert torch.equal(z[:, 0], member_pits(values[:, 0], 5, source())[0])
