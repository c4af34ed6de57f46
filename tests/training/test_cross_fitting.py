"""Forecasts of every row by networks that have not seen it."""

import numpy as np
import pytest
import torch

from prerank.datasets import AR1Regression
from prerank.errors import InputError, ShapeError
from prerank.models import MixtureNetwork
from prerank.training import Settings
from prerank.training.cross_fitting import cross_fit, draw_folds

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


def test_a_forecast_does_not_know_its_own_row():
    x, y = AR1Regression(dim=2).sample(90, generator=0)
    network = MixtureNetwork(x.shape[1], 2, 2, (8,))
    folds = draw_folds(90, folds=3, repeats=2)
    fitted = cross_fit(network, x, y, folds=folds, settings=SETTINGS)
    before = fitted.unseen()
    assert before.logits.shape == (90, 4)
    wild = y.clone()
    wild[17] += 50
    after = cross_fit(network, x, wild, folds=folds, settings=SETTINGS).unseen()
    same = (before.loc == after.loc).flatten(1).all(1)
    # Rows of the folds of row 17 are forecast by networks that have not seen it either.
    beside = (folds == folds[:, 17:18]).all(0)
    assert bool(same[beside].all())
    assert bool(same[17])
    assert not bool(same.all())


def test_forecasts_are_in_original_units():
    x, y = AR1Regression(dim=2).sample(200, generator=0)
    network = MixtureNetwork(x.shape[1], 2, 1, (16,))
    folds = draw_folds(200)
    unit, origin = torch.tensor([1e3, 1e-3]), torch.tensor([5.0, -7.0])
    one, other = (
        cross_fit(network, x, target, folds=folds, settings=SETTINGS).unseen()
        for target in (y, origin + unit * y)
    )
    # Numbers around -7 are exact to 5e-7 in float32, which are 5e-4 in units of .001.
    torch.testing.assert_close((other.mean - origin) / unit, one.mean, rtol=1e-3, atol=2e-3)


def test_each_row_gets_the_forecast_of_its_fold():
    x, y = AR1Regression(dim=2).sample(60, generator=0)
    network = MixtureNetwork(x.shape[1], 2, 1, (8,))
    fitted = cross_fit(network, x, y, folds=draw_folds(60, folds=3), settings=SETTINGS)
    loc = fitted.unseen().loc[:, 0]
    for row in (0, 31, 59):
        split = int(fitted.folds[0, row])
        stack = network(fitted.theta[split : split + 1], fitted.data.x[split : split + 1, [row]])
        scaler = fitted.data.y_scaler.member(split)
        expected = scaler.loc + scaler.scale * stack.loc[0, 0]
        torch.testing.assert_close(loc[row], expected[0].float())


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"n": 100, "folds": 2}, InputError, "folds"),
        ({"n": 9}, InputError, "9 rows are too few for 5 folds"),
        ({"n": 20, "groups": ["a", "b"] * 10}, InputError, "2 groups, fewer than the 5 folds"),
        ({"n": 20, "groups": range(20), "time": range(20)}, InputError, "not both"),
        ({"n": 20, "time": range(19)}, ShapeError, r"time has shape \(19,\)"),
    ],
)
def test_what_is_refused(options, error, text):
    with pytest.raises(error, match=text):
        draw_folds(**options)
