"""`diagnose_where`: from forecasts and inputs to words, a table and pictures."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.errors import InputError, ShapeError

N = 600


@pytest.fixture(scope="module")
def data():
    g = torch.Generator().manual_seed(0)
    x = 100 * torch.rand(N, 2, generator=g)
    y = torch.randn(N, 2, generator=g)
    y[x[:, 0] > 80, 1] *= 2.5
    table = pd.DataFrame(x.numpy(), columns=["humidity", "height"])
    table["station"] = np.where(np.arange(N) % 3 == 0, "Bonn", "Ghent")
    dist = MultivariateNormal(torch.zeros(N, 2), torch.eye(2))
    return dist, pd.DataFrame(y.numpy(), columns=["rain", "wind"]), table


@pytest.fixture(scope="module")
def where(data):
    return prerank.diagnose_where(*data, n_null=99, max_regions=1)


def test_the_region_in_words(where):
    assert where.p_value == 0.01
    headline, line = str(where).splitlines()
    assert headline == "Calibration differs over the inputs (p = 0.010)."
    assert line.startswith(("- humidity above ", "- humidity between 79"))
    assert line.endswith("predictions too narrow in wind.")


def test_the_table(where):
    [row] = where.regions.to_dict("records")
    assert (row["kind"], row["component"], row["prerank"]) == ("spread", "wind", "marginal")
    assert row["inside"] > 0.5 > abs(row["outside"])
    assert row["n"] == round(row["share"] * N)
    assert abs(row["share"] - 0.2) < 0.05


@pytest.mark.parametrize(
    ("scale", "words"),
    [(0.5, "which have predictions too narrow in every target."), (0.0, "where targets move ")],
)
def test_a_region_that_is_better_than_the_rest(scale, words):
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(1000, 1, generator=g), torch.randn(1000, 2, generator=g)
    right = x[:, 0] > 0.7
    covariance = torch.eye(2).repeat(1000, 1, 1)
    if scale:
        covariance[~right] *= scale**2
    else:
        covariance[~right] += 0.8 * (1 - torch.eye(2))
    dist = MultivariateNormal(torch.zeros(1000, 2), covariance)
    where = prerank.diagnose_where(dist, y, x, n_null=39, max_regions=1)
    assert f"better calibrated than the other rows, {words}" in str(where)


def test_weights_separate_the_rows(where, data):
    planted = torch.tensor((data[2].humidity > 80).tolist())
    assert where.weights.shape == (N,)
    assert where.weights[planted].min() > where.weights[~planted].median()


def test_inputs_as_table_array_and_tensor_agree(data):
    dist, y, table = data
    numbers = table[["humidity", "height"]]
    given = [numbers, numbers.to_numpy(), torch.tensor(numbers.to_numpy())]
    options = {"preranks": "marginal", "n_null": 19, "names": ["humidity", "height"]}
    found = [prerank.diagnose_where(dist, y, X, **options) for X in given]
    assert len({str(one) for one in found}) == 1


def test_pits_that_are_there(data, where):
    from prerank.diagnosis import regions_of_pits

    dist, y, table = data
    diagnosis = prerank.diagnose(dist, y, preranks="marginal", n_null=10)
    found = regions_of_pits(
        diagnosis.pits, table, targets=["rain", "wind"], n_null=99, max_regions=1
    )
    assert found.points == where.points


def test_no_evidence_is_said_and_drawn(data):
    dist, _, table = data
    y = torch.randn(N, 2, generator=torch.Generator().manual_seed(5))
    found = prerank.diagnose_where(dist, y, table, preranks="marginal", n_null=39)
    assert found.p_value > 0.05
    assert found.headline.startswith("No evidence that calibration differs over the inputs (p = ")
    assert found.regions.empty
    assert "fault" in found.regions
    [display] = found.plot()
    assert display.caption.startswith("No evidence; the largest difference is in ")


def test_a_level_and_a_corner_are_drawn(data):
    dist, _, table = data
    g = torch.Generator().manual_seed(7)
    y = torch.randn(N, 2, generator=g)
    y[torch.tensor((table.station == "Bonn").tolist())] += 1
    [level] = prerank.diagnose_where(dist, y, table, n_null=19, max_regions=1).plot()
    assert level.caption.startswith("station is Bonn (200 rows, 33.3 %): observed values higher")
    y = torch.randn(N, 2, generator=g)
    y[torch.tensor(((table.humidity > 60) & (table.height < 40)).tolist())] -= 2
    [corner] = prerank.diagnose_where(dist, y, table, n_null=19, max_regions=1).plot()
    assert corner.caption.startswith("humidity above ")
    assert corner.ax_.get_xlabel() == "humidity"
    assert corner.ax_.get_ylabel() == "height"


def test_lost_correlation_is_called_dependence(data):
    _, _, table = data
    dist = MultivariateNormal(torch.zeros(N, 3), 0.2 * torch.eye(3) + 0.8)
    y = dist.sample()
    lost = torch.tensor((table.humidity > 70).tolist())
    y[lost] = torch.randn(int(lost.sum()), 3)
    [row] = prerank.diagnose_where(dist, y, table, n_null=39, max_regions=1).records()
    assert row["fault"].startswith("targets move together less than predicted; no target stands")


@pytest.mark.parametrize("seed", range(3))
def test_a_spread_that_follows_an_input_is_told_from_heavy_tails(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(1000, 2, generator=g)
    spread = torch.exp(1.6 * (x[:, :1] - 0.5))
    y = spread * torch.randn(1000, 2, generator=g)
    dist = MultivariateNormal(torch.zeros(1000, 2), spread.square().mean() * torch.eye(2))
    found = prerank.diagnose_where(dist, y, x, preranks="marginal", n_null=39, max_regions=2)
    assert found.p_value == 1 / 40
    assert {region.conditions[0].name for region in found.search.regions} == {"x0"}
    assert {fault.kind for faults in found.faults for fault in faults} == {"spread"}
    first = found.search.regions[0].conditions[0]
    words = "predictions too wide" if first.low is None else "predictions too narrow"
    assert f"): {words} in every target." in found.points[0]


def test_heavy_tails_everywhere_are_in_no_region():
    alarms = 0
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        x, normal = torch.rand(500, 2, generator=g), torch.randn(500, 6, generator=g)
        chi = normal[:, 2:].square().sum(-1, keepdim=True)  # of 4 degrees of freedom
        y = normal[:, :2] / (chi / 2).sqrt()  # t4 of unit variance
        dist = MultivariateNormal(torch.zeros(500, 2), torch.eye(2))
        options = {"preranks": "marginal", "n_null": 39, "max_regions": 1}
        alarms += prerank.diagnose_where(dist, y, x, **options).p_value <= 0.05
    assert alarms <= 2  # 99 % bound of a binomial with 10 trials and 5 %


def test_times_and_clusters(data):
    dist, y, table = data
    options = {"preranks": "marginal", "n_null": 39, "max_regions": 1}
    found = prerank.diagnose_where(dist, y, table, time=np.arange(N), **options)
    assert found.headline.endswith("(p = 0.025, whole times shifted).")
    found = prerank.diagnose_where(dist, y, table, cluster=np.arange(N) // 5, **options)
    assert found.headline.endswith("(p = 0.025, whole clusters permuted).")
    assert found.dependence.count == N // 5
    # What is the same at every time is the same after a shift.
    fixed = table.assign(humidity=table.humidity[:2].tolist() * (N // 2), height=0, station=0)
    found = prerank.diagnose_where(dist, y, fixed, time=np.arange(N) // 2, **options)
    assert found.p_value == 1.0


def test_refusals(data):
    dist, y, table = data
    with pytest.raises(InputError, match="no input that varies"):
        prerank.diagnose_where(dist, y, np.zeros((N, 2)))
    with pytest.raises(ShapeError, match="X has shape"):
        prerank.diagnose_where(dist, y, table[:-1])
    with pytest.raises(InputError, match="alpha"):
        prerank.diagnose_where(dist, y, table, alpha=1.0)
    with pytest.raises(InputError, match="n_null"):
        prerank.diagnose_where(dist, y, table, n_null=0)
    with pytest.raises(InputError, match="exclude each other"):
        prerank.diagnose_where(dist, y, table, time=range(N), cluster=range(N))
    with pytest.raises(InputError, match="cluster has 3 different values"):
        prerank.diagnose_where(dist, y, table, cluster=np.arange(N) % 3)
    few = MultivariateNormal(torch.zeros(30, 2), torch.eye(2))
    with pytest.raises(InputError, match="30 rows are too few"):
        prerank.diagnose_where(few, torch.randn(30, 2), torch.rand(30, 1))
    weighted = prerank.Ensemble(torch.randn(5, N, 2), torch.rand(5, N))
    with pytest.raises(InputError, match="p-values would be wrong: search samples of equal"):
        prerank.diagnose_where(weighted, y, table)
    stack = MultivariateNormal(torch.zeros(2, N, 2), torch.eye(2))
    with pytest.raises(ShapeError, match="one predictor"):
        prerank.diagnose_where(stack, y, table, preranks="marginal")
