"""Forecast files that are refused: unusable ones, and malicious ones that claim too much."""

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prerank.errors import InputError
from prerank.files import read_forecasts

LONG = "id,sample,u,v\n1,0,.1,.2\n1,1,.3,.4\n2,0,.5,.6\n2,1,.7,.8\n"
WIDE = "id,u_0,u_1,v_0,v_1\n1,.1,.2,.3,.4\n2,.5,.6,.7,.8\n"
PLAIN = "u,v\n1.5,2.5\n3.5,4.5\n"
TRUTH = "id,u,v\n1,1.5,2.5\n2,3.5,4.5\n"
GRID = xr.Dataset(
    {"u": (("sample", "id"), [[1.0, 2], [3, 4]]), "v": (("sample", "id"), [[5.0, 6], [7, 8]])},
    {"id": [1, 2]},
)


def write(path, content):
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    elif isinstance(content, dict):
        np.savez(path, **content)
    elif isinstance(content, xr.Dataset):
        content.to_netcdf(path, engine="h5netcdf")
    elif isinstance(content, pd.DataFrame):
        content.to_parquet(path)
    return path


def changed(text, *pairs):
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


# Samples: file, content, words; options
BAD_SAMPLES = {
    "not there": ("s.csv", None, "cannot be read: No such file"),
    "empty": ("s.csv", "", "the file is empty"),
    "empty npy": ("s.npy", b"", "the file is empty"),
    "empty parquet": ("s.parquet", b"", "the file is empty"),
    "blank": ("s.csv", "\n \n", "the file is empty"),
    "header alone": ("s.csv", "id,sample,u,v\n", "the table has no rows"),
    "no arrays": ("s.npz", {}, "no array 'samples'; there are none"),
    "empty array": ("s.npy", np.zeros((2, 0, 2)), r"samples have shape \(2, 0, 2\)"),
    "empty variable": ("s.nc", GRID.isel(id=[]), "variable 'u' is empty"),
    "suffix": ("s.xlsx", b"PK", r"ends in '\.xlsx' cannot be read: known are \.csv"),
    "ragged": ("s.csv", LONG + "1,2\n", "not a CSV file"),
    "latin": ("s.csv", "höhe,y\n".encode("latin-1"), "not UTF-8 text"),
    "broken parquet": ("s.parquet", b"PAR1" + b"\0" * 50 + b"PAR1", "not a Parquet file"),
    "broken npy": ("s.npy", b"\x93NUMPY\x01\x00v\x00{'descr'", "the file is damaged.*anew"),
    "text npy": ("s.npy", b"1 2 3 4", "the file is damaged, or was not written by"),
    "broken npz": ("s.npz", b"PK\x03\x04" + b"\0" * 60, "the file is damaged"),
    "objects": ("s.npy", np.array([1, "a", None], object), "the file holds Python objects"),
    "text array": ("s.npy", np.array([["a"]]), "of type <U1: only numbers can be used"),
    "complex": ("s.npy", np.zeros((2, 2, 2), complex), "complex128: only numbers"),
    "text nc": ("s.nc", b"u,v\n1,2\n", r"not a netCDF file: it begins with b'u,v"),
    "broken nc": ("s.nc", b"\x89HDF\r\n\x1a\n" + b"\1" * 99, "not a netCDF file that can be read"),
    "broken classic": ("s.nc", b"CDF\x01" + b"\1" * 99, "not a netCDF file that can be read"),
    "same names": ("s.csv", changed(LONG, ("v\n", "u\n")), "several columns are named 'u'"),
    "many arrays": (
        "s.npz",
        {"a": np.zeros(3), "b": np.zeros(3)},
        "no array 'samples'; there are a, b",
    ),
    # what is in them
    "no sample": ("s.csv", changed(LONG, ("sample", "i")), "no samples found: a long table needs"),
    "no target": ("s.csv", changed(LONG, ("u,v", "x,y")), "no column in common with y.csv differs"),
    "no wide target": (
        "s.csv",
        changed(WIDE, ("u_", "x_"), ("v_", "y_")),
        "no samples found.* columns such as u_0, u_1",
    ),
    "no keys": (
        "s.csv",
        changed(LONG, ("id", "key")),
        "nothing tells which forecast a row belongs",
    ),
    "text": ("s.csv", changed(LONG, (".5", "half")), "column 'u' holds text, such as 'half'"),
    "wide text": (
        "s.csv",
        changed(WIDE, (".6", "x")),
        "column 'u_1' holds text, such as 'x'.*only numbers",
    ),
    "comma": ("s.csv", changed(LONG, (".5", '"0,5"')), "decimals need a point"),
    "missing": (
        "s.csv",
        changed(LONG, (".5", "")),
        "1 of 8 values are missing, NaN or infinite, .* 'u', data row 3: remove",
    ),
    "infinite": (
        "s.csv",
        changed(LONG, (".7", "inf"), (".8", "-inf")),
        "2 of 8 values .* column 'u', data row 4",
    ),
    "wide missing": (
        "s.csv",
        changed(WIDE, (".7", "nan")),
        "1 of 8 values .* column 'v_0', data row 2",
    ),
    "array NaN": (
        "s.npy",
        np.array([[[1, 2], [3, 4]], [[1, 2], [np.nan, 4]]]),
        "1 of 8 .* sample 1, row 1 of 'u', counted from 0",
    ),
    "nc NaN": (
        "s.nc",
        GRID.where(GRID["id"] == 1),
        "4 of 8 .* sample 0, counted from 0, of 'u' for id=2",
    ),
    "unequal": (
        "s.csv",
        LONG + "2,2,.7,.8\n",
        "1 of 2 forecasts have another number .* than 2, the first of them id=2 with 3",
    ),
    "wide unequal": (
        "s.csv",
        changed(WIDE, ("v_1", "w")),
        "'u' has 2 samples and target 'v' 1, and only one of them has sample 1",
    ),
    "wide other": ("s.csv", changed(WIDE, ("v_1", "v_2")), "only one of them has sample 1"),
    "wide twice": (
        "s.csv",
        changed(WIDE, ("u_1", "u.0")),
        r"'u_0' and 'u\.0' are both sample 0 of 'u'",
    ),
    "twice": (
        "s.csv",
        LONG + "2,1,.7,.8\n",
        "id=2, sample=1 stands in data rows 4 and 5: keep one",
    ),
    "wide rows twice": (
        "s.csv",
        WIDE + "1,1,1,1,1\n",
        "several forecasts for id=1, in data rows 1 and 3",
    ),
    "nothing in common": (
        "s.csv",
        changed(LONG, ("\n1", "\n8"), ("\n2", "\n9")),
        "no forecast belongs to a row of y.csv: the first has id=8, .* id=1",
    ),
    "missing key": (
        "s.csv",
        changed(LONG, ("2,0", ",0")),
        r"column 'id' \(a key\) has 1 missing values, the first in data row 3",
    ),
    "missing sample": (
        "s.csv",
        changed(LONG, ("2,0", "2,")),
        "column 'sample' for the samples has 1 missing values",
    ),
    "one sample": (
        "s.csv",
        "id,sample,u,v\n1,0,1,2\n2,0,2,3\n",
        "'sample' numbers a single sample, where 2 are needed",
    ),
    "one wide": (
        "s.csv",
        "id,u_0,v_0\n1,1,2\n2,2,3\n",
        "1 sample for each forecast, where 2 are needed",
    ),
    "one in an array": ("s.npy", np.zeros((1, 2, 2)), "1 sample for each forecast, where 2"),
    "one in nc": ("s.nc", GRID.isel(sample=[0]), "1 sample for each forecast, where 2"),
    "row numbers": (
        "s.csv",
        changed(LONG, ("id", "row")),
        "column 'row' is 2 in data row 3, where it must count .* from 0 to 1",
    ),
    "no row number": (
        "s.csv",
        changed(LONG, ("id", "row"), ("\n1", "\n0"), ("\n2", "\n.5")),
        "'row' is 0.5",
    ),
    "other count": (
        "s.csv",
        "u_0,u_1,v_0,v_1\n1,2,3,4\n",
        "1 forecasts for the 2 rows of y.csv, and no column in common",
    ),
    "shape": (
        "s.npy",
        np.zeros((5, 3, 2)),
        r"samples have shape \(5, 3, 2\), which does not fit 2 rows and 2 targets",
    ),
    "axes": ("s.npy", np.zeros((5, 2, 2, 2)), r"samples have shape \(5, 2, 2, 2\)"),
    "number": ("s.npy", np.array(3.0), r"samples have shape \(\)"),
    "no names in common": (
        "s.npz",
        {"samples": np.zeros((2, 2, 2)), "targets": ["a", "b"]},
        "none of its targets a, b is in y.csv",
    ),
    "key shape": (
        "s.npz",
        {"samples": np.zeros((2, 2, 2)), "key_id": np.zeros((2, 2))},
        r"array 'key_id' has shape \(2, 2\)",
    ),
    "no members": (
        "s.nc",
        GRID.rename(sample="m"),
        "no dimension numbers the samples; there are m, id",
    ),
    "two members": ("s.nc", GRID.rename(id="draw"), "each dimension of sample, draw could number"),
    "no variable": (
        "s.nc",
        GRID.rename(u="x", v="y"),
        "none of the variables x, y with dimension 'sample' is in y.csv",
    ),
    "other dimensions": (
        "s.nc",
        GRID.assign(v=GRID["v"].expand_dims(z=2)),
        "'u' has dimensions sample, id and 'v' z, sample, id",
    ),
    "more dimensions": (
        "s.nc",
        GRID.expand_dims(chain=[0, 1]),
        r"forecasts for id=1, in data rows 1 and 3 \(.* no dimension chain\)",
    ),
}


