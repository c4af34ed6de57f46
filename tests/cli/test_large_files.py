"""netCDF files and zarr stores larger than what is read at once are diagnosed in blocks."""

import json
import os
import subprocess
import sys
import warnings
from importlib import import_module

import numpy as np
import pytest
import xarray as xr

from adapters.judging import load
from cli.commands import SETTINGS, call
from named_fields import EVENT, MEMBERS, TIMES, fields, shuffled
from prerank import diagnose
from prerank.adapters.named_forecasts import NamedForecast
from prerank.diagnosis import measurement
from prerank.files import grid_pairs
from prerank.files.netcdf import open_grid

da = load("dask.array")
load("zarr")

SAMPLES, Y = fields(0.6, dtype=np.float32)
LATER = Y.isel(time=slice(7, None)).to_dataset().assign(week=("time", np.arange(TIMES - 7) // 7))
NAMED = ("--member", "number", "--target", "station,lead", "--preranks", "marginal+scale")
KINDS = ("zarr", "nc")


def written(dataset, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # format 2 has text, too
        if path.suffix == ".zarr":
            dataset.to_zarr(path, zarr_format=2, consolidated=False, **options)
        else:
            dataset.to_netcdf(path, engine="h5netcdf", **options)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of both formats; the forecast has rows without observations, in another order."""
    place = tmp_path_factory.mktemp("files")
    for kind in KINDS:
        written(shuffled(SAMPLES).chunk(time=17).to_dataset(), place / f"fc.{kind}")
        written(LATER, place / f"obs.{kind}")
    return place


@pytest.fixture
def large(monkeypatch):
    """Files of any size are large, and blocks have 20 rows."""
    slices, block = NamedForecast.slices, 20 * MEMBERS * 6
    monkeypatch.setattr(NamedForecast, "slices", lambda self, values=block: slices(self, values))

    def switch():
        for module in (grid_pairs, measurement, import_module("prerank.cli.diagnose")):
            monkeypatch.setattr(module, "MANY_VALUES", 100)

    return switch


def record(folder, kind, *words):
    files = ("--samples", folder / f"fc.{kind}", "--observations", folder / f"obs.{kind}")
    done = call("diagnose", *files, *NAMED, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [(), ("--time", "time"), ("--cluster", "week")], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_that_of_the_whole_file_and_of_python(kind, words, folder, large):
    """PITs are uniform within ranks at random, so errors of 15 members differ by less than 1/16."""
    whole = record(folder, kind, *words)
    large()
    found = record(folder, kind, *words)
    assert {name: whole[name] for name in ("n", "skipped", "remarks")} == {
        name: found[name] for name in ("n", "skipped", "remarks")
    }
    assert "7 of 120 forecasts have no observation and were left out" in found["remarks"]
    assert found.get("rows") == whole.get("rows")
    for one, other in zip(found["findings"], whole["findings"], strict=True):
        assert one["component"] == other["component"]
        assert abs(one["pce"] - other["pce"]) < 1 / (MEMBERS + 1)
    python = {name.strip("-"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    with open_grid(folder / f"fc.{kind}") as samples:
        known = samples.sel(time=LATER.time)
        expected = diagnose(known, LATER, target=EVENT, preranks="marginal+scale", **python)
    assert [row["p_value"] for row in found["findings"]] == expected.table.p_value.tolist()
    assert [row["pce"] for row in found["findings"]] == expected.table.pce.tolist()


@pytest.mark.parametrize(
    "words", [("--by", "time.season"), ("--targets", "t2m/Oslo/6,t2m/Bonn/12")], ids=str
)
def test_what_needs_all_rows_is_said(words, folder, large):
    whole = record(folder, "zarr", *words)
    large()
    found = record(folder, "zarr", *words)
    assert found["findings"] == whole["findings"]
    assert [one for one in found["remarks"] if one not in whole["remarks"]] == [
        f"all {MEMBERS * (TIMES - 7) * (2 if 'targets' in words[0] else 6):,} values of the "
        "samples were read into memory: netCDF files and zarr stores are read in blocks without "
        "--by, --inputs and --scale, where whole variables and dimensions are matched"
    ]


def test_targets_and_places_that_only_one_file_has_are_left_out(folder, large, tmp_path):
    more = LATER.isel(station=[2, 0]).assign(rain=LATER["t2m"], height=("station", [1.0, 2.0]))
    files = ("--samples", folder / "fc.nc", "--observations", written(more, tmp_path / "obs.nc"))
    words = ("diagnose", *files, *NAMED, "--json")
    whole = json.loads(call(*words).stdout)
    large()
    page = tmp_path / "page.html"
    found = json.loads(call(*words, "--out", page).stdout)
    assert "15 of each of 113 rows and 4 targets" in page.read_text(encoding="utf-8")
    assert found["remarks"] == whole["remarks"]
    assert len(found["remarks"]) == 4
    names = [row["component"] for row in found["findings"]]
    assert names == [row["component"] for row in whole["findings"]]
    assert names[1:5] == ["t2m/Oslo/6", "t2m/Oslo/12", "t2m/Bonn/6", "t2m/Bonn/12"]


def test_missing_values_are_refused_or_left_out(folder, large, tmp_path):
    there = (LATER.time != LATER.time[50]) | (LATER.station != "Bonn")
    gaps = LATER["t2m"].where(there).to_dataset()
    path = written(gaps, tmp_path / "gaps.nc")
    words = ("diagnose", "--samples", folder / "fc.nc", "--observations", path, *NAMED, "--json")
    large()
    done = call(*words)
    assert done.exit_code == 1
    assert f"{folder / 'fc.nc'} (dist) and {path} (y): y has 2 missing" in done.stderr
    assert "--missing available" in done.stderr
    done = call(*words, "--missing", "available")
    used = {row["component"]: row["n"] for row in json.loads(done.stdout)["findings"][:7]}
    assert (used["all"], used["t2m/Bonn/6"], used["t2m/Oslo/6"]) == (113, 112, 113)


EVENTS = ("--target", "station,lead")
WEEK = ("time", np.arange(TIMES) // 7)
ODD = {
    "half precision": (lambda fc: fc.astype(np.float16), lambda y: y.astype(np.float16), ()),
    "clusters beside samples": (
        lambda fc: fc.assign(week=WEEK).isel(time=slice(None, None, -1)),
        lambda y: y,
        (*EVENTS, "--cluster", "week"),
    ),
    "one event": (lambda fc: fc, lambda y: y, ("--target", "time,station,lead")),
    "variables without members": (
        lambda fc: fc.assign(area=("station", [1.0, 2.0, 3.0])),
        lambda y: y.assign(area=("station", [1.0, 2.0, 3.0])),
        (),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_have_the_answer_of_whole_ones(name, large, tmp_path):
    forecast, observe, words = ODD[name]
    samples = written(forecast(SAMPLES.to_dataset()), tmp_path / "fc.nc")
    truth = written(observe(Y.to_dataset()), tmp_path / "obs.nc")
    files = ("--samples", samples, "--observations", truth)
    words = ("diagnose", *files, *(words or EVENTS), "--preranks", "marginal+scale", "--json")
    whole = call(*words)
    assert whole.exit_code == 0, whole.stderr
    large()
    done = call(*words)
    assert done.exit_code == 0, done.stderr
    found, expected = (json.loads(one.stdout) for one in (done, whole))
    assert (found["n"], found.get("rows")) == (expected["n"], expected.get("rows"))
    for one, other in zip(found["findings"], expected["findings"], strict=True):
        assert one["component"] == other["component"]
        assert abs(one["pce"] - other["pce"]) < 1 / (MEMBERS + 1)


@pytest.mark.parametrize("file", ["fc", "obs"])
def test_an_empty_dimension_is_named(file, folder, large, tmp_path):
    whole = {"fc": SAMPLES.to_dataset(), "obs": Y.to_dataset()}
    whole[file] = whole[file].isel(time=[])
    paths = [written(data, tmp_path / f"{name}.nc") for name, data in whole.items()]
    large()
    done = call("diagnose", "--samples", paths[0], "--observations", paths[1], *NAMED)
    shape = {"fc": f"({MEMBERS}, 0)", "obs": "(0,)"}[file]
    assert done.exit_code == 1
    assert done.stderr == (
        f"Error: {tmp_path / file}.nc: variable 't2m/Bonn/6' is empty: its shape is {shape}\n"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_damage_that_shows_when_values_are_read_names_the_file(kind, folder, large, tmp_path):
    path = tmp_path / f"fc.{kind}"
    packed = {"nc": {"zlib": True, "chunksizes": SAMPLES.shape}}.get(kind, {})
    written(SAMPLES.to_dataset(), path, encoding={"t2m": packed})
    file = max((path, *path.rglob("*")), key=lambda one: one.stat().st_size)
    values = file.read_bytes()
    middle = len(values) // 2
    rest = b"" if kind == "zarr" else bytes(4000) + values[middle + 4000 :]  # of a chunk
    file.write_bytes(values[:middle] + rest)
    large()
    done = call("diagnose", "--samples", path, "--observations", folder / "obs.nc", *NAMED)
    assert done.exit_code == 1
    kinds = {"zarr": "zarr store", "nc": "netCDF file"}
    assert done.stderr.startswith(f"Error: {path}: not a {kinds[kind]} that can be read: ")


def test_rows_are_read_by_the_longest_dimension_if_places_of_the_first_are_large(
    folder, large, monkeypatch, tmp_path
):
    first = LATER.transpose("lead", "station", "time")
    files = ("--samples", folder / "fc.nc", "--observations", written(first, tmp_path / "o.nc"))
    words = ("diagnose", *files, "--target", "station", "--preranks", "location", "--json")
    large()
    sizes, at = [], NamedForecast.at
    monkeypatch.setattr(
        NamedForecast, "at", lambda self, places: sizes.append(places) or at(self, places)
    )
    findings = []
    for most in (grid_pairs._AT_ONCE, 100):
        monkeypatch.setattr(grid_pairs, "_AT_ONCE", most)
        findings.append(json.loads(call(*words).stdout)["findings"][0])
    assert slice(1, 2) in sizes
    assert {places.stop for places in sizes} >= {20, 40, 60, 80, 100, TIMES - 7}
    assert abs(findings[0]["pce"] - findings[1]["pce"]) < 1 / (MEMBERS + 1)


PEAK = """
import sys
from prerank.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def stored(path, block, times):
    """A file with a block of rows so many times, which packs well."""
    axes = ["number", "time", "station"][-block.ndim :]
    values = da.concatenate([da.from_array(block)] * times, axis=block.ndim - 2)
    dataset = xr.DataArray(values, dims=axes).to_dataset(name="t")
    if path.suffix == ".zarr":
        dataset.to_zarr(path, zarr_format=2, consolidated=False)
    else:
        packed = {"zlib": True, "complevel": 1, "chunksizes": block.shape}
        dataset.to_netcdf(path, engine="h5netcdf", encoding={"t": packed})


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no file says the peak")
@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_does_not_grow_with_the_file(kind, tmp_path):
    """960 MB of float32, which would be 1.9 GB in memory, take 320 MB more than a small file."""
    pool = np.random.default_rng(0).normal(size=(51, 50, 8)).astype(np.float32)
    block = np.tile(pool, (1, 40, 1))
    peaks = []
    for times in (1, 300):
        names = [tmp_path / f"{name}{times}.{kind}" for name in ("fc", "obs")]
        for path, values in zip(names, (block[1:], block[0]), strict=True):
            stored(path, values, times)
        words = ["--samples", names[0], "--observations", names[1], "--target", "station"]
        done = subprocess.run(
            [sys.executable, "-c", PEAK, "diagnose", *map(str, words), "--preranks", "marginal"],
            env=os.environ | SETTINGS,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "marginal fails" in done.stdout  # 50 rows that are repeated
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 320, peaks
