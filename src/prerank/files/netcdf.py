"""Reading netCDF files and zarr stores, whole or where they are used, and netCDF files as bytes."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.disk import check_size
from prerank.files.frames import naming

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["NETCDF", "ZARR", "dataset_bytes", "open_grid", "read_grid", "stored_values"]

NETCDF = (".nc", ".nc4", ".netcdf")
"""Suffixes of netCDF files."""
ZARR = (".zarr",)
"""Suffixes of the folders that are zarr stores."""
_CLASSIC, _HDF5 = b"CDF", b"\x89HDF"
_METADATA = (".zarray", ".zmetadata", "zarr.json")
# Bounds and grid mappings are no targets, and "hours" may be the unit of one.
_DECODING: dict[str, Any] = {"decode_coords": "all", "decode_timedelta": False}


@contextmanager
def open_grid(path: Path) -> Iterator["xr.Dataset"]:
    """Open a netCDF file of either format, or a zarr store, whose values are read on use.

    Raises:
        InputError: when the file is broken, as far as that shows before its values are read.
    """
    with _refusing(path):
        dataset = _open_store(path) if path.suffix.lower() in ZARR else _open_file(path)
    with dataset:
        yield dataset


def read_grid(path: Path) -> "xr.Dataset":
    """Read a netCDF file of either format, or a zarr store, into memory.

    Raises:
        InputError: when the file is broken.
    """
    with open_grid(path) as dataset, _refusing(path):
        return dataset.load()


def stored_values(path: Path, variable: "xr.Variable") -> "xr.Variable":
    """The values of a variable of an open file; errors while they are read name the file.

    Values in half precision become float32, which ranks need.
    """
    import xarray as xr
    from xarray.core import indexing

    kind = np.dtype(np.float32) if variable.dtype == np.float16 else variable.dtype

    def read(key: Any) -> npt.NDArray[Any]:
        with _refusing(path):
            return variable[key].to_numpy().astype(kind, copy=False)

    class Stored(xr.backends.BackendArray):
        shape, dtype = variable.shape, kind

        def __getitem__(self, key: Any) -> Any:
            outer = indexing.IndexingSupport.OUTER
            return indexing.explicit_indexing_adapter(key, variable.shape, outer, read)

    values = indexing.LazilyIndexedArray(Stored())
    return xr.Variable(variable.dims, values, encoding=variable.encoding)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what the libraries raise on broken files, which is not documented, into one error."""
    try:
        yield
    except (InputError, ModuleNotFoundError):
        raise
    except Exception as error:
        kind = "zarr store" if path.suffix.lower() in ZARR else "netCDF file"
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a {kind} that can be read: {reason}") from error


def _open_file(path: Path) -> "xr.Dataset":
    import h5netcdf  # noqa: F401
    import h5py  # noqa: F401
    import xarray as xr

    with path.open("rb") as file:
        start = file.read(4)
    if not start.startswith((_CLASSIC, _HDF5)):
        raise InputError(f"{path}: not a netCDF file: it begins with {start!r}")
    if start.startswith(_HDF5):
        with naming(path):
            _check_contents(path)
    engine = "scipy" if start.startswith(_CLASSIC) else "h5netcdf"
    return xr.open_dataset(path, engine=engine, **_DECODING)


def _open_store(path: Path) -> "xr.Dataset":
    import xarray as xr
    import zarr  # noqa: F401

    with naming(path):
        stored = _check_store(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of stores without consolidated metadata
        dataset = xr.open_zarr(path, chunks=None, **_DECODING)
    with naming(path):
        check_size(path, sum(_bytes_read(v) for v in dataset.variables.values()), stored)
    return dataset


def dataset_bytes(dataset: "xr.Dataset") -> bytes:
    """A netCDF file in memory: on a full disk, the library would end the process."""
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        dataset.dump_to_store(H5NetCDFStore(file))
    return buffer.getvalue()


def _bytes_read(values: Any) -> int:
    """Bytes that an array takes as it is read: float64, with a column for each coordinate."""
    return max(values.nbytes, 8 * values.size * (1 + values.ndim))


def _check_store(path: Path) -> int:
    """Refuse a store that takes values from elsewhere, or whose decoding runs code.

    Returns:
        The bytes that it has.
    """
    stored = 0
    for file in path.rglob("*"):
        if file.is_symlink():
            raise InputError(f"{file.relative_to(path)} is a link: copy its values into the store")
        if file.is_file():
            stored += file.stat().st_size
            if file.name in _METADATA and "pickle" in _codecs(json.loads(file.read_bytes())):
                raise InputError("it holds pickled objects, which can run code: store numbers")
    return stored


def _codecs(metadata: Any) -> set[str]:
    """Names of the codecs in metadata of zarr: values of `id` (format 2) and `name` (format 3)."""
    if isinstance(metadata, list):
        return set().union(*map(_codecs, metadata))
    if not isinstance(metadata, dict):
        return set()
    own = {str(metadata.get(key)).rpartition(".")[2] for key in ("id", "name")}
    return own.union(*map(_codecs, metadata.values()))


def _check_contents(path: Path) -> None:
    """Refuse a file that takes its values from other files, or claims more than it can hold."""
    import h5py

    claimed = 0

    # What these return ends the visit; what they raised would get lost in the library.
    def elsewhere(name: str, link: object) -> str | None:
        return name if isinstance(link, h5py.ExternalLink) else None

    def borrowed(name: str, item: object) -> str | None:
        nonlocal claimed
        if not isinstance(item, h5py.Dataset):
            return None
        claimed += _bytes_read(item)
        return name if item.external or item.is_virtual else None

    with h5py.File(path, "r") as file:
        found = file.visititems_links(elsewhere) or file.visititems(borrowed)
    if found is not None:
        raise InputError(f"{found!r} lies in another file: copy its values into this one")
    check_size(path, claimed)