@pytest.mark.parametrize("case", BAD_SAMPLES)
def test_samples_that_cannot_be_used(tmp_path, case):
    file, content, words = BAD_SAMPLES[case]
    path = write(tmp_path / file, content)
    truth = PLAIN if isinstance(content, np.ndarray | dict) else TRUTH
    with pytest.raises(InputError, match=words) as caught:
        read_forecasts(path, write(tmp_path / "y.csv", truth))
    assert str(caught.value).startswith(f"{path}: ")


BAD_OBSERVATIONS = {
    "not there": ("y.csv", None, "cannot be read: No such file"),
    "empty": ("y.csv", "", "the file is empty"),
    "suffix": ("y.doc", b"PK", r"ends in '\.doc' cannot be read"),
    "broken": ("y.npz", b"PK", "the file is damaged"),
    "text": (
        "y.csv",
        changed(TRUTH, ("3.5", "wet")),
        "column 'u' holds text, such as 'wet' .* for a target: only numbers",
    ),
    "missing": (
        "y.csv",
        changed(TRUTH, ("3.5", "")),
        "1 of 2 observations are missing, .* in column 'u', data row 2: remove those",
    ),
    "infinite": (
        "y.csv",
        changed(TRUTH, ("2.5", "inf"), ("3.5", "nan")),
        "2 of 2 observations .* column 'v', data row 1",
    ),
    "twice": ("y.csv", TRUTH + "1,2,3\n", "id=1 stands in data rows 1 and 3: keep one of them"),
    "missing key": (
        "y.csv",
        changed(TRUTH, ("\n2", "\n")),
        r"column 'id' \(a key\) has 1 missing values",
    ),
    "nc NaN": (
        "y.nc",
        GRID.isel(sample=0, drop=True).where(GRID["id"] == 2),
        "1 of 2 observations .* column 'u', id=1",
    ),
    "nc text": ("y.nc", xr.Dataset({"u": ("id", ["a", "b"])}), "no variable with numbers"),
    "shape": ("y.npy", np.zeros((2, 2, 2)), r"observations have shape \(2, 2, 2\): they must be"),
    "names": (
        "y.npy",
        np.zeros((2, 5)),
        r"observations have shape \(2, 5\), and 3 targets are named: id, u, v; name",
    ),
    "no array": (
        "y.npz",
        {"a": np.zeros(2), "b": np.zeros(2)},
        "no array 'observations'; there are a, b",
    ),
}


