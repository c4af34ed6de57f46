"""Stand-ins that are counted in groups of rows, and the sequential p-values from them."""

import math

import pytest
import torch

from prerank.calibration.nulls import key_counts, sequential_p_value
from prerank.calibration.stand_ins import STAND_INS, StandIns
from prerank.calibration.thinned_rows import ThinnedRows
from prerank.calibration.uniformity import joint_p_value, tail_buckets, tail_levels
from prerank.defaults import MANY_ROWS

BATCHES = [[700], [1] * 700, [256, 1, 255, 188], [3, 600, 97]]


def pits(n, components=2, seed=0, sets=1 + STAND_INS):
    return torch.rand(sets, n, components, generator=torch.Generator().manual_seed(seed))


def counted(z, sizes):
    found = StandIns()
    for part in z.split(sizes, 1):
        found.add(part)
    return found


def test_sequential_p_values_are_valid_at_every_stop():
    experiments, most, enough = 10_000, 99, 10
    values = torch.rand(experiments, 1 + most, generator=torch.Generator().manual_seed(0))
    found = torch.tensor(
        [sequential_p_value(float(v[0]), v[1:].split(7), most=most, enough=enough) for v in values],
        dtype=torch.float64,
    )
    # Stopped at replicate l or later: the observed number is among the h largest of l.
    stops = [enough / stop for stop in range(enough, most + 1)]
    stops += [(1 + larger) / (most + 1) for larger in range(enough)]
    for level in stops:
        error = math.sqrt(level * (1 - level) / experiments)
        share = float((found <= level + 1e-12).double().mean())
        assert abs(share - level) <= 4 * error + 1e-12, level  # exact: no ties
    assert set(found.tolist()) <= set(stops)


def test_ties_make_sequential_p_values_larger():
    same = torch.zeros(50)
    assert sequential_p_value(0.0, [same], most=50, enough=60) == 1
    assert sequential_p_value(0.0, [same], most=50, enough=10) == 1


def test_no_more_replicates_than_are_asked_for():
    assert sequential_p_value(0.5, [torch.tensor([0.0, 0.0, 1.0])], most=2) == 1 / 3


@pytest.mark.parametrize("sizes", BATCHES)
def test_counts_add_up_to_those_of_all_rows(sizes):
    z = pits(700)
    found = counted(z, sizes)
    n_cells = len(tail_levels(MANY_ROWS)) + 1
    keys = tail_buckets(MANY_ROWS)(z) + n_cells * torch.arange(2)
    tables = found._tables
    assert tables.shape == (256, 1 + STAND_INS, 2, n_cells)
    torch.testing.assert_close(tables.sum(0), key_counts(keys, n_cells))
    assert (tables.sum((1, 2, 3)) > 0).sum() == 175  # 4 rows in a group
    assert found.rows == 700
    # How rows come makes no difference at all.
    assert torch.equal(tables, counted(z, [700])._tables)
    assert found.p_value(most=300, generator=0) == counted(z, [700]).p_value(most=300, generator=0)


def test_p_values_agree_with_those_of_all_rows_and_members():
    # The same statistics up to their units; each p-value is one of some hundred replicates.
    for seed in range(3):
        z = pits(300, seed=seed, sets=40)
        z[0] = z[0] ** (1 + 0.06 * seed)
        other = joint_p_value(z[0], z[1:], n_null=500, generator=0)
        mine = counted(z[: 1 + STAND_INS], [300]).p_value(most=2000, generator=0)
        assert abs(mine - other) < 0.25
    z[0] = z[0].square()
    assert counted(z[: 1 + STAND_INS], [300]).p_value(most=999, generator=0) == 0.001


@pytest.mark.parametrize("n", [1, 2, 300])
def test_stand_ins_that_are_all_alike_say_nothing(n):
    assert counted(pits(n, sets=1).expand(1 + STAND_INS, n, 2), [n]).p_value(most=200) == 1
    assert 0 < counted(pits(n), [n]).p_value(most=200, generator=0) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("common", [0.0, 0.95])
def test_the_size_of_the_test(common):
    experiments, n = 600, 60
    source, found = torch.Generator().manual_seed(3), []
    for _ in range(experiments):
        noise = torch.randn(1 + STAND_INS, n, 4, generator=source)
        shared = torch.randn(1 + STAND_INS, n, 1, generator=source)
        z = torch.special.ndtr(common * shared + math.sqrt(1 - common**2) * noise)
        found.append(counted(z, [n]).p_value(most=200, generator=source))
    for level in (0.02, 0.05, 0.2, 0.5):
        error = math.sqrt(level * (1 - level) / experiments)
        assert sum(p <= level for p in found) / experiments <= level + 3 * error


