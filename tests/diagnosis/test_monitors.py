"""`Monitor`: alarms, repeated rows, times, and a state that is continued."""

import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.errors import InputError, ShapeError


def stream(n, bias=0.0, seed=0):
    noise = torch.Generator().manual_seed(seed)
    y = bias + torch.randn(n, 2, generator=noise)
    return MultivariateNormal(torch.zeros(n, 2), torch.eye(2)), y


def rows(dist, y, at):
    return MultivariateNormal(dist.loc[at], dist.covariance_matrix[at]), y[at]


def test_calibrated_forecasts_give_no_alarm_and_biased_ones_do():
    monitor = prerank.Monitor()
    assert (monitor.evidence, monitor.alarm, monitor.by_prerank) == (1.0, False, {})
    monitor.update(*stream(300))
    assert not monitor.alarm
    assert "No alarm: 300 rows" in str(monitor)
    monitor.update(*stream(300, bias=0.7, seed=1))
    assert monitor.alarm
    assert 300 < monitor.alarm_row < 600
    assert monitor.evidence == monitor.table.evidence.iloc[-1]
    assert str(monitor).startswith("Alarm since row")
    assert list(monitor.table) == ["evidence", *monitor.labels]
    # In one filtration the evidence is the mean over the pre-ranks.
    assert sum(monitor.by_prerank.values()) / 6 == pytest.approx(monitor.evidence)


def test_an_alarm_stays():
    monitor = prerank.Monitor(preranks="marginal", alpha=0.2)
    monitor.update(*stream(60, bias=1.0))
    first = monitor.alarm_row
    monitor.update(*stream(3000, seed=5))
    assert monitor.alarm_row == first


@pytest.mark.parametrize("lead", [1, 3])
def test_a_saved_state_is_continued(tmp_path, lead):
    dist, y = stream(50)
    whole = prerank.Monitor(preranks="marginal+location", lead=lead)  # closed forms: no noise
    whole.update(dist, y)
    part = prerank.Monitor(preranks="marginal+location", lead=lead)
    part.update(*rows(dist, y, slice(0, 20)))
    part.save(tmp_path / "state")
    again = prerank.Monitor.load(tmp_path / "state")
    again.update(*rows(dist, y, slice(20, 50)))
    assert again.evidence == pytest.approx(whole.evidence)
    pd.testing.assert_frame_equal(again.table, whole.table)


def test_repeated_rows_are_refused(tmp_path):
    dist, y = stream(50)
    monitor = prerank.Monitor()
    monitor.update(dist, y)
    monitor.save(tmp_path / "state")
    for one in (monitor, prerank.Monitor.load(tmp_path / "state")):
        with pytest.raises(InputError, match="10 of these 10 rows were added before"):
            one.update(*rows(dist, y, slice(40, 50)))
        assert one.rows == 50
    members = torch.randn(5, 4, 2)
    ensembles = prerank.Monitor(preranks="marginal")
    ensembles.update(prerank.Ensemble(members), y[:4])
    with pytest.raises(InputError, match="1 of these 1 rows"):
        ensembles.update(prerank.Ensemble(members[:, 2:3]), y[2:3])


def test_times_identify_rows():
    dist, y = stream(4)
    monitor = prerank.Monitor(preranks="marginal")
    days = ["2024-01-09", "2024-01-10", "2024-01-11", "2024-02-01"]
    monitor.update(dist, y, time=days)
    assert monitor.table.time.tolist() == days
    with pytest.raises(InputError, match="up to time 2024-02-01 were added"):
        monitor.update(dist, y, time=days)
    with pytest.raises(InputError, match="must not decrease"):
        monitor.update(dist, y, time=days[::-1])
    with pytest.raises(InputError, match="for all rows or for none"):
        monitor.update(dist, y + 1)
    later = ["2025-01-01"] * 4
    with pytest.raises(InputError, match="4 rows have the same time"):
        monitor.update(dist, y, time=later)
    monitor.update(dist, y, time=[f"2025-01-0{d}" for d in range(1, 5)])  # same values, new times
    assert monitor.rows == 8


def test_refusals(tmp_path):
    dist, y = stream(10)
    for bad in (0, 1.5, "x"):
        with pytest.raises(InputError, match="alpha"):
            prerank.Monitor(alpha=bad)
    with pytest.raises(InputError, match="nothing to save"):
        prerank.Monitor().save(tmp_path / "state")
    weights = prerank.Ensemble(torch.randn(5, 10, 2), torch.rand(5))
    with pytest.raises(InputError, match="weighted samples"):
        prerank.Monitor(preranks="marginal").update(weights, y)
    monitor = prerank.Monitor()
    monitor.update(dist, y)
    with pytest.raises(ShapeError, match="components of"):
        monitor.update(prerank.Ensemble(torch.randn(5, 10, 2)), y)  # has no hdr
    with pytest.raises(InputError, match="targets"):
        monitor.update(dist, pd.DataFrame(y.numpy() + 1, columns=["a", "b"]))
    (tmp_path / "other").write_text("no state")
    with pytest.raises(InputError, match="other"):
        prerank.Monitor.load(tmp_path / "other")


def test_units_are_divided_out():
    dist, y = stream(40)
    plain = prerank.Monitor(preranks="location")
    plain.update(dist, y)
    factor = torch.tensor([100.0, 0.5])
    scaled = prerank.Monitor(preranks="location", scale=factor)
    scaled.update(MultivariateNormal(dist.loc, torch.diag(factor**2)), factor * y)
    assert scaled.evidence == pytest.approx(plain.evidence, rel=1e-3)


def test_plot_names_the_alarm():
    monitor = prerank.Monitor(preranks="marginal+location")
    monitor.update(*stream(200, bias=1.0))
    display = monitor.plot()
    assert display.caption == f"The evidence reaches 100 in row {monitor.alarm_row + 1}: alarm."
    assert [line.get_label() for line in display.lines_] == ["all", "marginal", "location"]
