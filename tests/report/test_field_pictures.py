"""Small multiples, maps of stations and reliability over time: what they draw and what they say."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import prerank
from named_fields import STATIONS, fields
from prerank import Ensemble
from prerank.calibration import histogram_band, pit_histogram
from prerank.diagnosis import diagnose_by
from prerank.errors import PrerankError
from prerank.report import HistogramGrid, PITHistogramDisplay, StationDisplay, TimelineDisplay
from report.test_histograms import overlaps

SAMPLES, Y = fields(times=400)
NARROW = SAMPLES.mean("number") + 0.5 * (SAMPLES - SAMPLES.mean("number"))


@pytest.fixture(scope="module")
def by_lead():
    return prerank.diagnose(NARROW, Y, target="station", by="lead", preranks="location+marginal")


def test_groups_are_drawn_as_histograms_with_bands(by_lead):
    grid = by_lead.plot()
    assert grid.axes_.shape == (1, 2)
    assert [ax.get_title() for ax in grid.axes_[0]] == ["6", "12"]
    for ax, one in zip(grid.axes_[0], by_lead.groups.values(), strict=True):
        [bars] = [patch for patch in ax.patches if hasattr(patch, "get_data")]
        expected = pit_histogram(one.pits["location"], bins=20).density[:, 0]
        np.testing.assert_array_equal(bars.get_data().values, expected)
        assert bars.get_fill()  # it leaves the band
        assert ax.texts[0].get_text() == "n = 400"
    assert grid.caption.startswith("location by lead: PITs crowded at both ends")
    assert grid.caption.endswith(" in 6 and 12.")
    assert overlaps(grid.figure_) == []


def test_components_are_rows(by_lead):
    grid = by_lead.histograms("marginal", bins=5)
    assert list(grid.rows) == STATIONS
    assert [title for title, _ in grid.panels[0]] == ["6", "12"]
    one = grid.rows["Oslo"]["12"]
    z = by_lead.groups["12"].pits["marginal"]
    np.testing.assert_array_equal(one.histogram.density, pit_histogram(z[:, 2:], bins=5).density)
    assert one.band == histogram_band(400, 5)
    assert overlaps(by_lead.plot(prerank="marginal").figure_) == []


def test_two_coordinates_are_rows_and_columns():
    found = prerank.diagnose(
        SAMPLES, Y, target="station", by=("lead", "time.season"), preranks="location+marginal"
    )
    assert list(found.groups)[:3] == ["6/DJF", "12/DJF", "6/MAM"]
    assert found.labels["12/JJA"] == ("12", "JJA")
    assert found.table.group.iloc[0] == "6/DJF"
    grid = found.histograms()
    assert list(grid.rows) == ["6", "12"]
    assert [title for title, _ in grid.panels[1]] == ["DJF", "MAM", "JJA", "SON"]
    assert grid.label == "location by lead (rows) and time.season (columns)"
    one = found.histograms("marginal", "Bonn")
    assert one.rows["12"]["MAM"].names == ("Bonn",)
    assert one.caption.startswith("marginal of Bonn by lead")
    with pytest.raises(PrerankError, match="name one with component=, such as 'Bonn'"):
        found.plot(prerank="marginal")
    with pytest.raises(PrerankError, match="component 'Rome' is none of marginal"):
        found.plot(prerank="marginal", component="Rome")
    with pytest.raises(PrerankError, match="'scale' was not diagnosed: there are 'location'"):
        found.plot(prerank="scale")


def test_combinations_without_rows_are_left_out():
    y = torch.randn(90, 1, generator=torch.Generator().manual_seed(0))
    dist = Ensemble(torch.randn(9, 90, 1, generator=torch.Generator().manual_seed(1)))
    groups = {"place": ["a"] * 60 + ["b"] * 30, "half": [1, 2] * 30 + [1] * 30}
    found = diagnose_by(dist, y, groups)
    assert list(found.groups) == ["a/1", "a/2", "b/1"]
    grid = found.plot()
    assert [[ax.axison for ax in line] for line in grid.axes_] == [[True, True], [True, False]]
    assert grid.axes_[0, 1].get_xlabel() == "PIT"
    assert "; " not in grid.caption
    assert plt.get_fignums() == [grid.figure_.number]


def test_dependent_rows_have_wider_bands():
    found = prerank.diagnose(
        SAMPLES, Y, target="lead", by="station", preranks="location", time="time"
    )
    for display in found.histograms().rows[""].values():
        assert display.band.upper > 0.8 * histogram_band(400, 20).upper
        assert display.band.coverage == 0.95


def test_a_long_row_is_broken():
    z = torch.rand(8, 50, 1, generator=torch.Generator().manual_seed(2))
    one = {
        f"lead {k}": PITHistogramDisplay.from_pits(part, label="scale") for k, part in enumerate(z)
    }
    grid = HistogramGrid({"": one}).plot(Figure(figsize=(8, 4), layout="constrained"))
    assert grid.axes_.shape == (2, 4)
    assert grid.axes_[1, 3].get_title() == "lead 7"
    with pytest.raises(PrerankError, match="one component each"):
        HistogramGrid({"": {"a": PITHistogramDisplay.from_pits(torch.rand(50, 2))}})


def test_weighted_samples_have_no_band():
    weights = torch.rand(9, 90)
    dist = Ensemble(torch.randn(9, 90, 1), weights)
    grid = diagnose_by(dist, torch.randn(90, 1), [0, 1] * 45).plot()
    assert grid.caption == "marginal: no band, since samples are weighted."


PLACES = pd.DataFrame(
    {"longitude": [7.1, 3.7, 10.8], "latitude": [50.7, 51.1, 59.9]}, index=STATIONS
)


def test_a_map_shows_each_station_at_its_place():
    oslo = NARROW.where(NARROW.station == "Oslo", SAMPLES)
    found = prerank.diagnose(oslo, Y, target="lead", by="station", preranks="location")
    table = found.table.query("component == 'all'").join(PLACES, on="group")
    shown = StationDisplay.from_table(table).plot()
    np.testing.assert_array_equal(shown.marks_.get_offsets()[0], PLACES.loc["Oslo"])
    assert shown.evidence.tolist() == [name == "Oslo" for name in table.group]
    assert shown.marks_.get_array()[0] == pytest.approx(table.excess.max())
    assert sorted(text.get_text() for text in shown.ax_.texts) == STATIONS
    assert shown.caption.endswith("; evidence at 1 of 3 stations: Oslo.")
    assert shown.ax_.get_aspect() == pytest.approx(1 / np.cos(np.deg2rad(55.3)))
    plain = StationDisplay([0, 1], [5, 6], [-0.01, 0.0], axes=("x", "y")).plot(Figure().subplots())
    assert plain.caption == "excess from -0.010 (0) to 0.000 (1)."
    assert plain.ax_.get_aspect() == "auto"


def test_p_values_are_corrected_over_the_stations():
    size = 10
    p = [0.01] + [0.5] * 9  # times ten
    shown = StationDisplay(range(size), range(size), [0.1] * size, p_values=p)
    assert not shown.evidence.any()


BAD_MAPS = {
    "lengths": (lambda: StationDisplay([1, 2], [1], [1, 2]), "y has shape"),
    "missing": (lambda: StationDisplay([1], [1], [np.nan]), "excess has missing"),
    "names": (lambda: StationDisplay([1], [1], [1], names=["a", "b"]), "2 names for 1 stations"),
    "several rows": (
        lambda: StationDisplay.from_table(
            pd.concat([PLACES, PLACES]).assign(excess=0.0, p_value=1.0)
        ),
        "several rows for a station",
    ),
    "column": (lambda: StationDisplay.from_table(PLACES), "table has no column 'excess'"),
}


@pytest.mark.parametrize("case", BAD_MAPS)
def test_bad_maps_are_named(case):
    call, words = BAD_MAPS[case]
    with pytest.raises(PrerankError, match=words):
        call()


def test_a_drift_is_seen_over_time():
    drifting = Y + xr_drift()
    found = prerank.diagnose(
        SAMPLES, drifting, target=("station", "lead"), preranks="location+marginal"
    )
    shown = found.over_time(Y.time, every="year").plot()
    assert shown.means.periods == ("2025", "2026", "2027", "2028")
    np.testing.assert_allclose(
        shown.lines_[0].get_ydata()[0],
        found.pits["location"][(Y.time.dt.year == 2025).to_numpy()].mean(),
    )
    assert shown.caption.startswith("location: mean PIT too large in 2027 and 2028; spread")
    assert len(shown.axes_) == 2
    several = found.over_time(Y.time, prerank="marginal", every="year")
    assert several.names[:2] == ("Bonn/6", "Bonn/12")
    alone = TimelineDisplay.from_pits(
        found.pits["location"], Y.time, every="year", label="location"
    )
    assert alone.caption == shown.caption
    wide = TimelineDisplay.from_pits(found.pits["location"], Y.time, every="year", dependent=True)
    assert bool((wide.means.reach > 0).all())


def xr_drift():
    """A bias of one in the last half of the rows."""
    return (Y.time >= Y.time[240]).astype(float)


def test_many_components_and_periods_stay_legible():
    z = torch.rand(600, 40, generator=torch.Generator().manual_seed(0))
    shown = TimelineDisplay.from_pits(z, range(600), every=10, label="marginal")
    assert len(shown.lines_) == 2 * 16
    assert overlaps(shown.figure_) == []
    assert len(shown.axes_[1].get_xticks()) <= 8
    with pytest.raises(PrerankError, match="2 names for 40 components"):
        TimelineDisplay(shown.means, names=["a", "b"])
