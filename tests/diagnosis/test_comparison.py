"""Two forecasts of the same rows: the table, the words and the refusals."""

import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.errors import InputError, PrerankError, ShapeError

N = 300
Y = torch.randn(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def normal(spread, n=N):
    cov = spread**2 * torch.eye(2, dtype=torch.float64)
    return MultivariateNormal(torch.zeros(n, 2, dtype=torch.float64), cov)


def test_table_and_words():
    names = ("right", "narrow")
    found = prerank.compare(normal(1.0), normal(0.5), Y, preranks="marginal+scale", names=names)
    assert list(found.table.columns) == [
        *("measure", "prerank", "value_a", "value_b"),
        *("difference", "lower", "upper", "p_value"),
    ]
    assert found.table.measure.tolist() == ["excess"] * 3 + ["energy score", "NLL"]
    assert found.table.prerank.tolist() == ["marginal", "scale", "mean", "", ""]
    assert (found.table.difference < 0).all()
    assert (found.table.p_value < 0.05).all()
    assert found.better_calibrated == found.better_scoring == "right"
    words = str(found)
    assert words.startswith("right is better calibrated: mean excess ")
    assert "right has the better energy score" in words
    assert "Assumed: independent rows." in words
    row = found.table.iloc[0]
    one = prerank.diagnose(normal(1.0), Y, preranks="marginal+scale")
    assert row.value_a == pytest.approx(one.by_prerank["marginal"].excess)


def test_equal_forecasts_and_samples():
    members = torch.randn(30, N, 2, generator=torch.Generator().manual_seed(1))
    dist = prerank.Ensemble(members)
    found = prerank.compare(dist, dist, Y, preranks="marginal", time=range(N), scale="samples")
    assert found.better_calibrated is None
    assert found.better_scoring is None
    assert found.skipped == {"NLL": "samples have no density"}
    assert "No evidence of a difference in calibration" in str(found)
    assert "rows in time order, 300 times" in str(found)
    clusters = [k // 10 for k in range(N)]
    found = prerank.compare(dist, normal(1.0), Y, preranks="marginal", cluster=clusters)
    assert "30 clusters" in found.assumption


@pytest.mark.parametrize(
    ("other", "options", "error", "words"),
    [
        (normal(1.0, 200), {}, ShapeError, "batch_shape"),
        (normal(1.0), {"names": ("a", "a")}, InputError, "two different"),
        (normal(1.0), {"level": 1.0}, InputError, "level"),
        (prerank.Ensemble(torch.randn(5, N, 2), torch.rand(5)), {}, InputError, "weighted samples"),
        (normal(1.0), {"time": range(N), "cluster": range(N)}, InputError, "exclude each other"),
    ],
)
def test_refusals(other, options, error, words):
    with pytest.raises(error, match=words):
        prerank.compare(normal(1.0), other, Y, **options)


def test_few_rows():
    """Nine are refused; the difference of two errors is at most a half, and so is its interval."""
    with pytest.raises(InputError, match="9 rows are too few for intervals: 10 are needed"):
        prerank.compare(normal(1.0, 9), normal(0.5, 9), Y[:9])
    far = MultivariateNormal(torch.full((10, 2), 9.0).double(), torch.eye(2).double())
    table = prerank.compare(far, normal(1.0, 10), Y[:10], preranks="marginal").table[:2]
    assert (table.upper <= 0.5).all()
    assert (table.upper > table.lower).all()


def test_any_source_of_noise():
    members = torch.randn(5, 20, 2, generator=torch.Generator().manual_seed(1)).double()
    dists = prerank.Ensemble(members), prerank.Ensemble(2 * members)
    first, again = (
        prerank.compare(
            *dists, Y[:20], preranks="scale", generator=torch.Generator().manual_seed(3)
        )
        for _ in range(2)
    )
    assert first.differences == again.differences
    assert prerank.compare(*dists, Y[:20], preranks="scale", generator=None).differences
    with pytest.raises(PrerankError, match="generator must be"):
        prerank.compare(*dists, Y[:20], generator="x")