@pytest.mark.parametrize("sizes", [[100_000], [40_000, 1, 59_999], [1] * 9 + [99_991]])
def test_thinned_rows_are_evenly_spread(sizes):
    thinned = ThinnedRows()
    for part in torch.arange(100_000.0).reshape(1, -1, 1).split(sizes, 1):
        thinned.add(part)
    assert torch.equal(thinned.values.flatten(), thinned.numbers.float())
    assert torch.equal(thinned.numbers // 4, torch.arange(25_000))  # one of every four
    # At random places: each has a quarter, whose standard error is .0027 * 25,000.
    assert (thinned.numbers % 4).bincount().sub(6250).abs().max() < 4 * 69


def test_rows_that_are_known_to_come_are_left_room():
    thinned, rows = ThinnedRows(), torch.arange(100_000.0).reshape(1, -1, 1)
    for start in range(0, 100_000, 30_000):
        part = rows[:, start : start + 30_000]
        thinned.add(part, 2 * part, coming=100_000 - start - part.shape[1])
    assert torch.equal(thinned.values[1].flatten(), 2 * thinned.numbers.float())
    assert torch.equal(thinned.numbers // 4, torch.arange(25_000))
    thinned.add(rows)  # another number of values in each row
    assert thinned.values.shape == (2, 25_000, 1)


def test_many_components_have_fewer_groups():
    found = counted(pits(300, components=500), [300])
    assert len(found._tables) < 256
    assert found._tables.numel() <= 2**24
    assert int(found._tables[:, 0, 0].sum()) == 300


@pytest.mark.parametrize("sizes", [[350, 350], [1, 600, 99], [100] * 7])
@pytest.mark.parametrize("expected", [0, 700, 5000])
def test_counts_of_parts_add_up(sizes, expected):
    z, whole = pits(700), StandIns(expected)
    for part in z.split(sizes, 1):
        other = StandIns(expected)
        other.add(part)
        whole.merge(other)
    whole.merge(StandIns())
    whole.add(pits(40, seed=1))
    assert whole.rows == 740
    both = torch.cat([z, pits(40, seed=1)], 1)
    assert torch.equal(whole._tables.sum(0), counted(both, [740])._tables.sum(0))
    # No group is much larger than others: replicates have as many choices.
    groups = whole._tables.sum((1, 2, 3)) / (6 * 2)
    assert int((groups > 0).sum()) >= (2 if expected == 5000 else 64)
    assert groups.max() <= 4 * 740 / 64 or expected == 5000
    assert whole.p_value(most=200, generator=0) > 0.01


@pytest.mark.slow
def test_the_size_of_the_test_where_parts_are_added_up():
    """600 p-values in four parts: tolerances of three standard errors."""
    experiments, n = 600, 80
    source, found = torch.Generator().manual_seed(4), []
    for _ in range(experiments):
        whole = StandIns()
        for part in torch.rand(1 + STAND_INS, n, 4, generator=source).split([7, 40, 3, 30], 1):
            other = StandIns()
            other.add(part)
            whole.merge(other)
        found.append(whole.p_value(most=200, generator=source))
    for level in (0.02, 0.05, 0.2, 0.5):
        error = math.sqrt(level * (1 - level) / experiments)
        assert sum(p <= level for p in found) / experiments <= level + 3 * error


@pytest.mark.parametrize("sizes", [[50_000, 50_000], [90_000, 3, 9_997]])
def test_thinned_rows_of_parts_are_evenly_spread(sizes):
    whole = ThinnedRows()
    start = 0
    for part in torch.arange(100_000.0).reshape(1, -1, 1).split(sizes, 1):
        other = ThinnedRows(expected=100_000)
        other.add(part)
        whole.merge(other)
        start += part.shape[1]
    numbers = whole.numbers
    assert torch.equal(whole.values.flatten(), numbers.float())
    assert (numbers.diff() > 0).all()
    # Strata of four rows, but for those that a part begins or ends with.
    assert abs(len(numbers) - 25_000) <= 3
    assert numbers.diff().max() <= 7 + 3
