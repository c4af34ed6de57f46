"""Standardised data: by the training rows of each split, and by nothing else."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.training import TrainingData
from prerank.training.data import Scaler

F64 = torch.float64
ROWS = 60


def table(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 4)) * [1.0, 1e6, 1e-6, 5.0] + [0.0, 1e6, 3.0, -7.0]
    y = rng.normal(size=(ROWS, 2)) * [3.0, 0.1] + [100.0, 0.0]
    return x, y


def splits(count=3, validation=15):
    g = torch.Generator().manual_seed(0)
    orders = [torch.randperm(ROWS, generator=g) for _ in range(count)]
    return [(order[validation:], order[:validation]) for order in orders]


def build(x, y, parts=None, **options):
    return TrainingData.build(x, y, parts or splits(), **{"dtype": F64, **options})


def test_each_split_is_standardised_by_its_training_rows():
    x, y = table()
    data = build(x, y, clip=False)
    assert data.x.shape == (3, ROWS, 4)
    assert data.y.shape == (3, ROWS, 2)
    for u, (train, validation) in enumerate(splits()):
        assert torch.equal(data.train[u], train)
        assert torch.equal(data.validation[u], validation)
        for found, raw in ((data.x[u], x), (data.y[u], y)):
            rows = raw[train.numpy()]
            expected = (raw - rows.mean(0)) / rows.std(0)
            # A mean of 3 has a rounding error of 1e-15, and that column a spread of 1e-6.
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-8)
            np.testing.assert_allclose(found[train].mean(0), 0, atol=1e-8)
            np.testing.assert_allclose(found[train].std(0, correction=0), 1, rtol=1e-9)
    assert not torch.allclose(data.x[0], data.x[1])


def test_spreads_have_the_units_of_the_targets():
    x, y = table()
    other = torch.as_tensor(y + 1)
    data = build(x, y, spreads=[other, other + 1])
    assert data.spreads.shape == (2, *data.y.shape)
    for shift, spread in enumerate(data.spreads, start=1):
        torch.testing.assert_close(spread - data.y, (shift / data.y_scaler.scale).expand_as(spread))


def test_validation_rows_do_not_count():
    x, y = table()
    (train, validation), *_ = splits()
    spoiled_x, spoiled_y = x.copy(), y.copy()
    spoiled_x[validation.numpy()] *= 1000
    spoiled_y[validation.numpy()] += 1e6
    clean, spoiled = (
        build(a, b, [(train, validation)]) for a, b in ((x, y), (spoiled_x, spoiled_y))
    )
    for part in ("loc", "scale", "low", "high"):
        for scaler in ("x_scaler", "y_scaler"):
            assert torch.equal(
                getattr(getattr(clean, scaler), part), getattr(getattr(spoiled, scaler), part)
            )
    assert torch.equal(clean.x[0, train], spoiled.x[0, train])


def test_inputs_are_held_to_the_range_of_the_training_rows():
    x, y = table()
    (train, validation), *_ = splits()
    x[validation[0]] = [1e3, -1e9, 1e3, -1e3]
    held, free = (build(x, y, [(train, validation)], clip=clip) for clip in (True, False))
    low, high = held.x[0, train].amin(0), held.x[0, train].amax(0)
    assert torch.equal(held.x[0, train], free.x[0, train])
    expected = torch.stack([high[0], low[1], high[2], low[3]])
    torch.testing.assert_close(held.x[0, validation[0]], expected, rtol=1e-9, atol=1e-9)
    assert free.x[0, validation[0]].abs().min() > 100
    assert ((held.x[0] >= low - 1e-9) & (held.x[0] <= high + 1e-9)).all()


def test_targets_are_not_held_to_a_range():
    x, y = table()
    (train, validation), *_ = splits()
    y[validation[0]] = [1e6, -1e6]
    data = build(x, y, [(train, validation)])
    assert data.y[0, validation[0]].abs().min() > 1e4


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, -1e8, 1e-3, 123456.789])
def test_constant_columns_are_only_centred(value):
    x, y = table()
    x[:, 1] = value
    y[:, 0] = value
    data = build(x, y)
    assert data.x_scaler.scale[:, 0, 1].tolist() == [1.0] * 3
    assert data.y_scaler.scale[:, 0, 0].tolist() == [1.0] * 3
    # The mean of equal numbers has a rounding error.
    assert data.x[..., 1].abs().max() <= 1e-14 * abs(value)
    assert torch.isfinite(data.x).all()


def test_a_column_that_is_constant_in_the_training_rows_alone():
    x, y = table()
    (train, validation), *_ = splits()
    x[:, 0] = 0.3
    x[validation.numpy(), 0] = 50.0
    data = build(x, y, [(train, validation)])
    assert data.x[..., 0].abs().max() < 1e-12  # held to the range, which is a point
    assert torch.isfinite(data.x).all()


def test_float32_statistics_are_computed_in_float64():
    x, y = table()
    x[:, 1] = 1e8 + np.arange(ROWS)  # float32 has no odd numbers up here
    data = build(x, y, dtype=torch.float32)
    assert data.x.dtype == data.y.dtype == torch.float32
    exact = build(x, y)
    torch.testing.assert_close(data.x, exact.x.float(), rtol=1e-6, atol=1e-6)
    assert data.x[0, :, 1].unique().numel() == ROWS


def test_tables_and_tensors_are_taken():
    x, y = table()
    plain = build(x, y)
    for a, b in ((pd.DataFrame(x), pd.DataFrame(y)), (torch.from_numpy(x), torch.from_numpy(y))):
        assert torch.equal(build(a, b).x, plain.x)


def test_scalers_of_some_splits():
    x, _ = table()
    train = torch.stack([part for part, _ in splits()])
    scaler = Scaler.fit(torch.from_numpy(x)[train])
    for u in range(3):
        one = scaler.select([u])
        assert one.loc.shape == (1, 1, 4)
        expected = Scaler.fit(torch.from_numpy(x)[train[u]])
        for part in ("loc", "scale", "low", "high"):
            torch.testing.assert_close(getattr(one, part)[0], getattr(expected, part))
        new = torch.from_numpy(x[:5] * 100)
        torch.testing.assert_close(one(new)[0], (new - expected.loc) / expected.scale)
        held = one(new, clip=True)
        assert torch.equal(held, one(new).clamp(expected.low, expected.high))


def test_a_scaler_does_not_depend_on_units():
    x, _ = table()
    values = torch.from_numpy(x)
    plain = Scaler.fit(values)(values)
    for factor in (1e-6, 1e6):
        torch.testing.assert_close(Scaler.fit(factor * values)(factor * values), plain)


X, Y = table()
NAN = X.copy()
NAN[3, 2] = np.nan
TRAIN, VALIDATION = splits()[0]
WILD = Y.copy()
WILD[VALIDATION[0], 1] = 1e30


@pytest.mark.parametrize(
    ("x", "y", "parts", "error", "match"),
    [
        (X[:, 0], Y, splits(), ShapeError, "x must have shape"),
        (X, Y[:-1], splits(), ShapeError, "x must be"),
        (X[None], Y[None], splits(), ShapeError, "x must be"),
        (NAN, Y, splits(), InputError, "NaN"),
        (X, np.where(Y > 100, np.inf, Y), splits(), InputError, "y holds"),
        (X.astype(str), Y, splits(), InputTypeError, "x must"),
        (X, WILD, splits(), InputError, rf"1e\+30 in row {VALIDATION[0]} of column 1"),
        (X, Y, [], InputError, "splits"),
        (X, Y, [(TRAIN, VALIDATION), (TRAIN[1:], VALIDATION)], InputError, "same sizes"),
        (X, Y, [(TRAIN[:1], VALIDATION)], InputError, "1 training"),
        (X, Y, [(TRAIN, VALIDATION[:1])], InputError, "1 validation"),
    ],
    ids=[
        "vector",
        "rows",
        "stack",
        "nan",
        "inf",
        "text",
        "wild",
        "none",
        "sizes",
        "one train",
        "one val",
    ],
)
def test_what_cannot_be_used_is_refused(x, y, parts, error, match):
    with pytest.raises(error, match=match):
        TrainingData.build(x, y, parts)
