"""Functions of forecasts give the same for arrays of xarray, with the coordinates of their rows."""

import numpy as np
import pytest
import torch
import xarray as xr

import prerank
from named_fields import EVENT, LEADS, MEMBERS, STATIONS, TIMES, fields, plain, shuffled
from prerank import CalibrationHead, Ensemble
from prerank.diagnosis import GroupedDiagnosis, diagnose_by
from prerank.errors import InputError, PrerankError

NAMES = [f"{station}/{lead}" for station in STATIONS for lead in LEADS]
SAMPLES, Y = fields(0.6)
DIST, OBSERVED = (Ensemble(plain(SAMPLES, Y)[0]), plain(SAMPLES, Y)[1])

FORMS = {
    "as they are": lambda a: a,
    "another order": shuffled,
    "rows given": lambda a: a,
}


def findings(diagnosis):
    """Rows of the table without the names of components."""
    return [{**row, "component": None} for row in diagnosis.records()]


@pytest.mark.parametrize("form", FORMS)
def test_a_diagnosis_is_that_of_the_arrays(form):
    options = {"target": EVENT, "rows": "time" if form == "rows given" else None}
    found = prerank.diagnose(FORMS[form](SAMPLES), Y, member="number", **options)
    expected = prerank.diagnose(DIST, OBSERVED, units="K")
    assert findings(found) == findings(expected)
    assert found.pits.keys() == expected.pits.keys()
    assert all(torch.equal(z, expected.pits[label]) for label, z in found.pits.items())
    assert found.table.query("prerank == 'marginal'").component.tolist() == ["all", *NAMES]
    assert found.verdict().headline == expected.verdict().headline
    assert "Units: K." in found.verdict().points


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_divisors_of_the_targets(form):
    divisors = [1.0, 2.0, 1.0, 2.0, 1.0, 4.0]
    found = prerank.diagnose(SAMPLES, Y, target=EVENT, scale=form(divisors), preranks="scale")
    expected = prerank.diagnose(DIST, OBSERVED, units="K", scale=divisors, preranks="scale")
    assert findings(found) == findings(expected)


def test_the_true_forecast_is_cleared_and_a_narrow_one_is_not():
    right = prerank.diagnose(*fields(seed=1), target=EVENT)
    assert right.verdict().status != "bad"
    assert prerank.diagnose(SAMPLES, Y, target=EVENT).verdict().status == "bad"


