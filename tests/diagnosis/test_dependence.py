"""diagnose(time=, cluster=): verdicts of series, remarks and groups."""

from html import unescape

import pytest
import torch
from torch.distributions import MultivariateNormal

import prerank
from calibration.test_dependent_rows import series
from prerank.calibration import histogram_band
from prerank.diagnosis import diagnose_by
from prerank.errors import InputError

N = 500
DIST = MultivariateNormal(torch.zeros(N, 2, dtype=torch.float64), torch.eye(2).double())
FEW = "marginal+location"


def test_a_false_alarm_of_independent_rows_is_none_in_time_order():
    """Of 20 series, some fail as independent rows; in time order at most 4 do (P = .003)."""
    alone, ordered = [], []
    for seed in range(20):
        y = series(0.7, seed, (N, 2))
        alone.append(prerank.diagnose(DIST, y, preranks=FEW))
        ordered.append(prerank.diagnose(DIST, y, preranks=FEW, time=range(N)))
    assert sum(one.verdict().status == "bad" for one in alone) >= 5
    assert sum(one.verdict().status == "bad" for one in ordered) <= 4
    assert all("PITs of neighbouring rows are correlated" in one.remarks[-1] for one in alone)
    assert not any(one.remarks for one in ordered)
    one = ordered[0]
    points = " ".join(one.verdict().points)
    assert "Assumed: rows in time order, 500 times, 16 degrees of freedom." in points
    assert "Errors of consecutive forecasts are correlated" in points
    assert set(one.table.method) == {"closed form, time order"}
    assert one.table.floor[0] > alone[0].table.floor[0]
    band, usual = (found.displays()[0].band for found in (one, alone[0]))
    assert bool((band.upper >= usual.upper).all())


def test_independent_rows_have_no_remark_and_a_bias_is_found():
    y = series(0.0, 0, (N, 2))
    assert prerank.diagnose(DIST, y, preranks=FEW).serial is None
    verdict = prerank.diagnose(DIST, y + 0.4, preranks=FEW, time=range(N)).verdict()
    assert verdict.status == "bad"
    assert "observed values higher than predicted in every target" in verdict.headline
    clusters = [k // 10 for k in range(N)]
    found = prerank.diagnose(DIST, y + 0.4, preranks=FEW, cluster=clusters)
    assert found.verdict().status == "bad"
    assert found.dependence.count == 50


def test_groups_keep_their_times():
    y = series(0.6, 1, (N, 2))
    halves = ["first"] * 250 + ["second"] * 250
    found = diagnose_by(DIST, y, halves, preranks="marginal", time=range(N))
    assert [one.dependence.count for one in found.groups.values()] == [250, 250]
    assert found.overall.serial is not None
    with pytest.raises(InputError, match="time has 5 different values in group 'last'"):
        diagnose_by(DIST, y, ["rest"] * 495 + ["last"] * 5, preranks="marginal", time=range(N))


def test_a_page_of_a_series(tmp_path):
    one = prerank.diagnose(DIST, series(0.6, 2, (N, 2)), preranks="marginal", time=range(N))
    text = one.to_html(tmp_path / "report.html").read_text()
    assert "rows in time order" in text
    [bars] = one.histograms()
    independent = histogram_band(N, bars.band.bins)
    assert bars.band.upper > independent.upper
    assert bars.band.lower < independent.lower
    assert bars.caption in unescape(text)


def test_members_of_a_stack_have_their_own_correlation():
    y = series(0.7, 0, (N, 2))
    means = torch.stack([torch.zeros(N, 2, dtype=torch.float64), 0.7 * y.roll(1, 0)])
    covariances = torch.stack([torch.eye(2), 0.51 * torch.eye(2)]).double().unsqueeze(1)
    stack = MultivariateNormal(means, covariances.expand(2, N, 2, 2))
    found = prerank.diagnose(stack, y, preranks=FEW)
    first, second = (found.verdict(model=m).advice for m in (0, 1))
    assert any("PITs of neighbouring rows are correlated" in line for line in first)
    assert not any("correlated" in line for line in second)
    ordered = prerank.diagnose(stack, y, preranks=FEW, time=range(N))
    first, second = (" ".join(ordered.verdict(model=m).points) for m in (0, 1))
    assert "could be improved by using the last observation" in first
    assert "consecutive" not in second
