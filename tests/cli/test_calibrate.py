"""`prerank calibrate`: a fault that was put in is gone, and nothing else has changed."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from torch.distributions import MultivariateNormal

import prerank
from cli.commands import Reader, call, contents, record, refused, said, small_files
from pictures import leave_blank
from prerank.calibration import null_pce
from prerank.cli.calibration_outcome import _write
from prerank.errors import InputError
from prerank.files import write_atomically

N, N_NEW, SAMPLES = 500, 2000, 12
TARGETS = ["rain", "wind"]
UNITS = np.array([1.0, 100.0])
CAL = ("--samples", "cal.csv", "--observations", "observed.csv")
TO = ("--apply", "new.csv", "--out", "out.csv")


def season(n, seed, width, first=0, samples=SAMPLES):
    """Samples `(S, N, 2)` of a width that is 1 where it is right, and observations."""
    random = np.random.default_rng(seed)
    centre = random.normal(size=(n, 2))
    observed = centre + random.normal(size=(n, 2))
    values = centre + width * random.normal(size=(samples, n, 2))
    table = pd.DataFrame(observed * UNITS, columns=TARGETS)
    table.insert(0, "day", np.arange(first, first + n))
    return values * UNITS, table


def long_table(values, days):
    table = pd.DataFrame(values.reshape(-1, 2), columns=TARGETS)
    table.insert(0, "member", np.repeat(np.arange(len(values)), len(days)))
    table.insert(0, "day", np.tile(days, len(values)))
    return table


@pytest.fixture(scope="module")
def repaired(tmp_path_factory):
    """Forecasts that are too narrow, and what the command printed on them, and where."""
    folder = tmp_path_factory.mktemp("repaired")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        leave_blank(patch)
        values, observed = season(N, 0, 0.7)
        long_table(values, observed.day).to_csv("cal.csv", index=False)
        observed.to_csv("observed.csv", index=False)
        values, later = season(N_NEW, 1, 0.7, first=N)
        new = long_table(values, later.day).assign(station="007", note="a, b")
        new.sample(frac=1, random_state=0).to_csv("new.csv", index=False)
        later.to_csv("later.csv", index=False)
        files = ("--save-head", "head.safetensors", "--report", "page/report.html")
        return call("calibrate", *CAL, *TO, *files, "--held-out", "0.4"), folder


def margins(samples, observed):
    """PCE of the margins."""
    found = prerank.files.read_forecasts(samples, observed, targets=TARGETS)
    dist = prerank.Ensemble(found.samples)
    return float(prerank.pce(prerank.pit(dist, found.observations, "marginal", generator=0)).mean())


def test_the_fault_is_gone(repaired):
    """In forecasts whose observations the command has not seen.

    A width that is wrong by a share e has a PCE of e / (2 pi). The width of 2 N numbers has the
    standard error 1 / sqrt(4 N), and the mean over both margins is no larger than each by chance.
    """
    _, folder = repaired
    before = margins(folder / "new.csv", folder / "later.csv")
    after = margins(folder / "out.csv", folder / "later.csv")
    chance = float(np.quantile(null_pce(N_NEW), 0.999))
    assert after < chance + 3 / math.sqrt(4 * N) / (2 * math.pi) < before


def test_all_else_is_as_it_was(repaired):
    """Order of rows and columns, keys, and text that looks like a number."""
    _, folder = repaired
    old, new = (pd.read_csv(folder / name, dtype=str) for name in ("new.csv", "out.csv"))
    assert (old.station == "007").all()
    pd.testing.assert_frame_equal(new.drop(columns=TARGETS), old.drop(columns=TARGETS))
    assert list(new) == list(old)
    assert (new[TARGETS] != old[TARGETS]).all(axis=None)


def test_the_report(repaired):
    done, folder = repaired
    words = said(done)
    lines = done.stdout.splitlines()
    for line in (
        "Note: forecasts and observations were matched by day, which both files have.",
        "Calibrated by 300 rows, judged on 200 that were held out.",
        "Units: each target divided by the standard deviation of its observations.",
        "2,000 forecasts of 12 samples, calibrated by all 500 rows: out.csv",
        "Calibration: head.safetensors",
        "Page: page/report.html",
        "Next: prerank diagnose --samples out.csv --observations OBSERVED.csv",
    ):
        assert line in lines
    assert "Before: Slightly miscalibrated: predictions too narrow" in words
    assert "After: Too few rows to tell: no evidence of miscalibration on 200 of them." in words
    assert "Changed: widths of rain and wind by 1." in words
    assert "Skipped hdr: hdr needs a density, which samples alone do not have" in words
    table = [line.split("│") for line in lines if line.startswith("│")]
    excess = {row[1].strip(): (float(row[2]), float(row[3])) for row in table}
    assert list(excess) == ["marginal", "location", "scale", "pca", "copula"]
    assert all(after < before for before, after in excess.values())
    page = Reader(folder / "page/report.html")
    assert "Before and after calibration" in page.text
    assert "Energy score: " in page.text
    assert "Changed: widths of rain and wind by 1." in page.text
    assert page.headline in words
    made = {"out.csv", "head.safetensors", "page", "page/report.html"}
    given = {"cal.csv", "observed.csv", "new.csv", "later.csv"}
    assert set(contents(folder)) == made | given


def test_without_new_samples_there_is_a_report_for_scripts(repaired, monkeypatch):
    """Of the last rows here, which are as many as those at random."""
    _, folder = repaired
    monkeypatch.chdir(folder)
    before = contents(folder)
    told = record(call("calibrate", *CAL, "--time", "day", "--preranks", "marginal", "--json"))
    assert contents(folder) == before
    assert told["rows"] == {"fitted": 400, "held_out": 100}
    assert told["changed"]
    assert told["change"][0].startswith("widths of rain and wind by 1.")
    assert told["before"]["n"] == told["after"]["n"] == 100
    energy = told["energy_score"]
    assert energy["after"] < energy["before"] - 2 * energy["standard_error"]
    excess = [told[name]["findings"][0]["excess"] for name in ("before", "after")]
    assert excess[1] < excess[0]
    last = read_last(folder, 100)
    assert told["before"]["findings"][0]["pce"] == pytest.approx(last, abs=1e-9)


def read_last(folder, count):
    """PCE of the margins of the last rows of the calibration file."""
    found = prerank.files.read_forecasts(folder / "cal.csv", folder / "observed.csv")
    y = found.observations[-count:]
    spread = found.observations.std(axis=0)
    dist = prerank.Ensemble(found.samples[:, -count:] / spread)
    return prerank.diagnose(dist, y / spread, preranks="marginal").findings[0].pce


def test_a_calibrated_forecast_stays_as_it_is(place):
    """Rows come first in both files; of the second one, only the first file tells."""
    values, observed = season(150, 0, 1.0, samples=12)
    np.save("cal.npy", values.swapaxes(0, 1))
    np.save("y.npy", observed[TARGETS].to_numpy())
    np.save("new.npy", values[:, :30].swapaxes(0, 1).astype(np.float32))
    given = ("--samples", "cal.npy", "--observations", "y.npy", "--apply", "new.npy")
    words = said(call("calibrate", *given, "--out", "out.npy", "--preranks", "marginal"))
    assert "Nothing was changed: the calibration rows do not support any change." in words
    assert "30 forecasts of 12 samples, calibrated by all 150 rows: out.npy" in words
    assert (place / "out.npy").read_bytes() == (place / "new.npy").read_bytes()


# Formats: a stored calibration takes no time


def wide_table(values):
    columns = {f"{t}_{s}": v[:, d] for d, t in enumerate(TARGETS) for s, v in enumerate(values)}
    return pd.DataFrame({"day": range(values.shape[1]), **columns})


def grid(values):
    dims = ("day", "number")
    coordinates = {"day": pd.date_range("2024-01-01", periods=values.shape[1]), "height": 2.0}
    variables = {t: (dims, values[..., d].T) for d, t in enumerate(TARGETS)}
    data = xr.Dataset(variables, coordinates, {"source": "model 7"})
    data.rain.attrs["units"] = "mm"
    return data


def write_new(values):
    """The same samples in all formats, and options that are needed."""
    long_table(values, np.arange(values.shape[1])).to_parquet("long.parquet")
    wide_table(values).assign(sun=1.0).to_parquet("wide.parquet", index=False)
    wide_table(values).to_csv("wide.csv", sep=";", index=False)
    np.save("first.npy", values)
    np.save("rows_first.npy", values.swapaxes(0, 1))
    np.savez("named.npz", samples=values[..., ::-1], targets=TARGETS[::-1], key_day=range(9))
    grid(values).to_netcdf("grid.nc", engine="h5netcdf")


FORMATS = [
    ("long.parquet", "a.parquet", ()),
    ("long.parquet", "b.npz", ()),
    ("wide.parquet", "c.parquet", ()),
    ("wide.csv", "d.tsv", ()),
    ("first.npy", "first_again.npy", ()),
    ("rows_first.npy", "e.npy", ("--sample-axis", "1")),
    ("rows_first.npy", "f.csv", ("--sample-axis", "1")),
    ("named.npz", "g.npz", ()),
    ("grid.nc", "h.nc", ()),
    ("grid.nc", "i.parquet", ()),
]


def test_formats(repaired, place):
    """Each gives the samples that Python gives, and the same layout where that is possible."""
    values, observed = season(9, 3, 0.7, samples=6)
    write_new(values)
    observed[TARGETS].to_csv("y.csv", index=False)
    stored = repaired[1] / "head.safetensors"
    expected = prerank.CalibrationHead.load(stored)(prerank.Ensemble(values)).samples
    for new, out, options in FORMATS:
        given = ("calibrate", "--head", stored, "--apply", new, "--out", out, *options)
        words = said(call(*given))
        assert "9 forecasts of 6 samples: " in words
        axis = {"sample_axis": 1} if out == "e.npy" else {}
        found = prerank.files.read_samples(out, TARGETS, **axis)
        np.testing.assert_allclose(found.values, expected, rtol=1e-12, err_msg=out)
        assert ("Note: the sample axis was taken to be 0." in words) == (new == "first.npy")
        kept = new.partition(".")[2] == out.partition(".")[2] or out == "d.tsv"
        assert kept == ("was not kept" not in words), out
    quiet = ("--head", stored, "--apply", "grid.nc", "--out", "h.nc", "--quiet")
    assert said(call("calibrate", *quiet)) == ""  # and what was there is replaced
    assert list(pd.read_parquet("c.parquet")) == list(pd.read_parquet("wide.parquet"))
    assert np.load("e.npy").shape == (9, 6, 2)
    np.testing.assert_array_equal(np.load("g.npz")["targets"], TARGETS[::-1])
    with xr.open_dataset("h.nc") as data:
        assert data.attrs == {"source": "model 7"}
        assert data.rain.attrs == {"units": "mm"}
        assert data.rain.dims == ("day", "number")
        assert float(data.height) == 2.0
    assert pd.read_parquet("i.parquet").day.min() == pd.Timestamp("2024-01-01")


# What is refused


@pytest.fixture
def files(place):
    """Sixty rows, and files that do not fit to them."""
    values, observed = season(60, 0, 0.7, samples=5)
    new = long_table(values, observed.day)
    for name in ("cal.csv", "new.csv"):
        new.to_csv(name, index=False)
    observed.to_csv("observed.csv", index=False)
    observed.assign(day=observed.day + 1000).to_csv("elsewhen.csv", index=False)
    observed[:24].to_csv("few.csv", index=False)
    observed.assign(when="31.12.2024").to_csv("dated.csv", index=False)
    new.rename(columns={"wind": "gust"}).to_csv("renamed.csv", index=False)
    new.assign(rain=new.rain.where(new.index > 3)).to_csv("gaps.csv", index=False)
    new[1:].to_csv("uneven.csv", index=False)
    new[["member", *TARGETS]].to_csv("keyless.csv", index=False)
    new[["day", *TARGETS]].to_csv("unnumbered.csv", index=False)
    np.save("three.npy", np.zeros((5, 60, 3)))
    (place / "broken.npz").write_bytes(b"PK")
    (place / "head.safetensors").write_bytes(b"no head")
    mixture = MultivariateNormal(torch.zeros(30, 2), torch.eye(2))
    head = prerank.CalibrationHead("marginal", strength=0).fit(mixture, observed[TARGETS][:30])
    head.save("mixture.safetensors")
    return place


REFUSED = {
    "no common rows": ((*CAL[:3], "elsewhen.csv"), "no forecast belongs to a row of elsewhen.csv"),
    "few rows": ((*CAL[:3], "few.csv"), "24 rows are too few to calibrate by 19 and judge on 5"),
    "times": ((*CAL[:3], "dated.csv", "--time", "when"), "such as '31.12.2024', must be numbers"),
    "no time": ((*CAL, "--time", "hour"), "no column 'hour'"),
    "no prerank": ((*CAL, "--preranks", "hdr"), "hdr needs a density"),
    "targets": (
        (*CAL, "--apply", "renamed.csv", *TO[2:]),
        "renamed.csv: no samples of wind: the targets are rain, wind, and this file has day, rain, "
        "gust; name them alike, or choose others with targets (--targets)",
    ),
    "missing": ((*CAL, "--apply", "none.csv", *TO[2:]), "none.csv: cannot be read: No such file"),
    "broken": ((*CAL, "--apply", "broken.npz", *TO[2:]), "broken.npz: the file is damaged"),
    "gaps": ((*CAL, "--apply", "gaps.csv", *TO[2:]), "4 of 600 values are missing, NaN or inf"),
    "uneven": ((*CAL, "--apply", "uneven.csv", *TO[2:]), "1 of 60 forecasts have another number"),
    "no key": ((*CAL, "--apply", "keyless.csv", *TO[2:]), "nothing tells which forecast a row"),
    "no member": ((*CAL, "--apply", "unnumbered.csv", *TO[2:]), "unnumbered.csv: no samples of ra"),
    "dimensions": ((*CAL, "--apply", "three.npy", *TO[2:]), "does not fit 60 rows and 2 targets"),
    "suffix": (
        (*CAL, *TO[:2], "--out", "out.xlsx"),
        "cannot be written to a file that ends in '.x",
    ),
    "netCDF of a table": (
        (*CAL, *TO[:2], "--out", "out.nc"),
        "ends in '.nc': known are .csv, .tsv",
    ),
    "over new": ((*CAL, *TO[:2], "--out", "new.csv"), "new.csv is read by this command"),
    "over cal": ((*CAL, *TO[:2], "--out", "./cal.csv"), "cal.csv is read by this command"),
    "below a file": ((*CAL, *TO[:2], "--out", "new.csv/o.csv"), "cannot write new.csv/o.csv: Not"),
    "page": ((*CAL, "--report", "r.pdf"), "r.pdf: the file to write must end in .html or .htm"),
    "head": ((*CAL, "--save-head", "h.pt"), "h.pt: the file to write must end in .safetensors"),
    "no head": (("--head", "head.safetensors", *TO), "head.safetensors"),
    "head of mixtures": (("--head", "mixture.safetensors", *TO), "fitted to 'mixture'"),
    "axis": ((*CAL, *TO, "--sample-axis", "1"), "sample_axis (--sample-axis) is for arrays"),
}


def test_files_that_are_refused(files):
    before = contents(files)
    for case, (options, words) in REFUSED.items():
        assert words in refused(call("calibrate", *options)), case
        assert contents(files) == before, case


BAD_USAGE = [
    ((), "--samples"),
    (CAL[:2], "--observations"),
    ((*CAL, *TO[:2]), "--out"),
    ((*CAL, *TO[2:]), "--apply"),
    ((*CAL, "--head", "head.safetensors"), "--head"),
    (("--head", "head.safetensors"), "--apply"),
    (("--head", "head.safetensors", *TO, "--report", "r.html"), "--head"),
    (("--head", "head.safetensors", *TO, "--time", "day"), "--time"),
    ((*CAL, "--holdout", "1"), "--holdout"),
    ((*CAL, "--holdout", "nan"), "--holdout"),
    ((*CAL, "--key", "a,,b"), "--key"),
]


def test_usage_that_is_not_known(files):
    before = contents(files)
    for words, named in BAD_USAGE:
        done = call("calibrate", *words)
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert named in done.stderr
        assert contents(files) == before, words


def test_a_full_disk(repaired, files):
    before = contents(files)
    given = ("--head", repaired[1] / "head.safetensors", *TO[:2])
    for out in ("new/out.csv", "new/out.npz", "new/out.parquet"):
        with small_files():
            done = call("calibrate", *given, "--out", out)
        assert "File too large" in refused(done)
        assert contents(files) == before


def test_all_files_are_written_or_none(place):
    def fail(_):
        raise OSError(28, "No space left on device")

    def fill(file):
        write_atomically(file, lambda part: part.write_text("new"))

    (place / "old.html").write_text("old")
    before = contents(place)
    jobs = [(place / "old.html", fill), (place / "new" / "a", fill), (place / "new" / "b", fail)]
    with pytest.raises(InputError, match=r"cannot write .*b: No space left"):
        _write(jobs)
    assert contents(place) == before
    _write(jobs[:2])
    assert contents(place) == {"old.html": b"new", "new": None, "new/a": b"new"}