def test_times_and_clusters_are_coordinates():
    options = {"preranks": "marginal+location"}
    found = prerank.diagnose(shuffled(SAMPLES), Y, target=EVENT, time="time", **options)
    times = Y.time.to_numpy()
    assert findings(found) == findings(prerank.diagnose(DIST, OBSERVED, time=times, **options))
    # Rows of one time are neighbours, wherever they stand.
    found = prerank.diagnose(SAMPLES, Y, target="lead", time="time", **options)
    dist, y = plain(SAMPLES, Y, rows=("time", "station"), target=("lead",))
    expected = prerank.diagnose(Ensemble(dist), y, time=times.repeat(len(STATIONS)), **options)
    assert findings(found) == findings(expected)
    week = Y.assign_coords(week=("time", np.arange(TIMES) // 7))
    found = prerank.diagnose(SAMPLES, week, target=EVENT, cluster="week", **options)
    expected = prerank.diagnose(DIST, OBSERVED, cluster=week.week.to_numpy(), **options)
    assert findings(found) == findings(expected)


def test_groups_are_coordinates_or_parts_of_dates():
    found = prerank.diagnose(
        SAMPLES, Y, target=EVENT, by="time.season", time="time", preranks="marginal"
    )
    assert isinstance(found, GroupedDiagnosis)
    season, time = Y.time.dt.season.to_numpy(), Y.time.to_numpy()
    expected = diagnose_by(DIST, OBSERVED, season, time=time, preranks="marginal")
    assert list(found.groups) == list(expected.groups) == ["DJF", "MAM", "JJA", "SON"]
    for name, one in found.groups.items():
        assert findings(one) == findings(expected.groups[name])
    by_station = prerank.diagnose(SAMPLES, Y, target="lead", by="station", preranks="marginal")
    assert list(by_station.groups) == STATIONS
    by_month = prerank.diagnose(
        SAMPLES[:, :40],
        Y[:40].assign_coords(month=("time", Y.time[:40].to_numpy().astype("M8[M]"))),
        **{"target": EVENT, "by": "month", "preranks": "location"},
    )
    assert list(by_month.groups) == ["2025-01-01", "2025-02-01", "2025-03-01", "2025-04-01"]


@pytest.mark.parametrize("form", ["as they are", "another order"])
def test_pits_have_the_coordinates_of_their_rows(form):
    found = prerank.pit(
        FORMS[form](SAMPLES), Y, "marginal+location+pca(2)", target="lead", generator=0
    )
    dist, y = plain(SAMPLES, Y, rows=("time", "station"), target=("lead",))
    expected = prerank.pit(Ensemble(dist), y, "marginal+location+pca(2)", generator=0)
    assert found.dims == ("time", "station", "component")
    assert found.component.to_numpy().tolist() == ["6", "12", "location", "pc1", "pc2"]
    np.testing.assert_array_equal(found.to_numpy().reshape(-1, 5), expected)
    xr.testing.assert_equal(found.time, Y.time.drop_vars([]))
    assert found.height.dims == ("station",)


def test_observations_in_another_order_give_the_same_ranks():
    """The randomised part of a PIT follows the order of rows, its rank does not."""

    def ranks(samples, y):
        z = prerank.pit(samples, y, "marginal", target=EVENT, generator=0)
        return np.floor(z * (MEMBERS + 1))

    moved = ranks(SAMPLES, shuffled(Y.expand_dims(number=1)).isel(number=0))
    assert moved.component.to_numpy().tolist()[:2] == ["Oslo/12", "Oslo/6"]
    expected = ranks(SAMPLES, Y).sortby("component").drop_vars("height", errors="ignore")
    xr.testing.assert_equal(moved.sortby(["time", "component"]), expected)


SCORES = {
    "energy_score": lambda *a, **k: prerank.energy_score(*a, estimator="nrg", **k),
    "variogram_score": prerank.variogram_score,
    "crps": prerank.crps,
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_have_the_coordinates_of_their_rows(name):
    found = SCORES[name](shuffled(SAMPLES), Y, member="number", target=EVENT)
    expected = SCORES[name](DIST, OBSERVED)
    assert found.name == name
    assert found.dims == (Y.dims if name == "crps" else ("time",))
    np.testing.assert_array_equal(found.to_numpy().reshape(expected.shape), expected)
    assert found.attrs.get("units") == (None if name == "variogram_score" else "K")
    xr.testing.assert_identical(found.time, Y.time.drop_vars([]))
    if name == "crps":
        assert found.lead.attrs == {"units": "hours"}


def test_the_comparison_is_that_of_the_arrays():
    other, _ = fields(seed=0)
    found = prerank.compare(SAMPLES, shuffled(other), Y, target=EVENT, preranks="marginal")
    expected = prerank.compare(
        DIST, Ensemble(plain(other, Y)[0]), OBSERVED, preranks="marginal", scale="none"
    )
    assert found.records() == expected.records()
    assert found.better_scoring == "b"


@pytest.fixture(scope="module")
def head():
    return prerank.calibrate(SAMPLES, Y, target=EVENT, time="time", preranks="marginal", strength=0)


def test_a_calibrated_forecast_looks_like_the_forecast(head):
    same = CalibrationHead("marginal", strength=0).fit(DIST, OBSERVED, time=Y.time.to_numpy())
    expected = same(DIST).samples.numpy()
    moved = shuffled(SAMPLES).astype(np.float32)
    new = head(moved)
    assert new.dims == moved.dims
    assert new.dtype == np.float32
    assert new.attrs == moved.attrs
    xr.testing.assert_identical(new.coords.to_dataset(), moved.coords.to_dataset())
    np.testing.assert_array_equal(plain(head(SAMPLES), Y)[0], expected)
    # An event is put together by its labels; single precision has 24 bits.
    np.testing.assert_allclose(plain(new.sel(Y.coords.to_dataset().indexes), Y)[0], expected, 1e-6)
    assert "widths of Bonn/6, Bonn/12" in head.report()


def test_a_head_keeps_its_dimensions(head, tmp_path):
    head.save(tmp_path / "head.safetensors")
    again = CalibrationHead.load(tmp_path / "head.safetensors")
    assert again.dimensions_ == head.dimensions_ == ("number", EVENT)
    xr.testing.assert_identical(again(SAMPLES), head(SAMPLES))


def test_variables_of_datasets_are_targets():
    samples = xr.Dataset({"t2m": SAMPLES, "u10": 2 * SAMPLES.astype(np.float32)})
    y = xr.Dataset({"u10": 2 * Y, "t2m": Y, "elevation": ("station", [60, 10, 20])})
    y["u10"].attrs["units"] = samples["u10"].attrs["units"] = "m s-1"
    samples["bounds"] = ("time", np.zeros(TIMES))
    scores = prerank.crps(samples, y, target="station")
    assert list(scores.data_vars) == ["t2m", "u10"]
    xr.testing.assert_allclose(scores["u10"], 2 * scores["t2m"], rtol=1e-4)
    assert (scores["t2m"].attrs["units"], scores["u10"].attrs["units"]) == ("K", "m s-1")
    table = prerank.diagnose(samples, y, target="station", preranks="marginal").table
    assert table.component[1:].tolist() == [f"{v}/{s}" for v in ("t2m", "u10") for s in STATIONS]
    head = prerank.calibrate(samples, y, target="station", preranks="marginal", strength=0)
    new = head(samples[["u10", "t2m", "bounds"]])
    assert list(new.data_vars) == ["u10", "t2m", "bounds"]
    assert (new.u10.dtype, new.t2m.dtype) == (np.float32, np.float64)
    assert new.u10.attrs == samples.u10.attrs
    assert float(new.t2m.std("number").mean() / SAMPLES.std("number").mean()) > 1.2
    # Without a target, the variables alone form an event.
    assert prerank.energy_score(samples, y).dims == ("time", "station", "lead")


BAD = {
    "names without dimensions": (
        lambda: prerank.diagnose(DIST, OBSERVED, member="number"),
        "member is a name in arrays of xarray",
    ),
    "groups without dimensions": (
        lambda: prerank.diagnose(DIST, OBSERVED, by=["a", "b"] * 60),
        "by is a name in arrays of xarray, and dist is none: use prerank.diagnosis.diagnose_by",
    ),
    "fit by names": (
        lambda: CalibrationHead().fit(DIST, OBSERVED, target="lead"),
        "target is a name in arrays of xarray",
    ),
    "y is an array": (
        lambda: prerank.energy_score(SAMPLES, OBSERVED),
        "y must be an xarray.DataArray or xarray.Dataset, as the others are",
    ),
    "one of two is an array": (
        lambda: prerank.compare(SAMPLES, DIST, Y),
        "dist_b must be an xarray.DataArray or xarray.Dataset",
    ),
    "head of arrays": (
        lambda: CalibrationHead("marginal", strength=0).fit(DIST, OBSERVED)(SAMPLES),
        "this head was not fitted to arrays of xarray",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()


def test_a_head_refuses_other_places(head):
    with pytest.raises(InputError, match=r"dist has 4 targets and this head 6; 2 are .*'Oslo/12'"):
        head(SAMPLES.isel(station=[0, 1]))
