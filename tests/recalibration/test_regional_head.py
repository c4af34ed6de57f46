"""The head of regions: it repairs a region and leaves other rows, and right forecasts, alone."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import ExpTransform, MultivariateNormal, TransformedDistribution

import prerank
from prerank import Ensemble, GaussianMixture
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.recalibration import RegionalHead

N = 600


def inputs(n: int = N, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    table = pd.DataFrame(100 * random.random((n, 2)), columns=["humidity", "height"])
    return table.assign(station=random.choice(["Bonn", "Ghent", "Lyon", "Oslo"], n))


def forecast(kind: str, n: int = N) -> torch.distributions.Distribution:
    normal = MultivariateNormal(torch.zeros(n, 2), 0.5 * torch.eye(2) + 0.5)
    if kind == "ensemble":
        return Ensemble(normal.sample(torch.Size((40,))))
    return normal if kind == "normal" else TransformedDistribution(normal, [ExpTransform()])


def observed(kind: str, planted: pd.Series, seed: int = 0) -> torch.Tensor:
    """Observations with twice the predicted spread where the fault is planted."""
    torch.manual_seed(seed + 100)
    y = forecast("normal", len(planted)).sample()
    y[torch.tensor(planted.tolist())] *= 2
    return y.exp() if kind == "density" else y


@pytest.fixture(scope="module")
def head() -> RegionalHead:
    X = inputs()
    y = observed("normal", X.humidity > 80)
    return RegionalHead(n_null=39).fit(forecast("normal"), y, X)


@pytest.mark.parametrize(
    "kind",
    ["normal", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ensemble", "density"))],
)
def test_a_region_is_repaired_and_the_others_stay(kind: str) -> None:
    X = inputs(1000)
    head = RegionalHead(n_null=39).fit(forecast(kind, 1000), observed(kind, X.humidity > 80), X)
    assert [one.conditions[0].name for one in head.changes_] == ["humidity"]
    new = inputs(3000, seed=1)
    before, y = forecast(kind, 3000), observed(kind, new.humidity > 80, seed=1)
    after = head(before, new)
    score = prerank.energy_score if kind == "ensemble" else prerank.nll
    gain = score(before, y) - score(after, y)
    inside, outside = (
        torch.tensor(rows.tolist()) for rows in (new.humidity > 85, new.humidity < 70)
    )
    assert float(gain[inside].mean()) > (0.02 if kind == "ensemble" else 0.5)
    torch.testing.assert_close(gain[outside], torch.zeros_like(gain[outside]), atol=1e-3, rtol=0)
    errors = [
        float(prerank.pce(prerank.pit(d, y, "marginal", generator=0)[inside]).mean())
        for d in (before, after)
    ]
    # Moves and stretches of a log-normal do not make another one of twice the width.
    assert errors[1] < errors[0] * (0.75 if kind == "density" else 0.5)
    assert isinstance(after, Ensemble if kind == "ensemble" else type(after))
    if kind != "ensemble":
        assert after.sample(torch.Size((5,))).shape == (5, 3000, 2)


def test_a_calibrated_forecast_comes_back() -> None:
    X, none = inputs(), pd.Series([False] * N)
    kept = 0
    for seed in range(5):
        head = RegionalHead(n_null=39, seed=seed)
        kept += bool(head.fit(forecast("normal"), observed("normal", none, seed), X).changes_)
    assert kept == 0  # less than one in a hundred: the search, and then the gain, err rarely
    assert head.report() == "nothing"
    dist = forecast("normal")
    torch.testing.assert_close(head(dist, X).mean, dist.mean)


def test_the_report_names_region_and_change(head: RegionalHead) -> None:
    assert head.p_value_ == 1 / 40
    assert head.report().startswith("humidity ")
    assert ": widths of y0" in head.report()
    assert head.report() in repr(head)
    assert "not fitted" in repr(RegionalHead())


def test_a_saved_head_does_the_same(head: RegionalHead, tmp_path) -> None:
    head.save(tmp_path / "head.safetensors")
    again = RegionalHead.load(tmp_path / "head.safetensors")
    dist, X = forecast("normal", 50), inputs(50, seed=3)
    y = dist.sample()
    torch.testing.assert_close(again(dist, X).log_prob(y), head(dist, X).log_prob(y))
    assert again.report() == head.report()
    assert again.changes_[0].gain == head.changes_[0].gain
    prerank.CalibrationHead(steps=1).fit(dist, y).save(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="is not a regional head"):
        RegionalHead.load(tmp_path / "other.safetensors")


def test_a_region_of_levels_ignores_levels_that_are_new() -> None:
    X = inputs(800)
    y = observed("normal", X.station == "Bonn")
    head = RegionalHead(n_null=39).fit(forecast("normal", 800), y, X)
    assert head.report().startswith("station is Bonn: ")
    names = [*(f"place {k}" for k in range(60)), "Bonn"]  # more levels than a search keeps apart
    new = pd.DataFrame({"station": names})
    spread = head(forecast("normal", 61), new).variance.sqrt()
    assert bool((spread[-1] > 1.5).all())
    torch.testing.assert_close(spread[:-1], torch.ones(60, 2), atol=1e-4, rtol=0)


@pytest.mark.parametrize("given", ["time", "cluster"])
def test_dependent_rows(given: str) -> None:
    X = inputs()
    units = {"time": np.arange(N), "cluster": np.arange(N) // 4}[given]
    y = observed("normal", X.humidity > 75)
    head = RegionalHead(n_null=39).fit(forecast("normal"), y, X, **{given: units})
    assert [one.conditions[0].name for one in head.changes_] == ["humidity"]


def test_refusals(head: RegionalHead) -> None:
    dist, X = forecast("normal"), inputs()
    y = dist.sample()
    with pytest.raises(InputError, match="not fitted"):
        RegionalHead()(dist, X)
    with pytest.raises(InputError, match="alpha"):
        RegionalHead(alpha=0)
    with pytest.raises(ShapeError, match="X has shape"):
        RegionalHead().fit(dist, y, X[:-1])
    with pytest.raises(InputError, match="exclude each other"):
        RegionalHead().fit(dist, y, X, time=range(N), cluster=range(N))
    with pytest.raises(InputError, match="no input 'humidity'"):
        head(dist, X[["height"]])
    with pytest.raises(NotApplicableError, match="'ensemble'"):
        head(forecast("ensemble"), X)
    with pytest.raises(ShapeError, match="event_shape"):
        head(MultivariateNormal(torch.zeros(N, 3), torch.eye(3)), X)
    stack = MultivariateNormal(torch.zeros(2, N, 2), torch.eye(2))
    with pytest.raises(ShapeError, match="batch_shape"):
        RegionalHead().fit(stack, y.expand(2, N, 2), X)
    with pytest.raises(InputError, match="60 rows are too few: half of them"):
        RegionalHead().fit(MultivariateNormal(torch.zeros(60, 2), torch.eye(2)), y[:60], X[:60])
    weighted = Ensemble(torch.randn(5, N, 2), torch.rand(5))
    with pytest.raises(InputError, match="fit the head to samples of equal weight"):
        RegionalHead().fit(weighted, y, X)
    assert isinstance(head(dist, X), GaussianMixture)