@pytest.mark.parametrize("case", BAD_OBSERVATIONS)
def test_observations_that_cannot_be_used(tmp_path, case):
    file, content, words = BAD_OBSERVATIONS[case]
    path = write(tmp_path / file, content)
    with pytest.raises(InputError, match=words) as caught:
        read_forecasts(write(tmp_path / "s.csv", LONG), path)
    assert str(caught.value).startswith(f"{path}: ")


BAD_CHOICES = {
    "target of no file": (
        LONG,
        {"targets": ["u", "w"]},
        "s.csv: no column 'w' for a target; there are",
    ),
    "near target": (LONG, {"targets": ["U"]}, "s.csv: no column 'U' for a target; did you mean u"),
    "target, wide": (
        WIDE,
        {"targets": ["u", "w"]},
        "s.csv: no columns w_0, w_1, .* for the target 'w'; .* some for u",
    ),
    "key": (LONG, {"key": ["idd"]}, r"no column 'idd' \(a key\); did you mean id"),
    "sample": (LONG, {"sample": "m"}, "s.csv: no column 'm' for the samples"),
    "by": (LONG, {"by": "season"}, "y.csv: no column 'season' for the groups; there are id, u, v"),
    "axis": (LONG, {"sample_axis": 0}, r"s.csv: sample_axis \(--sample-axis\) is for arrays"),
    "no targets": (LONG, {"targets": []}, r"targets \(--targets\) is empty"),
    "same targets": (LONG, {"targets": ["u", "u"]}, "targets.* names u more than once"),
    "same keys": (LONG, {"key": ["id", "id"]}, "key.* names id more than once"),
}


