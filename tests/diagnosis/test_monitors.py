"""`Monitor`: alarms, repeated rows, times, and a state that is continued."""

import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.errors import InputError, PrerankError, ShapeError


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
        with pytest.raises(InputError, match=r"first 12 of these 12 rows .* rows 21 to 32,"):
            one.update(*rows(dist, y, slice(20, 32)))
        assert one.rows == 50
    more, late = stream(60, seed=1)
    late[:15] = y[35:]
    with pytest.raises(InputError, match=r"first 15 of these 60 rows .* rows 36 to 50,"):
        monitor.update(more, late)
    members = torch.randn(5, 40, 2)
    ensembles = prerank.Monitor(preranks="marginal")
    ensembles.update(prerank.Ensemble(members), y[:40])
    with pytest.raises(InputError, match="first 20 of these 20 rows"):
        ensembles.update(prerank.Ensemble(members[:, 10:30]), y[10:30])


def test_rows_that_are_alike_by_themselves_are_not_refused():
    """A constant forecast of counts, one of days that are dry, and one with a new spread."""
    climate = prerank.Ensemble(torch.poisson(torch.ones(20, 1, 2)).expand(20, 200, 2))
    for rate in (1.0, 0.02):
        monitor = prerank.Monitor(preranks="marginal")
        for _ in range(3):
            monitor.update(climate, torch.poisson(torch.full((200, 2), rate)))
        assert monitor.rows == 600
    dist, y = stream(50)
    monitor = prerank.Monitor()
    monitor.update(dist, y)
    for spread in (2 * torch.eye(2), torch.eye(2) + 0.5 * (1 - torch.eye(2))):
        monitor.update(MultivariateNormal(torch.zeros(50, 2), spread), y)
    with pytest.raises(InputError, match="added before"):
        monitor.update(MultivariateNormal(torch.zeros(50, 2), spread), y)


@pytest.mark.parametrize("lead", [1, 7])
@pytest.mark.parametrize("kind", ["gaussian", "ensemble"])
def test_batches_make_no_difference(kind, lead):
    noise = torch.Generator().manual_seed(0)
    y, mean = torch.randn(2, 300, 2, generator=noise)
    members = torch.randn(20, 300, 2, generator=noise)

    def forecast(at):
        if kind == "ensemble":
            return prerank.Ensemble(members[:, at])
        return MultivariateNormal(0.3 * mean[at], torch.eye(2))

    paths = []
    for sizes in ([300], [1, 2, 97, 100, 37, 63]):
        monitor = prerank.Monitor(lead=lead)
        for at in torch.arange(300).split(sizes):
            monitor.update(forecast(at), y[at])
        paths.append(monitor.table)
    pd.testing.assert_frame_equal(*paths)


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
        with pytest.raises(PrerankError, match="alpha"):
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


def test_one_target_is_one_question():
    noise = torch.Generator().manual_seed(0)
    y, dist = (
        torch.randn(50, 1, generator=noise),
        MultivariateNormal(torch.zeros(50, 1), torch.eye(1)),
    )
    monitor = prerank.Monitor()
    monitor.update(dist, y)
    assert monitor.labels == tuple(prerank.diagnose(dist, y).pits)
    assert "location" not in monitor.labels


def test_differences_of_times_are_times(tmp_path):
    dist, y = stream(40)
    times = pd.timedelta_range("0h", periods=80, freq="6h")
    monitor = prerank.Monitor(preranks="marginal")
    monitor.update(dist, y, time=times[:40])
    monitor.save(tmp_path / "state")
    again = prerank.Monitor.load(tmp_path / "state")
    with pytest.raises(InputError, match="up to time 9 days 18:00:00 were added"):
        again.update(dist, y, time=times[39:79])
    again.update(dist, y, time=times[40:])
    assert again.rows == 80
