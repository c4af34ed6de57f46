"""Commands that read netCDF files by the names of their dimensions."""

import json

import numpy as np
import pytest
import xarray as xr

from cli.commands import call
from named_fields import EVENT, LEADS, STATIONS, TIMES, fields, shuffled
from prerank import diagnose

SAMPLES, Y = fields(0.6)
NAMES = [f"t2m/{station}/{lead}" for station in STATIONS for lead in LEADS]
NAMED = ("--member", "number", "--target", "station,lead", "--preranks", "marginal+location")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields")
    observed = Y.to_dataset().assign(
        elevation=("station", [60.0, 10.0, 20.0]), regime=("time", np.arange(TIMES) // 60)
    )
    for name, dataset in {"fc": shuffled(SAMPLES).to_dataset(), "obs": observed}.items():
        dataset.to_netcdf(folder / f"{name}.nc", engine="h5netcdf")
    return folder


def command(name, folder, *words):
    files = ("--samples", folder / "fc.nc", "--observations", folder / "obs.nc")
    return call(name, *files, *NAMED, *words)


def record(*words):
    done = command(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_answer_is_that_of_python(files):
    found = record("diagnose", files, "--time", "time")
    data = [xr.Dataset({"t2m": array}) for array in (SAMPLES, Y)]
    expected = diagnose(*data, target=EVENT, time="time", preranks="marginal+location")
    for name in ("pce", "p_value", "component"):
        assert [row[name] for row in found["findings"]] == expected.table[name].tolist()
    assert [row["component"] for row in found["findings"]][:7] == ["all", *NAMES]
    assert found["n"] == TIMES
    assert found["verdict"]["headline"] == expected.verdict().headline


@pytest.mark.parametrize(
    ("by", "groups"), [("time.season", ["DJF", "MAM", "JJA", "SON"]), ("regime", ["0", "1"])]
)
def test_groups_are_parts_of_dates_or_variables(files, by, groups):
    found = record("diagnose", files, "--by", by)
    assert list(found["groups"]) == groups


def test_targets_may_be_chosen(files):
    found = record("diagnose", files, "--targets", "t2m/Oslo/6,t2m/Bonn/12")
    assert [row["component"] for row in found["findings"]][:3] == [
        "all",
        "t2m/Oslo/6",
        "t2m/Bonn/12",
    ]
    whole = record("diagnose", files, "--targets", "t2m")
    assert [row["component"] for row in whole["findings"]][1:7] == NAMES


def test_what_does_not_match_is_said(files, tmp_path):
    later = xr.open_dataset(files / "obs.nc", engine="h5netcdf", decode_timedelta=False)
    later = later.isel(time=slice(20, None))
    later = later.assign_coords(station=["Bonn", "Gent", "Oslo"])
    later.to_netcdf(tmp_path / "later.nc", engine="h5netcdf")
    remarks = json.loads(
        call(
            "diagnose",
            *("--samples", files / "fc.nc", "--observations", tmp_path / "later.nc"),
            *(*NAMED, "--json"),
        ).stdout
    )["remarks"]
    assert "20 of 120 forecasts have no observation and were left out" in remarks
    assert (
        "samples without a column in later.nc were not judged: t2m/Ghent/12, t2m/Ghent/6" in remarks
    )
    assert any("t2m/Gent/6" in remark for remark in remarks)


def test_two_forecasts_are_compared(files, tmp_path):
    fields(1.0)[0].to_dataset().to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    found = record("compare", files, "--versus", tmp_path / "other.nc")
    assert found["targets"] == NAMES
    assert found["better_scoring"] == "other.nc"


def test_a_calibrated_file_has_the_layout_of_the_forecast(files, tmp_path):
    new = tmp_path / "new.nc"
    words = ("--time", "time", "--apply", files / "fc.nc", "--out", new)
    done = call(
        "calibrate",
        *("--samples", files / "fc.nc", "--observations", files / "obs.nc", *words),
        *("--member", "number", "--target", "station,lead", "--preranks", "marginal"),
    )
    assert done.exit_code == 0, done.stderr
    following = f"diagnose --samples {new} --observations OBSERVED.nc --target station,lead"
    assert done.stdout.splitlines()[-1] == f"Next: prerank {following}"
    with xr.open_dataset(new, engine="h5netcdf", decode_timedelta=False) as written:
        before = shuffled(SAMPLES)
        assert written["t2m"].dims == before.dims
        assert written["t2m"].attrs == {"units": "K"}
        xr.testing.assert_equal(written.coords.to_dataset(), before.coords.to_dataset())
        wider = written["t2m"].std("number").mean("time") / before.std("number").mean("time")
    assert ((wider > 1.2) & (wider < 2.2)).all()


REFUSED = {
    "unknown dimension": (
        ("fc.nc", "obs.nc", "--target", "leed"),
        "target (--target): no dimension leed; did you mean lead?",
    ),
    "a table": (
        ("s.csv", "obs.nc", "--target", "lead"),
        "target (--target) names dimensions of netCDF files and zarr stores",
    ),
    "missing values": (
        ("gaps.nc", "obs.nc", "--target", "station"),
        "1 of 10800 values are missing, NaN or infinite, the first in sample 3, counted from 0, of "
        "'t2m/Ghent' for time=2025-01-04 00:00:00, lead=6",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(files, case):
    (samples, observations, *words), message = REFUSED[case]
    (files / "s.csv").write_text("row,t2m_0,t2m_1\n0,1,2\n")
    gaps = SAMPLES.copy()
    gaps.loc[{"number": 3, "time": "2025-01-04", "station": "Ghent", "lead": 6}] = np.nan
    gaps.to_netcdf(files / "gaps.nc", engine="h5netcdf")
    done = call(
        "diagnose", "--samples", files / samples, "--observations", files / observations, *words
    )
    assert done.exit_code == 1
    assert message in done.stderr.replace("\n", " ")