@pytest.mark.parametrize("case", BAD_CHOICES)
def test_choices_that_do_not_fit(tmp_path, case):
    content, options, words = BAD_CHOICES[case]
    source, truth = write(tmp_path / "s.csv", content), write(tmp_path / "y.csv", TRUTH)
    with pytest.raises(InputError, match=words):
        read_forecasts(source, truth, **options)


def test_choices_for_other_formats(tmp_path):
    truth = write(tmp_path / "y.csv", TRUTH)
    source = write(tmp_path / "s.npz", {"samples": np.zeros((2, 2, 2)), "targets": ["u", "v"]})
    for options, words in [
        ({"sample": "m"}, "is for tables and netCDF: use sample_axis"),
        ({"targets": ["w"]}, "no column 'w' for a target; there are u, v"),
        ({"key": ["id"]}, r"no column 'id' \(a key\)"),
    ]:
        with pytest.raises(InputError, match=words) as caught:
            read_forecasts(source, truth, **options)
        assert str(caught.value).startswith(f"{source}: ")
    source = write(tmp_path / "s.nc", GRID)
    for options, words in [
        ({"sample": "m"}, "no column 'm' for the samples; there are sample, id"),
        ({"targets": ["w"]}, "no column 'w' for a target"),
        ({"sample_axis": 1}, r"sample_axis \(--sample-axis\) is for arrays"),
    ]:
        with pytest.raises(InputError, match=words) as caught:
            read_forecasts(source, truth, **options)
        assert str(caught.value).startswith(f"{source}: ")


def test_a_variable_of_text(tmp_path):
    """By itself it is no target; asked for, it is an error."""
    source = write(tmp_path / "s.nc", GRID.assign(u=GRID["u"].astype(str)))
    truth = write(tmp_path / "y.csv", TRUTH)
    assert read_forecasts(source, truth).targets == ("v",)
    with pytest.raises(InputError, match=r"s\.nc: variable 'u' holds .*: only numbers"):
        read_forecasts(source, truth, targets=["u", "v"])


def test_an_array_for_some_columns(tmp_path):
    source, truth = write(tmp_path / "s.npy", np.ones((5, 2, 2))), write(tmp_path / "y.csv", TRUTH)
    with pytest.raises(
        InputError, match=r"does not fit 2 rows and 3 targets.*name them with targets"
    ):
        read_forecasts(source, truth)
    assert read_forecasts(source, truth, targets=["v", "u"]).observations.tolist() == [
        [2.5, 1.5],
        [4.5, 3.5],
    ]
    assert read_forecasts(source, truth, by="id").groups == ("1", "2")


def test_a_folder(tmp_path):
    folder = tmp_path / "s.csv"
    folder.mkdir()
    with pytest.raises(InputError, match=r"cannot be read: Is a directory"):
        read_forecasts(folder, folder)


# Hostile files


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder, zeros = tmp_path_factory.mktemp("good"), np.zeros((2, 2, 2))
    files = {".csv": LONG, ".npy": zeros, ".npz": {"samples": zeros}}
    return {kind: write(folder / f"s{kind}", file).read_bytes() for kind, file in files.items()}


