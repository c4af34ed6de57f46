"""A scan over boxes: its sums against a loop, its null against permutations by hand."""

import math

import numpy as np
import torch

from prerank.calibration.axes import input_columns
from prerank.calibration.scan import Grid, Scan


def standardised(values):
    values = values - values.mean(0)
    return (values / values.square().mean(0).sqrt()).float()


def example(n=200):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(n, 2, generator=g).double()
    x[:, 1] = (5 * x[:, 1]).floor()
    return input_columns(x, None, n), standardised(torch.randn(n, 3, generator=g))


def by_hand(grid, scores, least, penalty):
    """The largest statistic, box by box."""
    n, best = len(scores), (-math.inf,)
    sides = [[tuple(side) for side in axis.ranges[1:]] for axis in grid.axes]
    boxes = [(a,) for a in sides[0]]
    if len(sides) == 2:
        boxes = [(a, b) for a in sides[0] for b in sides[1]]
    for box in boxes:
        member = np.ones(n, dtype=bool)
        for axis, (start, stop) in zip(grid.axes, box, strict=True):
            member &= (axis.codes >= start) & (axis.codes < stop)
        m = int(member.sum())
        if least <= m <= n / 2:
            z = scores[torch.from_numpy(member)].sum(0) / math.sqrt(m * (n - m) / (n - 1))
            value = float(z.square().max()) / 2 - math.log(n / m) - penalty
            best = max(best, (value, tuple((int(a), int(b)) for a, b in box)))
    return best


def test_the_largest_statistic_is_that_of_a_loop_over_all_boxes():
    columns, scores = example()
    for axes in ([columns[0].cut(7)], [column.cut(5) for column in columns]):
        grid = Grid(axes, n=200, least=10, penalty=0.5)
        peak = Scan([grid]).peak(scores)
        value, ranges = by_hand(grid, scores, 10, 0.5)
        assert abs(peak.statistic - value) < 1e-4  # float32
        assert peak.ranges == ranges


def test_the_null_is_that_of_permuted_rows():
    columns, scores = example()
    scan = Scan([Grid([column.cut(8)], n=200, least=10, penalty=0.0) for column in columns])
    g = torch.Generator().manual_seed(3)
    orders = [torch.randperm(200, generator=g) for _ in range(30)]
    null = scan.null(scores[order] for order in orders)
    again = torch.tensor([scan.peak(scores[order]).statistic for order in orders])
    torch.testing.assert_close(null, again, atol=1e-4, rtol=1e-4)


def test_weights_are_the_shares_of_the_boxes_around_a_row():
    columns, scores = example()
    grid = Grid([columns[1].cut(5)], n=200, least=1, penalty=0.0)
    scan = Scan([grid])
    [cells] = scan._cells(scores)
    logs = grid.statistics(cells).double().exp().sum(1)
    expected = torch.zeros(200, dtype=torch.float64)
    for place in range(len(grid.kept)):
        [(start, stop)] = grid.box(place)
        codes = torch.from_numpy(grid.axes[0].codes)
        expected += logs[place] * ((codes >= start) & (codes < stop))
    torch.testing.assert_close(scan.weights(scores).double(), expected / logs.sum())
