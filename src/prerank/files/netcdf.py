"""Reading netCDF files and zarr stores into memory, and netCDF files as bytes."""

import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.errors import InputError
from prerank.files.disk import check_size
from prerank.files.frames import naming

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["dataset_bytes", "read_dataset", "read_store"]

_CLASSIC, _HDF5 = b"CDF", b"\x89HDF"
_METADATA = (".zarray", ".zmetadata", "zarr.json")
# Bounds and grid mappings are no targets, and "hours" may be the unit of one.
_DECODING: dict[str, Any] = {"decode_coords": "all", "decode_timedelta": False}


def read_dataset(path: Path) -> "xr.Dataset":
    """Read a netCDF file of either format into memory.

    Raises:
        InputError: when the file is broken.
    """
    import h5netcdf  # noqa: F401
    import h5py  # noqa: F401
    import xarray as xr

    with path.open("rb") as file:
        start = file.read(4)
    if not start.startswith((_CLASSIC, _HDF5)):
        raise InputError(f"{path}: not a netCDF file: it begins with {start!r}")
    try:
        if start.startswith(_HDF5):
            with naming(path):
                _check_contents(path)
        with xr.open_dataset(
            path,
            engine="scipy" if start.startswith(_CLASSIC) else "h5netcdf",
            **_DECODING,
        ) as dataset:
            return dataset.load()
    except InputError:
        raise
    except Exception as error:  # what the two libraries raise on broken files is not documented
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a netCDF file that can be read: {reason}") from error


def dataset_bytes(dataset: "xr.Dataset") -> bytes:
    """A netCDF file in memory: on a full disk, the library would end the process."""
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        dataset.dump_to_store(H5NetCDFStore(file))
    return buffer.getvalue()


def read_store(path: Path) -> "xr.Dataset":
    """Read a zarr store, a folder, into memory.

    Raises:
        InputError: when the store is broken.
    """
    import xarray as xr
    import zarr  # noqa: F401

    try:
        with naming(path):
            stored = _check_store(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of stores without consolidated metadata
            dataset = xr.open_zarr(path, chunks=None, **_DECODING)
        with naming(path), dataset:
            check_size(path, sum(_bytes_read(v) for v in dataset.variables.values()), stored)
            return dataset.load()
    except InputError:
        raise
    except Exception as error:  # nor are those of zarr
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a zarr store that can be read: {reason}") from error


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
