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
    few = MultivariateNormal(torch.zeros(30, 2), torch.eye(2))
    with pytest.raises(InputError, match="30 rows are too few"):
        prerank.diagnose_where(few, torch.randn(30, 2), torch.rand(30, 1))
    stack = MultivariateNormal(torch.zeros(2, N, 2), torch.eye(2))
    with pytest.raises(ShapeError, match="one predictor"):
        prerank.diagnose_where(stack, y, table, preranks="marginal")
