"""Files that mean harm: small ones that claim much, and odd contents."""

import io
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from prerank.errors import InputError
from prerank.files import read_forecasts

OBSERVED = np.zeros((5, 2))


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
    np.savez(path, samples=np.zeros((3, 5, 2)), observations=OBSERVED, **odd)
    if "sample_axis" in odd:
        assert read_forecasts(path, path).observations.shape == (5, 2)
        return
    with pytest.raises(InputError, match=r"odd\.npz"):
        read_forecasts(path, path)


@pytest.mark.parametrize("label", [[1], {"a": 1}, [[None]]], ids=str)
def test_samples_are_not_numbered_by_lists(label, tmp_path):
    days = [day for day in range(4) for _ in range(3)]
    long = pa.table({"day": days, "sample": [label] * 12, "rain": np.arange(12.0)})
    parquet.write_table(long, tmp_path / "long.parquet")
    observed = pa.table({"day": range(4), "rain": np.arange(4.0)})
    parquet.write_table(observed, tmp_path / "observed.parquet")
    with pytest.raises(InputError, match=r"long\.parquet: column 'sample' for the samples holds"):
        read_forecasts(tmp_path / "long.parquet", tmp_path / "observed.parquet")
