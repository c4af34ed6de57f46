"""Samples without observations: all formats are read alike, and filled with other samples."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cli.commands import small_files
from prerank.errors import InputError, ShapeError
from prerank.files import read_forecasts, read_samples

S, N = 4, 6
TARGETS = ("wind", "river flow")
VALUES = np.random.default_rng(0).normal(size=(S, N, 2))
DAYS = pd.date_range("2024-02-28", periods=3)
KEYS = pd.MultiIndex.from_product([DAYS, ["Bonn", "7"]], names=["day", "station"])


def long_frame():
    """In a random order, with a column that is neither a key nor a target."""
    parts = [pd.DataFrame(VALUES[s], columns=list(TARGETS)).assign(draw=s) for s in range(S)]
    frame = pd.concat([KEYS.to_frame(index=False).join(part) for part in parts])
    frame["sun"] = np.arange(len(frame)) / 7
    frame["remark"] = np.where(frame.station == "7", "none, so far", None)
    return frame.sample(frac=1, random_state=0).reset_index(drop=True)


def wide_frame(kind=np.float64):
    columns = {
        f"{t}[{s}]": VALUES[s, :, d].astype(kind) for d, t in enumerate(TARGETS) for s in range(S)
    }
    return KEYS.to_frame(index=False).join(pd.DataFrame(columns))


def grid():
    dims = ("day", "number", "station")
    cube = VALUES.reshape(S, 3, 2, 2)
    data = {t: (dims, cube[..., d].swapaxes(0, 1), {"units": "m"}) for d, t in enumerate(TARGETS)}
    data["sun"] = (dims[:2], np.ones((3, S)))
    return xr.Dataset(data, {"day": DAYS, "station": ["Bonn", "7"], "height": 2.0})


def write_arff(frame, path):
    lines = [f"@attribute '{name}' numeric" for name in frame]
    rows = frame.to_csv(index=False, header=False)
    path.write_text("@relation r\n" + "\n".join(lines) + "\n@data\n" + rows)


FILES = {
    "long.csv": lambda path: long_frame().to_csv(path, index=False),
    "long.parquet": lambda path: long_frame().to_parquet(path),
    "wide.csv": lambda path: wide_frame().to_csv(path, index=False, sep=";"),
    "wide.parquet": lambda path: wide_frame().to_parquet(path),
    "wide.arff": lambda path: write_arff(wide_frame().drop(columns=["day", "station"]), path),
    "first.npy": lambda path: np.save(path, VALUES),
    "named.npz": lambda path: np.savez(
        path, samples=VALUES.swapaxes(0, 1), sample_axis=1, targets=TARGETS, key_day=np.arange(N)
    ),
    "grid.nc": lambda path: grid().to_netcdf(path, engine="h5netcdf"),
    "classic.nc": lambda path: grid().to_netcdf(path, engine="scipy"),
}


@pytest.mark.parametrize("name", FILES)
def test_samples_are_read_and_filled(name, tmp_path):
    """With the layout of the file, and as a long table or arrays, which all can become."""
    path = tmp_path / name
    FILES[name](path)
    found = read_samples(path, TARGETS)
    place = VALUES[0, :, 0].tolist()  # forecasts come in the order of the file
    np.testing.assert_array_equal(
        found.values, VALUES[:, [place.index(value) for value in found.values[0, :, 0]]]
    )
    suffix = ".csv" if path.suffix == ".arff" else path.suffix
    for out in (tmp_path / f"same{suffix}", tmp_path / "other.pq", tmp_path / "other.npz"):
        assert found.write(out, 2 * found.values) == out
        again = read_samples(out, TARGETS)
        np.testing.assert_array_equal(again.values, 2 * found.values)
        if not found.keeps_layout(out):
            assert set(again.key or ()) == set(
                found.key or ({"row"} if out.suffix == ".pq" else ())
            )


READERS = {
    "long.csv": lambda path: pd.read_csv(path, dtype=str),
    "long.parquet": pd.read_parquet,
    "wide.parquet": pd.read_parquet,
    "grid.nc": lambda path: xr.load_dataset(path).to_dataframe(),
    "classic.nc": lambda path: xr.load_dataset(path).to_dataframe(),
}


@pytest.mark.parametrize("name", READERS)
def test_the_same_samples_make_the_same_file(name, tmp_path):
    """All rows, columns and coordinates in their order; text as it stands."""
    path = tmp_path / name
    FILES[name](path)
    found = read_samples(path, TARGETS)
    again = found.write(tmp_path / f"again{path.suffix}", found.values)
    pd.testing.assert_frame_equal(READERS[name](again), READERS[name](path))
    assert found.others == (("sun",) if "wide" not in name else ())


def test_types_and_attributes(tmp_path):
    """Floats keep their precision; integers and packed numbers make room for others."""
    path, out = tmp_path / "a.parquet", tmp_path / "b.parquet"
    wide_frame(np.float32).assign(**{"wind[0]": 3}).to_parquet(path)
    found = read_samples(path, TARGETS)
    types = pd.read_parquet(found.write(out, found.values + 0.5)).dtypes
    assert (types["wind[0]"], types["wind[1]"]) == (np.float64, np.float32)
    packed = {"wind": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -999}}
    path, out = tmp_path / "a.nc", tmp_path / "b.nc"
    grid().to_netcdf(path, engine="h5netcdf", encoding=packed)
    found = read_samples(path, TARGETS)
    found.write(out, 1e6 * found.values)
    np.testing.assert_allclose(read_samples(out, TARGETS).values, 1e6 * found.values, rtol=1e-6)
    assert xr.load_dataset(out)["wind"].attrs == {"units": "m"}


def test_the_axis_of_the_samples_is_known(tmp_path):
    np.save(tmp_path / "s.npy", VALUES.swapaxes(0, 1))
    np.save(tmp_path / "y.npy", VALUES[0])
    assert read_forecasts(tmp_path / "s.npy", tmp_path / "y.npy").sample_axis == 1
    found = read_samples(tmp_path / "s.npy", TARGETS, sample_axis=-2)
    np.testing.assert_array_equal(found.values, VALUES)
    assert found.remarks == ()
    assert read_samples(tmp_path / "s.npy", TARGETS).values.shape == (N, S, 2)
    np.save(tmp_path / "single.npy", VALUES[..., 0])
    single = read_samples(tmp_path / "single.npy", "wind")
    assert single.remarks == ("the sample axis was taken to be 0",)
    assert np.load(single.write(tmp_path / "out.npy", single.values)).shape == (S, N)


@pytest.mark.parametrize("name", ["long.csv", "wide.parquet", "first.npy", "grid.nc"])
def test_a_full_disk(name, tmp_path):
    """The old file stays, and nothing else."""
    path, out = tmp_path / name, tmp_path / f"out.{name.partition('.')[2]}"
    FILES[name](path)
    found = read_samples(path, TARGETS)
    out.write_text("old")
    with small_files(100), pytest.raises(InputError, match=r"cannot write .*out"):
        found.write(out, found.values)
    assert out.read_text() == "old"
    assert {file.name for file in tmp_path.iterdir()} == {name, out.name}


def test_what_is_refused(tmp_path):
    for name, write in FILES.items():
        write(tmp_path / name)
    long_frame().drop(columns=["day", "station"]).to_csv(tmp_path / "keyless.csv", index=False)
    pd.concat([long_frame()] * 2).to_csv(tmp_path / "twice.csv", index=False)
    cases = {
        ("long.csv", "gust"): "long.csv: no samples of gust: the targets are gust, and this file",
        ("grid.nc", "gust"): "no samples of gust: the targets are gust, and this file has wind",
        ("named.npz", "gust"): "no samples of gust: .* has wind, river flow; name them alike",
        ("wide.csv", "day"): "no samples of day: a long table needs a column that numbers them",
        ("grid.nc", "height"): "no column 'height' for a target",
        ("keyless.csv", "wind"): "nothing tells which forecast a row belongs to: add a column",
        ("twice.csv", "wind"): "stands in data rows .*: keep one of them",
        ("first.npy", "wind"): "which does not fit 6 rows and 1 targets",
        ("first.txt", "wind"): "first.txt: cannot be read: No such file",
    }
    for (name, target), words in cases.items():
        with pytest.raises(InputError, match=words):
            read_samples(tmp_path / name, target)
    with pytest.raises(InputError, match=r"no column 'hour' \(a key\)"):
        read_samples(tmp_path / "long.csv", TARGETS, key="hour")
    found = read_samples(tmp_path / "long.csv", TARGETS)
    with pytest.raises(ShapeError, match=r"values have shape \(4, 5, 2\), but long.csv has"):
        found.write(tmp_path / "out.csv", VALUES[:, :5])
    with pytest.raises(InputError, match="some values are NaN or infinite"):
        found.write(tmp_path / "out.csv", np.full_like(VALUES, np.nan))
    with pytest.raises(InputError, match=r"a file that ends in '\.nc': known are"):
        found.write(tmp_path / "out.nc", VALUES)
    (tmp_path / "long.csv").write_text("day,draw,wind,river flow\n1,1,1,1\n")
    with pytest.raises(InputError, match="the file has changed since it was read"):
        found.write(tmp_path / "out.csv", VALUES)
    assert not (tmp_path / "out.csv").exists()
