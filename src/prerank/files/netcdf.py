"""Samples and observations in netCDF files, through xarray."""

import io
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.alignment import Choices, Matched, Stack
from prerank.files.columns import as_arrow
from prerank.files.disk import check_size
from prerank.files.frames import Frame, find_name, listed, naming, option
from prerank.files.sample_tables import SAMPLE_NAMES, find_sample_name

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["SampleGrid", "dataset_bytes", "read_dataset"]

_CLASSIC, _HDF5 = b"CDF", b"\x89HDF"


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
            decode_coords="all",  # bounds and grid mappings are no targets
            decode_timedelta=False,  # "hours" may be the unit of a target
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


@dataclass(frozen=True, eq=False)
class SampleGrid:
    """A netCDF file of samples or observations.

    Attributes:
        path: of the file.
        dataset: what it holds.
    """

    path: Path
    dataset: "xr.Dataset"

    has_observations = False

    def names(self) -> set[str]:
        """All names: of variables and dimensions."""
        return {str(name) for name in (*self.dataset.variables, *self.dataset.dims)}

    def offered(self, choices: Choices) -> tuple[str, ...]:
        """The variables with numbers, which may be targets."""
        return tuple(str(n) for n, v in self.dataset.data_vars.items() if v.dtype.kind in "fiu")

    def observations(self, choices: Choices, offered: Collection[str]) -> Frame:
        """Turn variables that span the same dimensions, and their coordinates, into columns."""
        known = self.offered(choices)
        names = choices.targets or tuple(name for name in known if name in offered) or known
        if not names:
            raise InputError("there is no variable with numbers for a target")
        dims = self._dimensions(names)
        frame = self._coordinates(dims)
        columns = {name: as_arrow(self._values(name, dims).ravel()) for name in names}
        return replace(frame, columns={**frame.columns, **columns})

    def match(self, observations: Frame, choices: Choices) -> Matched:
        """Match the samples with observations."""
        member = self._member(choices)
        known = tuple(name for name in self.offered(choices) if member in self.dataset[name].dims)
        targets = choices.targets or tuple(n for n in observations.columns if n in known)
        if not targets:
            raise InputError(
                f"none of the variables {listed(known) or '(there are none)'} with dimension "
                f"{member!r} is in {observations.path.name}, which has "
                f"{listed(observations.columns)}: name them alike"
            )
        return self.stack(targets, choices).match(observations, choices)

    def stack(self, targets: tuple[str, ...], choices: Choices) -> Stack:
        """The samples of some targets, with a row for each place of the grid."""
        member = self._member(choices)
        known = tuple(name for name in self.offered(choices) if member in self.dataset[name].dims)
        dims = self._dimensions(targets)
        if member not in dims:
            raise InputError(f"variable {targets[0]!r} has no dimension {member!r} of samples")
        rows = tuple(name for name in dims if name != member)
        frame = self._coordinates(rows)
        values = [self._values(n, (member, *rows)).reshape(-1, frame.size) for n in targets]

        def place(s: int, r: int, d: int) -> str:
            where = frame.described(rows, r)
            return f"sample {s}, counted from 0, of {targets[d]!r} for {where}"

        return Stack(frame, np.stack(values, axis=-1), targets, place, known, (member,))

    def replaced(self, values: npt.NDArray[np.float64], stack: Stack) -> "xr.Dataset":
        """The dataset with other samples `(S, N, D)` in the place of those of a stack."""
        changed = self.dataset.copy()
        (member,) = stack.taken
        for d, name in enumerate(stack.targets):
            old = self.dataset[name]
            rows = {str(dim): size for dim, size in old.sizes.items() if dim != member}
            rows = {dim: rows[dim] for dim in stack.frame.dims}
            new = old.variable.transpose(member, *rows).copy(
                data=values[..., d].reshape(-1, *rows.values())
            )
            new = new.transpose(*old.dims)
            if old.dtype.kind == "f":
                new = new.astype(old.dtype)
            new.encoding = {}  # numbers that were packed may not fit into so few bits any more
            changed[name] = new
        return changed

    def _member(self, choices: Choices) -> str:
        """The dimension of the samples."""
        sizes = {str(name): size for name, size in self.dataset.sizes.items()}
        member = find_sample_name(sizes, choices.sample, "dimension")
        if member is None:
            raise InputError(
                f"no dimension numbers the samples; there are {listed(sizes) or 'none'}: call it "
                f"{', '.join(SAMPLE_NAMES)}, or name it with {option('sample')}"
            )
        return member

    def _dimensions(self, names: Sequence[str]) -> tuple[str, ...]:
        """The dimensions of the first variable, which the others must have too."""
        variables = {str(name) for name in self.dataset.data_vars}
        for name in names:
            find_name(name, variables, " for a target")
        first = tuple(str(dim) for dim in self.dataset[names[0]].dims)
        for name in names[1:]:
            dims = tuple(str(dim) for dim in self.dataset[name].dims)
            if set(dims) != set(first):
                raise InputError(
                    f"{names[0]!r} has dimensions {listed(first)} and {name!r} "
                    f"{listed(dims) or 'none'}: all targets need the same"
                )
        return first

    def _values(self, name: str, dims: tuple[str, ...]) -> npt.NDArray[np.float64]:
        variable = self.dataset[name]
        if variable.dtype.kind not in "fiub":
            raise InputError(
                f"variable {name!r} holds {variable.dtype}: only numbers can be used for a target"
            )
        if variable.size == 0:
            raise InputError(f"variable {name!r} is empty: its shape is {variable.shape}")
        return variable.transpose(*dims).to_numpy().astype(np.float64)

    def _coordinates(self, dims: tuple[str, ...]) -> Frame:
        """One row for each place of the grid, with all coordinates that depend on nothing else."""
        import xarray as xr

        sizes = {dim: self.dataset.sizes[dim] for dim in dims}
        bare = frozenset(dim for dim in dims if dim not in self.dataset.coords)
        variables: dict[str, Any] = {dim: xr.Variable(dim, np.arange(sizes[dim])) for dim in bare}
        variables |= {str(name): values.variable for name, values in self.dataset.coords.items()}
        columns = {
            name: as_arrow(variable.set_dims(sizes).to_numpy().ravel())
            for name, variable in variables.items()
            if set(variable.dims) <= set(dims)
        }
        return Frame(self.path, math.prod(sizes.values()), columns, sizes, bare)
