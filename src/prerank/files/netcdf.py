"""Samples and observations in netCDF files, through xarray."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.alignment import choose_keys, find_places, one_each
from prerank.files.checks import check_size
from prerank.files.forecast_parts import Choices, Matched
from prerank.files.frames import Frame, as_arrow, find_name, listed, option
from prerank.files.sample_tables import SAMPLE_NAMES, find_sample_name

if TYPE_CHECKING:
    import pyarrow as pa
    import xarray as xr

__all__ = ["dataset_observations", "dataset_targets", "match_dataset", "read_dataset"]

_CLASSIC, _HDF5 = b"CDF", b"\x89HDF"


def read_dataset(path: Path) -> "xr.Dataset":
    """Read a netCDF file of either format into memory.

    Raises:
        InputError: when xarray is not installed, or the file is broken.
    """
    try:
        import h5netcdf  # noqa: F401
        import h5py  # noqa: F401
        import xarray as xr
    except ImportError as error:
        raise InputError(
            f"{path}: netCDF files need more libraries: pip install xarray h5netcdf h5py, or "
            "install prerank with its extra 'netcdf'"
        ) from error
    with path.open("rb") as file:
        start = file.read(4)
    if not start.startswith((_CLASSIC, _HDF5)):
        raise InputError(f"{path}: not a netCDF file: it begins with {start!r}")
    try:
        if start.startswith(_HDF5):
            _check_contents(path)
        with xr.open_dataset(
            path,
            engine="scipy" if start.startswith(_CLASSIC) else "h5netcdf",
            decode_coords="all",  # bounds and grid mappings are no targets
            decode_timedelta=False,  # "hours" may be the unit of a target
        ) as dataset:
            return dataset.load()
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # what the two libraries raise on broken files is not documented
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a netCDF file that can be read: {reason}") from error


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
        # As they will be read: float64, with a column for each coordinate.
        claimed += max(item.nbytes, 8 * item.size * (1 + item.ndim))
        return name if item.external or item.is_virtual else None

    with h5py.File(path, "r") as file:
        found = file.visititems_links(elsewhere) or file.visititems(borrowed)
    if found is not None:
        raise InputError(f"{found!r} lies in another file: copy its values into this one")
    check_size(path, claimed)


def dataset_targets(dataset: "xr.Dataset") -> tuple[str, ...]:
    """The variables with numbers, which may be targets."""
    return tuple(str(n) for n, v in dataset.data_vars.items() if v.dtype.kind in "fiu")


def dataset_observations(path: Path, dataset: "xr.Dataset", names: Sequence[str]) -> Frame:
    """Turn variables that span the same dimensions, and their coordinates, into columns.

    Args:
        path: of the file.
        dataset: what it holds.
        names: of the variables.
    """
    dims = _dimensions(path, dataset, names)
    frame = _coordinates(path, dataset, dims)
    columns = {name: as_arrow(_values(path, dataset, name, dims).ravel()) for name in names}
    return Frame(path, frame.size, {**frame.columns, **columns}, frame.dims, frame.bare)


def match_dataset(
    path: Path, dataset: "xr.Dataset", observations: Frame, choices: Choices
) -> Matched:
    """Read the samples of a dataset, and match its forecasts with their observations."""
    sizes = {str(name): size for name, size in dataset.sizes.items()}
    member = find_sample_name(Frame(path, 0, {}), sizes, choices.sample, "dimension")
    if member is None:
        raise InputError(
            f"{path}: no dimension numbers the samples; there are {listed(sizes) or 'none'}: call "
            f"it {', '.join(SAMPLE_NAMES)}, or name it with {option('sample')}"
        )
    known = [name for name in dataset_targets(dataset) if member in dataset[name].dims]
    targets = choices.targets or tuple(n for n in observations.columns if n in known)
    if not targets:
        raise InputError(
            f"{path}: none of the variables {listed(known) or '(there are none)'} with dimension "
            f"{member!r} is in {observations.path.name}, which has {listed(observations.columns)}: "
            "name them alike"
        )
    dims = _dimensions(path, dataset, targets)
    if member not in dims:
        raise InputError(f"{path}: variable {targets[0]!r} has no dimension {member!r} of samples")
    rows = tuple(name for name in dims if name != member)
    frame = _coordinates(path, dataset, rows)
    values = np.stack(
        [
            _values(path, dataset, name, (member, *rows)).reshape(sizes[member], frame.size)
            for name in targets
        ],
        axis=-1,
    )  # (S, N, D)
    if choices.key is None:
        keys = choose_keys(frame, observations, (*targets, member), choices.by)
    else:
        keys = choices.key
    places = find_places(frame, observations, keys, chosen=choices.key is not None, by_order=True)
    order = one_each(frame, places)

    def place(s: int, n: int, d: int) -> str:
        where = frame.described(rows, int(order[n]))
        return f"sample {s}, counted from 0, of {targets[d]!r} for {where}"

    return Matched(
        values[:, order],
        tuple(targets),
        places.rows[order],
        place,
        frame,
        order,
        tuple(known),
        places.remarks,
    )


def _dimensions(path: Path, dataset: "xr.Dataset", names: Sequence[str]) -> tuple[str, ...]:
    """The dimensions of the first variable, which the others must have too."""
    variables = {str(name) for name in dataset.data_vars}
    for name in names:
        find_name(path, name, variables, " for a target")
    first = tuple(str(dim) for dim in dataset[names[0]].dims)
    for name in names[1:]:
        dims = tuple(str(dim) for dim in dataset[name].dims)
        if set(dims) != set(first):
            raise InputError(
                f"{path}: {names[0]!r} has dimensions {listed(first)} and {name!r} "
                f"{listed(dims) or 'none'}: all targets need the same"
            )
    return first


def _values(
    path: Path, dataset: "xr.Dataset", name: str, dims: tuple[str, ...]
) -> npt.NDArray[np.float64]:
    variable = dataset[name]
    if variable.dtype.kind not in "fiub":
        raise InputError(
            f"{path}: variable {name!r} holds {variable.dtype}: only numbers can be used for a "
            "target"
        )
    if variable.size == 0:
        raise InputError(f"{path}: variable {name!r} is empty: its shape is {variable.shape}")
    return variable.transpose(*dims).to_numpy().astype(np.float64)


def _coordinates(path: Path, dataset: "xr.Dataset", dims: tuple[str, ...]) -> Frame:
    """One row for each place of the grid, with all coordinates that depend on nothing else."""
    sizes = {dim: dataset.sizes[dim] for dim in dims}
    shape = tuple(sizes.values())
    columns: dict[str, pa.ChunkedArray] = {}
    bare = frozenset(dim for dim in dims if dim not in dataset.coords)
    for dim in bare:
        steps = [sizes[dim] if other == dim else 1 for other in dims]
        columns[dim] = as_arrow(
            np.broadcast_to(np.arange(sizes[dim]).reshape(steps), shape).ravel()
        )
    for name, coordinate in dataset.coords.items():
        own = [dim for dim in dims if dim in coordinate.dims]
        if len(own) < coordinate.ndim:
            continue
        steps = [sizes[dim] if dim in own else 1 for dim in dims]
        values = coordinate.transpose(*own).to_numpy().reshape(steps)
        columns[str(name)] = as_arrow(np.broadcast_to(values, shape).ravel())
    return Frame(path, int(np.prod(shape, dtype=np.int64)), columns, sizes, bare)
