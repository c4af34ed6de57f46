"""Forecasts of every row by networks that have not seen it."""

import numpy as np
import pytest
import torch

from prerank import MixtureRegressor
from prerank.datasets import AR1Regression
from prerank.distributions import affine
from prerank.errors import InputError, ShapeError
from prerank.models import MixtureNetwork
from prerank.numerics.folds import copied_rows, draw_folds
from prerank.training import Partition, Settings, TrainingData, forecast_unseen, train

SETTINGS = Settings(max_epochs=3, batch_size=32)


def test_folds_are_of_one_size_and_differ_between_repeats():
    folds = draw_folds(103, repeats=3, seed=1)
    assert folds.shape == (3, 103)
    for fold in folds:
        assert sorted(fold.bincount().tolist()) == [20, 20, 21, 21, 21]
    assert not torch.equal(folds[0], folds[1])
    assert torch.equal(folds, draw_folds(103, repeats=3, seed=1))


def test_groups_stay_together_in_folds_of_similar_size():
    groups = np.random.default_rng(0).choice([f"g{i}" for i in range(30)], 600)
    for fold in draw_folds(600, repeats=2, groups=groups):
        for name in set(groups):
            assert len(set(fold[torch.as_tensor(groups == name)].tolist())) == 1
        sizes = fold.bincount()
        assert sizes.max() - sizes.min() <= max(np.unique(groups, return_counts=True)[1])


