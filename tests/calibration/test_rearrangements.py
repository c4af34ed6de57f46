"""Rearranged rows: what belongs together stays together."""

import pytest
import torch

from prerank.calibration.dependent_rows import row_units
from prerank.calibration.rearrangements import rearrangements


def orders(n, count, rows):
    return list(rearrangements(n, count, rows, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    "rows",
    [
        None,
        row_units([k // 3 for k in range(60)], None, 60),
        row_units(None, [k % 12 for k in range(60)], 60),
    ],
    ids=["independent", "time", "cluster"],
)
def test_each_row_is_taken_once_where_units_have_the_same_size(rows):
    for order in orders(60, 19, rows):
        assert torch.equal(order.sort().values, torch.arange(60))


def test_times_are_shifted_by_each_number_once():
    found = orders(60, 99, row_units([k // 3 for k in range(60)], None, 60))
    shifts = sorted(int(order[0]) // 3 for order in found)
    assert shifts == list(range(1, 20))
    for order in found:
        assert torch.equal(order, (torch.arange(60) + order[0]) % 60)


def test_rows_of_one_time_need_not_stand_together():
    times = torch.arange(60) % 20
    [order] = orders(60, 1, row_units(times.numpy(), None, 60))
    assert len((times[order] - times).remainder(20).unique()) == 1


def test_clusters_stay_whole_and_their_rows_in_order():
    clusters = torch.arange(60) // 5
    for order in orders(60, 5, row_units(None, clusters.numpy(), 60)):
        taken = order.reshape(12, 5)
        assert bool((clusters[taken] == clusters[taken[:, :1]]).all())
        assert bool((taken.diff().remainder(5) == 1).all())


def test_a_smaller_cluster_is_repeated_in_the_place_of_a_larger_one():
    sizes = torch.arange(1, 11)
    clusters = torch.arange(10).repeat_interleave(sizes)
    for order in orders(55, 5, row_units(None, clusters.numpy(), 55)):
        for unit, size in enumerate(sizes.tolist()):
            taken = clusters[order[clusters == unit]].unique()
            assert len(taken) == 1
            used = order[clusters == unit].unique()
            assert len(used) == min(size, int(sizes[taken[0]]))


def test_every_row_of_a_larger_cluster_takes_the_place_of_a_single_one():
    """200 shifts of clusters of 1 and 9: any of nine rows alike, each 100 / 9 times."""
    clusters = torch.cat([torch.arange(10), 10 + torch.arange(10).repeat_interleave(9)])
    used = torch.zeros(9)
    for order in orders(100, 200, row_units(None, clusters.numpy(), 100)):
        large = order[:10][order[:10] >= 10]
        used += ((large - 10) % 9).bincount(minlength=9)
    expected = used.sum() / 9
    # Chi-square with 8 degrees of freedom: 26.1 at the level of 1 per mille.
    assert float(((used - expected).square() / expected).sum()) < 26.1
