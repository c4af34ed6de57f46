"""Every format gives back the same samples beside the same observations."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from prerank.errors import InputError, MissingLibraryError
from prerank.files import read_forecasts

S, N, D = 5, 6, 3
TARGETS = ("wind", "rain", "river flow")
DAYS = pd.to_datetime(["2024-02-28", "2024-02-29", "2024-03-01"])
STATIONS = ["Bonn", "Ghent, east"]
RNG = np.random.default_rng(3)
SAMPLES = RNG.normal(size=(S, N, D)) * 10.0 ** RNG.integers(-9, 9, size=(S, N, D))
SAMPLES[0, 0] = [1 / 3, -1e300, 5e-324]
TRUTH = RNG.normal(size=(N, D))
KEYS = pd.MultiIndex.from_product([DAYS, STATIONS], names=["day", "station"]).to_frame(index=False)


def long_frame(order=None):
    parts = [
        KEYS.assign(member=s, **dict(zip(TARGETS, SAMPLES[s].T, strict=True))) for s in range(S)
    ]
    frame = pd.concat(parts, ignore_index=True)
    return frame if order is None else frame.iloc[order].reset_index(drop=True)


def wide_frame(pattern):
    columns = {
        pattern.format(name, k): SAMPLES[k, :, d]
        for d, name in enumerate(TARGETS)
        for k in range(S)
    }
    return pd.concat([KEYS, pd.DataFrame(columns)], axis=1)


def grid(values, *lead):
    dims = (*lead, "day", "station")
    shape = (*values.shape[:-2], len(DAYS), len(STATIONS))
    coords = {"day": DAYS, "station": STATIONS}
    variables = {name: (dims, values[..., d].reshape(shape)) for d, name in enumerate(TARGETS)}
    return xr.Dataset(variables, coords)


def write_arff(frame, path):
    kinds = ["numeric" if kind.kind in "fi" else "string" for kind in frame.dtypes]
    lines = ["@relation r"]
    lines += [f"@attribute '{n}' {k}" for n, k in zip(frame.columns, kinds, strict=True)]
    rows = frame.astype({"day": str}).itertuples(index=False)
    cells = [[f"'{v}'" if isinstance(v, str) else repr(float(v)) for v in row] for row in rows]
    path.write_text("\n".join([*lines, "@data", *(",".join(row) for row in cells)]))


def write_frame(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".arff":
        write_arff(frame, path)
    else:
        delimiter = {".csv": ",", ".txt": ";", ".tsv": "\t"}[path.suffix]
        frame.to_csv(path, sep=delimiter, index=False)
    return path


def write_arrays(path, **arrays):
    np.savez(path, **arrays)
    return path


def write_array(path, array):
    np.save(path, array)
    return path


def write_dataset(dataset, path, **options):
    dataset.to_netcdf(path, **{"engine": "h5netcdf"} | options)
    return path


SHUFFLED = np.random.default_rng(0).permutation(S * N)
SAMPLE_FILES = {
    "long csv": lambda f: write_frame(long_frame(), f / "s.csv"),
    "long shuffled": lambda f: write_frame(long_frame(SHUFFLED), f / "s.parquet"),
    "long tsv": lambda f: write_frame(long_frame(), f / "s.tsv"),
    "long txt": lambda f: write_frame(long_frame(), f / "s.txt"),
    "long arff": lambda f: write_frame(long_frame(), f / "s.arff"),
    "long capital": lambda f: write_frame(
        long_frame().rename(columns={"member": "Realization"}), f / "s.csv"
    ),
    "long, named members": lambda f: write_frame(
        long_frame().assign(member=lambda x: "m" + x["member"].astype(str)), f / "s.csv"
    ),
    "long, categories": lambda f: write_frame(
        long_frame().astype({"station": "category"}), f / "s.parquet"
    ),
    "wide _": lambda f: write_frame(wide_frame("{}_{}"), f / "s.csv"),
    "wide .": lambda f: write_frame(wide_frame("{}.{:03d}"), f / "s.parquet"),
    "wide -": lambda f: write_frame(wide_frame("{}-{}"), f / "s.tsv"),
    "wide space": lambda f: write_frame(wide_frame("{} {}"), f / "s.txt"),
    "wide []": lambda f: write_frame(wide_frame("{}[{}]"), f / "s.csv"),
    "wide reversed": lambda f: write_frame(wide_frame("{}_{}").iloc[::-1, ::-1], f / "s.csv"),
    "wide, no key": lambda f: write_frame(
        wide_frame("{}_{}").drop(columns=["day", "station"]), f / "s.csv"
    ),
    "npy": lambda f: write_array(f / "s.npy", SAMPLES),
    "npy big-endian": lambda f: write_array(f / "s.npy", SAMPLES.astype(">f8")),
    "npy Fortran": lambda f: write_array(f / "s.npy", np.asfortranarray(SAMPLES)),
    "npy, axis 1": lambda f: write_array(f / "s.npy", SAMPLES.swapaxes(0, 1)),
    "npy, axis 2": lambda f: write_array(f / "s.npy", np.moveaxis(SAMPLES, 0, 2)),
    "npz": lambda f: write_arrays(f / "s.npz", samples=SAMPLES, other=np.zeros(3)),
    "npz, one": lambda f: write_arrays(f / "s.npz", draws=SAMPLES),
    "npz, named": lambda f: write_arrays(
        f / "s.npz", samples=SAMPLES[..., ::-1], targets=np.array(TARGETS[::-1])
    ),
    "npz, keys": lambda f: write_arrays(
        f / "s.npz",
        samples=SAMPLES[:, ::-1],
        targets=np.array(TARGETS),
        key_day=KEYS["day"].to_numpy()[::-1].astype("datetime64[D]"),
        key_station=KEYS["station"].to_numpy().astype(str)[::-1],
    ),
    "nc": lambda f: write_dataset(grid(SAMPLES, "number"), f / "s.nc"),
    "nc classic": lambda f: write_dataset(
        grid(SAMPLES, "number"), f / "s.nc", engine="scipy", format="NETCDF3_64BIT"
    ),
    "nc, other order": lambda f: write_dataset(
        grid(SAMPLES, "Member").transpose("day", "station", "Member"), f / "s.nc"
    ),
}
OBSERVATION_FILES = {
    "csv": lambda f: write_frame(observed_frame(), f / "y.csv"),
    "parquet": lambda f: write_frame(observed_frame(), f / "y.parquet"),
    "arff": lambda f: write_frame(observed_frame(), f / "y.arff"),
    "npy": lambda f: write_array(f / "y.npy", TRUTH),
    "npz": lambda f: write_arrays(f / "y.npz", observations=TRUTH, samples=np.zeros(2)),
    "npz, named": lambda f: write_arrays(f / "y.npz", y=TRUTH, targets=np.array(TARGETS)),
    "nc": lambda f: write_dataset(grid(TRUTH), f / "y.nc"),
    "nc, other order": lambda f: write_dataset(grid(TRUTH).transpose("day", "station"), f / "y.nc"),
}


def observed_frame():
    return KEYS.assign(**dict(zip(TARGETS, TRUTH.T, strict=True)))


# Every format of samples beside a table and beside arrays, every one of observations beside two.
PAIRS = {
    *((samples, "csv") for samples in SAMPLE_FILES),
    *((samples, "npy") for samples in ("npy", "npy, axis 2", "npz", "wide _", "nc")),
    *(("long shuffled", kind) for kind in OBSERVATION_FILES if not kind.startswith("np")),
    *(("npz, one", kind) for kind in OBSERVATION_FILES),
}


@pytest.mark.parametrize(("samples", "observations"), sorted(PAIRS))
def test_formats_agree(tmp_path, samples, observations):
    found = read_forecasts(
        SAMPLE_FILES[samples](tmp_path), OBSERVATION_FILES[observations](tmp_path)
    )
    np.testing.assert_array_equal(found.samples, SAMPLES)
    np.testing.assert_array_equal(found.observations, TRUTH)
    assert found.samples.dtype == found.observations.dtype == np.float64
    assert found.groups is None
    nameless = samples.startswith("np") and observations in ("npy", "npz")
    assert found.targets == (("y0", "y1", "y2") if nameless else TARGETS)


@pytest.mark.parametrize(
    ("suffix", "observations"), [(".csv", "csv"), (".parquet", "npy"), (".arff", "nc")]
)
def test_row_numbers(tmp_path, suffix, observations):
    frame = long_frame(SHUFFLED)
    row = KEYS.assign(row=range(N)).merge(frame, how="right", on=["day", "station"])["row"]
    frame = frame.drop(columns=["station"]).assign(row=row)
    frame["day"] = "2020-01-01"  # says something else, but row is named
    found = read_forecasts(
        write_frame(frame, tmp_path / f"s{suffix}"),
        OBSERVATION_FILES[observations](tmp_path),
        key=["row"],
        targets=TARGETS,
    )
    np.testing.assert_array_equal(found.samples, SAMPLES)
    np.testing.assert_array_equal(found.observations, TRUTH)
    assert found.remarks == ()


# One target, arrays and axes


@pytest.mark.parametrize("shape", [(S, N), (N, S), (S, N, 1), (N, S, 1), (N, 1, S)])
def test_one_target(tmp_path, shape):
    axis = shape.index(S)
    observed = TRUTH[:, 0] if len(shape) == 2 else TRUTH[:, :1]
    values = np.moveaxis(SAMPLES[..., 0].reshape(S, *(n for n in shape if n != S)), 0, axis)
    assert values.shape == shape
    source = write_array(tmp_path / "s.npy", values)
    for options in ({}, {"sample_axis": axis}, {"sample_axis": axis - len(shape)}):
        found = read_forecasts(source, write_array(tmp_path / "y.npy", observed), **options)
        np.testing.assert_array_equal(found.samples, SAMPLES[..., :1])
        np.testing.assert_array_equal(found.observations, TRUTH[:, :1])
        told = [f"the sample axis was taken to be {axis}: only that fits shape {shape}"]
        assert list(found.remarks) == (told if axis and not options else [])


def test_an_ambiguous_shape(tmp_path):
    square = RNG.normal(size=(N, N, D))
    source = write_array(tmp_path / "s.npy", square)
    truth = write_array(tmp_path / "y.npy", TRUTH)
    found = read_forecasts(source, truth)
    np.testing.assert_array_equal(found.samples, square)
    assert found.remarks == (
        "the sample axis was taken to be 0, though 1 would fit the shape (6, 6, 3) as well",
    )
    for axis, expected in ((0, square), (1, square.swapaxes(0, 1))):
        found = read_forecasts(source, truth, sample_axis=axis)
        np.testing.assert_array_equal(found.samples, expected)
        assert found.remarks == ()
    with pytest.raises(InputError, match=r"does not fit 6 rows and 3 targets when axis 2"):
        read_forecasts(source, truth, sample_axis=2)
    with pytest.raises(InputError, match=r"--sample-axis\) is 3, but samples have shape"):
        read_forecasts(source, truth, sample_axis=3)


@settings(max_examples=40)
@given(st.data(), st.integers(2, 5), st.integers(1, 5), st.integers(1, 3))
def test_a_named_axis_is_always_right(tmp_path_factory, data, s, n, d):
    axis = data.draw(st.integers(0, 2))
    values = np.random.default_rng(0).normal(size=(s, n, d))
    folder = tmp_path_factory.mktemp("shapes")
    source = write_array(folder / "s.npy", np.moveaxis(values, 0, axis))
    truth = write_array(folder / "y.npy", values[0])
    found = read_forecasts(source, truth, sample_axis=axis)
    np.testing.assert_array_equal(found.samples, values)
    np.testing.assert_array_equal(found.observations, values[0])
    guessed = read_forecasts(source, truth)
    if not any("as well" in remark for remark in guessed.remarks):
        np.testing.assert_array_equal(guessed.samples, values)


def test_other_numbers(tmp_path):
    for kind in ("float32", "float16", "int16", "uint8", "bool"):
        values = (np.arange(S * N * D).reshape(S, N, D) % 5).astype(kind)
        source = write_array(tmp_path / "s.npy", values)
        found = read_forecasts(source, write_array(tmp_path / "y.npy", values[0]))
        assert found.samples.dtype == np.float64
        np.testing.assert_array_equal(found.samples, values)


# One file for both


@pytest.mark.parametrize("same", [True, False])
def test_both_in_one_file(tmp_path, same):
    source = write_arrays(tmp_path / "s.npz", samples=SAMPLES, observations=TRUTH)
    found = read_forecasts(source, source if same else None, targets=TARGETS)
    np.testing.assert_array_equal(found.samples, SAMPLES)
    np.testing.assert_array_equal(found.observations, TRUTH)
    assert found.targets == TARGETS
    frame = wide_frame("{}_{}").assign(**dict(zip(TARGETS, TRUTH.T, strict=True)), depth=None)
    source = write_frame(frame, tmp_path / "s.csv")
    found = read_forecasts(source, source if same else None, by="station")
    np.testing.assert_array_equal(found.samples, SAMPLES)
    np.testing.assert_array_equal(found.observations, TRUTH)
    assert found.remarks == ()
    assert found.groups == tuple(KEYS["station"])


@pytest.mark.parametrize("kind", ["npy", "npz, one", "nc"])
def test_no_observations_in_the_file(tmp_path, kind):
    source = SAMPLE_FILES[kind](tmp_path)
    with pytest.raises(InputError, match="no observations beside the samples") as caught:
        read_forecasts(source, None)
    assert str(caught.value).startswith(str(source))


# netCDF


def test_datasets_are_aligned_by_coordinates(tmp_path):
    """As xarray does it with an inner join."""
    shifted = grid(SAMPLES, "sample").isel(day=[2, 0]).assign(unused=("other", [1.0]))
    partial = grid(TRUTH).isel(station=[1])
    found = read_forecasts(
        write_dataset(shifted, tmp_path / "s.nc"), write_dataset(partial, tmp_path / "y.nc")
    )
    left, right = xr.align(shifted, partial, join="inner")
    rows = right.stack(row=["day", "station"])
    expected = left.stack(row=["day", "station"]).sel(row=rows["row"])
    order = np.argsort(rows["day"].to_numpy())
    for d, name in enumerate(TARGETS):
        np.testing.assert_array_equal(found.samples[..., d], expected[name].to_numpy()[:, order])
        np.testing.assert_array_equal(found.observations[:, d], rows[name].to_numpy()[order])
    assert found.remarks == (
        "forecasts and observations were matched by day, station, which both files have",
        "1 of 3 rows of the observations have no forecast and were left out",
        "2 of 4 forecasts have no observation and were left out",
    )


def test_other_coordinates_and_precision(tmp_path):
    """Latitudes of a station differ in their last digits, and do not get in the way."""
    latitude = np.array([50.73, 51.05])
    samples = grid(SAMPLES, "sample").assign_coords(lat=("station", latitude.astype("f4")))
    truth = grid(TRUTH).assign_coords(lat=("station", latitude + 1e-9), height=2.0)
    source = write_dataset(samples, tmp_path / "s.nc")
    found = read_forecasts(source, write_dataset(truth, tmp_path / "y.nc"), by="lat")
    np.testing.assert_array_equal(found.samples, SAMPLES)
    assert len(set(found.groups)) == 2
    table = KEYS.assign(lat=np.tile(latitude, 3), **dict(zip(TARGETS, TRUTH.T, strict=True)))
    table = table.drop(columns="station")
    found = read_forecasts(source, write_frame(table, tmp_path / "y.csv"))
    np.testing.assert_array_equal(found.samples, SAMPLES)
    assert found.remarks[0].startswith("forecasts and observations were matched by day, lat")


def test_dimensions_without_coordinates(tmp_path):
    samples = grid(SAMPLES, "sample").drop_vars(["day", "station"])
    source = write_dataset(samples, tmp_path / "s.nc")
    truth = grid(TRUTH).drop_vars(["day", "station"])
    found = read_forecasts(source, write_dataset(truth, tmp_path / "y.nc"))
    np.testing.assert_array_equal(found.samples, SAMPLES)
    for other in (truth.isel(day=[0, 1]), grid(TRUTH)):
        path = write_dataset(other, tmp_path / "other.nc")
        with pytest.raises(InputError, match="dimension 'day' has 3 places here"):
            read_forecasts(source, path)


def test_a_unit_of_time_is_no_time(tmp_path):
    attributes = {"units": "hours"}
    dataset = xr.Dataset({"delay": (("sample", "train"), SAMPLES[..., 0], attributes)})
    truth = xr.Dataset({"delay": ("train", TRUTH[:, 0], attributes)})
    found = read_forecasts(
        write_dataset(dataset, tmp_path / "s.nc"), write_dataset(truth, tmp_path / "y.nc")
    )
    np.testing.assert_array_equal(found.samples, SAMPLES[..., :1])


def test_netcdf_without_xarray(tmp_path, monkeypatch):
    source = SAMPLE_FILES["nc"](tmp_path)
    for module in ("xarray", "h5netcdf", "h5py"):
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, module, None)
            hint = rf"^read_forecasts needs {module}: pip install 'prerank\[netcdf\]'$"
            with pytest.raises(MissingLibraryError, match=hint):
                read_forecasts(source, OBSERVATION_FILES["csv"](tmp_path))


@pytest.mark.parametrize("option", ["time", "cluster", "by"])
def test_a_target_says_nothing_about_the_rows(tmp_path, option):
    truth = write_frame(KEYS.assign(**dict(zip(TARGETS, TRUTH.T, strict=True))), tmp_path / "o.csv")
    files = {"long": write_frame(long_frame(), tmp_path / "long.csv")}
    files["wide"] = write_frame(wide_frame("{}_{}"), tmp_path / "wide.csv")
    files["grid"] = tmp_path / "grid.nc"
    write_dataset(grid(SAMPLES, "member"), files["grid"])
    for path in files.values():
        with pytest.raises(InputError, match=r"target, which has|differs among the samples"):
            read_forecasts(path, truth, **{option: "wind"})