def test_folds_in_time_are_blocks():
    time = np.random.default_rng(1).permutation(50)
    first, second = draw_folds(50, repeats=2, time=time)
    in_order = first[torch.as_tensor(np.argsort(time))]
    assert in_order.tolist() == sorted(in_order.tolist())
    turned = second[torch.as_tensor(np.argsort(time))]
    assert int((turned != turned.roll(1)).sum()) == 5  # round the circle
    as_text = [f"2024-{month}-01" for month in ("09", "10", "11", "12") for _ in range(5)]
    for times in (as_text, [str(n // 5 + 8) for n in range(20)]):
        # Numbers and dates as text are in the order of time, and rows of one time share a fold.
        assert draw_folds(20, folds=3, time=times)[0].tolist() == [0] * 10 + [1] * 5 + [2] * 5


NETWORK = MixtureNetwork(2, 2, 2, (8,))


def trained(x, y, partition):
    """Forecasts of unseen rows, observations, and the data and parameters behind them."""
    data = TrainingData.build(x, y, partition.splits)
    theta = train(NETWORK, data, partition.runs, settings=SETTINGS).theta
    return *forecast_unseen(NETWORK, data, theta, partition.runs, partition.unseen), data, theta


def sample(n):
    x, y = AR1Regression(dim=2).sample(n, generator=0)
    return x[:, :2], y


def test_a_forecast_does_not_know_its_own_row():
    x, y = sample(90)
    partition = Partition.crossed(90, folds=3, members=2)
    before = trained(x, y, partition)[0]
    assert before.logits.shape == (90, 4)
    wild = y.clone()
    wild[17] += 50
    data = TrainingData.build(x, wild, partition.splits)
    theta = train(NETWORK, data, partition.runs, settings=SETTINGS).theta
    after = forecast_unseen(NETWORK, data, theta, partition.runs, partition.unseen)[0]
    # Row 17 does not move the networks that forecast it; the units are those of the first split.
    loc, scale = (getattr(data.y_scaler, name)[0, 0] for name in ("loc", "scale"))
    old = TrainingData.build(x, y, partition.splits).y_scaler
    moved = affine(after, loc, scale)
    unmoved = affine(before, old.loc[0, 0], old.scale[0, 0])
    same = torch.isclose(moved.loc, unmoved.loc, rtol=1e-9).flatten(1).all(1)
    unseen = torch.stack([torch.isin(torch.arange(90), rows) for rows in partition.unseen])
    assert bool(same[(unseen == unseen[:, 17:18]).all(0)].all())
    assert bool(same[17])
    assert not bool(same.all())


@pytest.mark.parametrize(
    "partition",
    [Partition.single(60, members=2), Partition.single(60), Partition.crossed(60, folds=3)],
    ids=["two members", "validation rows", "folds"],
)
def test_each_row_gets_the_forecasts_of_its_networks(partition):
    x, y = sample(60)
    y = y * torch.tensor([1e3, 1e-3]) + 7
    dist, observed, data, theta = trained(x, y, partition)
    numbers = torch.cat(partition.unseen).unique().tolist()
    first = data.y_scaler.select([0])
    torch.testing.assert_close(observed, first(y.double())[0][numbers], rtol=1e-5, atol=1e-5)
    for place in (0, len(numbers) // 2, len(numbers) - 1):
        row = numbers[place]
        expected = []
        for run, parameters, unseen in zip(partition.runs, theta, partition.unseen, strict=True):
            if row in unseen:
                own = NETWORK(parameters[None], data.x[run.split, row][None, None])
                scaler = data.y_scaler.select([run.split])
                expected.append(first(scaler.loc + scaler.scale * own.loc[0, 0])[0])
        torch.testing.assert_close(dist.loc[place], torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_cross_fitting_keeps_the_network_of_a_single_split():
    single = Partition.single(50, seed=3)
    crossed = Partition.crossed(50, apart=False, seed=3)
    assert crossed.members == (0,)
    assert crossed.runs[0] == single.runs[0]
    for rows, expected in zip(crossed.splits[0], single.splits[0], strict=True):
        assert torch.equal(rows, expected)


def test_the_fold_that_stops():
    every = set(range(50))
    for apart, shares in ((True, [30, 10, 10]), (False, [40, 10, 10])):
        partition = Partition.crossed(50, members=2, apart=apart)
        for (rows, stop), unseen in zip(partition.splits, partition.unseen, strict=True):
            parts = [set(part.tolist()) for part in (rows, stop, unseen)]
            assert [len(part) for part in parts] == shares
            assert set.union(*parts) == every
            assert parts[0].isdisjoint(parts[1] | parts[2])
            assert parts[1].isdisjoint(parts[2]) == apart


def test_the_largest_group_is_trained_on():
    groups = np.array([0] * 60 + list(range(1, 41)))
    partition = Partition.single(100, splits=3, groups=groups)
    assert partition.folds == 0
    for rows, stop in partition.splits:
        assert set(range(60)) <= set(rows.tolist())
        assert len(stop) >= 10
    stops = [set(stop.tolist()) for _, stop in partition.splits]
    assert not stops[0] == stops[1] == stops[2]


@pytest.mark.parametrize("kind", ["groups", "time"])
def test_a_single_split_holds_out_groups_or_the_last_block(kind):
    order = np.random.default_rng(1).permutation(50)
    labels = order if kind == "time" else order % 10
    partition = Partition.single(50, splits=3, **{kind: labels})
    held = [set(labels[stop.numpy()].tolist()) for _, stop in partition.splits]
    kept = [set(labels[rows.numpy()].tolist()) for rows, _ in partition.splits]
    assert all(one.isdisjoint(other) for one, other in zip(held, kept, strict=True))
    if kind == "time":
        assert held == [set(range(40, 50)), set(range(30, 40)), set(range(20, 30))]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"n": 100, "folds": 1}, InputError, "folds"),
        ({"n": 9}, InputError, "9 rows are too few for 5 folds"),
        ({"n": 20, "groups": ["a", "b"] * 10}, InputError, "2 groups, fewer than the 5 folds"),
        ({"n": 20, "groups": range(20), "time": range(20)}, InputError, "not both"),
        ({"n": 20, "time": ["soon"] * 20}, InputError, "numbers or dates"),
        ({"n": 20, "time": range(19)}, ShapeError, r"time has shape \(19,\)"),
    ],
)
def test_what_is_refused(options, error, text):
    with pytest.raises(error, match=text):
        draw_folds(**options)


def continuous(n, draw):
    return draw.normal(size=(n, 2)), draw.normal(size=(n, 1))


def graded(n, draw):
    return draw.integers(0, 3, (n, 1)).astype(float), draw.integers(0, 3, (n, 1)).astype(float)


@pytest.mark.parametrize(
    ("table", "rows", "copied"),
    [
        (continuous, np.arange(40).repeat(4), True),
        (continuous, np.arange(40), False),
        (continuous, [*range(100), 0, 1], False),  # too few to give anything away
        (graded, np.arange(160), False),  # equal by chance
        (continuous, np.zeros(40, dtype=int), False),  # nothing to divide
    ],
    ids=["copies", "none", "few", "discrete", "one row"],
)
def test_copies_of_rows_are_found(table, rows, copied):
    x, y = (part[rows] for part in table(160, np.random.default_rng(0)))
    label = copied_rows(x, y)
    assert (label is not None) == copied
    if copied:
        assert (label.reshape(40, 4) == label.reshape(40, 4)[:, :1]).all()
        assert len(set(label)) == 40


def test_copies_of_a_row_are_held_out_together():
    x, y = (part.repeat(4, 0) for part in continuous(40, np.random.default_rng(0)))
    options = {"method": "none", "hidden": (4,), "max_epochs": 3, "random_state": 0}
    found = MixtureRegressor(**options).fit(x, y)
    told = MixtureRegressor(**options).fit(x, y, groups=copied_rows(x, y))
    alone = MixtureRegressor(**options).fit(x, y, groups=np.arange(160))
    assert torch.equal(found.x_scaler_.loc, told.x_scaler_.loc)
    assert not torch.equal(found.x_scaler_.loc, alone.x_scaler_.loc)