@given(
    st.sampled_from([".csv", ".npy", ".npz"]),
    st.binary(max_size=20),
    st.integers(0, 10_000),
    st.sampled_from(["within", "alone", "cut"]),
)
def test_hostile_files(good, suffix, noise, place, way):
    """Whatever stands in a file, reading it gives forecasts or an `InputError`."""
    whole = good[suffix]
    place %= len(whole)
    ways = {"within": whole[:place] + noise + whole[place + len(noise) :], "alone": noise}
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, f"s{suffix}"), ways.get(way, whole[:place]))
        truth = write(Path(folder, "y.csv"), TRUTH if suffix == ".csv" else PLAIN)
        message = ""
        try:
            assert np.isfinite(read_forecasts(path, truth).samples).all()
        except InputError as error:
            message = str(error)
        assert not message or message.startswith((f"{path}: ", f"{truth}: "))


def write_claims(path, entries, rows):
    """An archive of arrays that are all header: each claims 8 bytes times rows."""
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(entries):
            archive.writestr(f"key_{number}.npy", header.getvalue())
    return path


def test_entries_are_bounded_together(tmp_path):
    path = write_claims(tmp_path / "claims.npz", 3, 10**8)  # .75 GiB each
    with pytest.raises(InputError, match=r"claims to hold 2\.2 GiB"):
        read_forecasts(path, path)


def test_a_grid_of_many_dimensions_is_bounded_by_its_coordinates(tmp_path):
    h5netcdf = pytest.importorskip("h5netcdf")
    path = tmp_path / "grid.nc"
    with h5netcdf.File(path, "w") as file:
        names = [f"d{i}" for i in range(22)] + ["sample"]
        file.dimensions = dict.fromkeys(names, 2)
        file.create_variable("rain", tuple(names), "i1", chunks=(2,) * 23, compression="gzip")
    with pytest.raises(InputError, match="claims to hold"):
        read_forecasts(path, path)


@pytest.mark.parametrize(
    "odd",
    [
        {"sample_axis": np.zeros(0, dtype=int)},
        {"key_day": np.array(["\ud800"] * 5)},
        {"targets": np.array([f"t{i}" for i in range(200_000)])},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_odd_arrays_are_read_or_refused(odd, tmp_path):
    path = tmp_path / "odd.npz"
    np.savez(path, samples=np.zeros((3, 5, 2)), observations=np.zeros((5, 2)), **odd)
    if "sample_axis" in odd:
        assert read_forecasts(path, path).observations.shape == (5, 2)
        return
    with pytest.raises(InputError, match=r"odd\.npz"):
        read_forecasts(path, path)


@pytest.mark.parametrize("label", [[1], {"a": 1}], ids=str)
def test_samples_are_not_numbered_by_lists(label, tmp_path):
    days = [day for day in range(4) for _ in range(3)]
    long = pa.table({"day": days, "sample": [label] * 12, "rain": np.arange(12.0)})
    parquet.write_table(long, tmp_path / "long.parquet")
    observed = pa.table({"day": range(4), "rain": np.arange(4.0)})
    parquet.write_table(observed, tmp_path / "observed.parquet")
    with pytest.raises(InputError, match=r"long\.parquet: column 'sample' for the samples holds"):
        read_forecasts(tmp_path / "long.parquet", tmp_path / "observed.parquet")


ASIDE = {
    "a target as clusters": (
        "s.csv",
        WIDE,
        "y.csv",
        TRUTH,
        {"cluster": "u"},
        "'u' is a target",
    ),
    "a target as times": ("s.csv", WIDE, "y.csv", TRUTH, {"time": "v"}, "'v' is a target"),
    "arrays without times": (
        *("s.npy", np.zeros((3, 2, 2)), "y.npy", np.zeros((2, 2))),
        *({"time": "day"}, "an array holds no 'day': give the observations as a table"),
    ),
}


@pytest.mark.parametrize("case", ASIDE.values(), ids=ASIDE)
def test_times_and_clusters_that_are_none(case, tmp_path):
    name, samples, other, observations, options, words = case
    first, second = write(tmp_path / name, samples), write(tmp_path / other, observations)
    with pytest.raises(InputError, match=words):
        read_forecasts(first, second, **options)
