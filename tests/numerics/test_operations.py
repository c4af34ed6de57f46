"""Short operations, and blocks of rows."""

import inspect

import pytest
import torch

from prerank.numerics import QuickFunction, join, row_blocks


def test_the_signature_is_kept_where_it_belongs():
    class Double(QuickFunction):
        @staticmethod
        def forward(x):
            return 2 * x

    class Inherits(QuickFunction):
        pass

    assert inspect.signature(Double.forward) is Double.forward.__signature__
    assert not hasattr(torch.autograd.Function.forward, "__signature__")


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("size", [0, 1, 2**12, 2**30])
def test_blocks_cover_every_row_once(rows, size):
    blocks = row_blocks(rows, size, torch.zeros(1))
    assert [i for block in blocks for i in range(block.start, block.stop)] == list(range(rows))


def test_a_single_block_is_not_copied():
    part = torch.ones(3)
    assert join([part]) is part
    assert join([part, part]).shape == (6,)
