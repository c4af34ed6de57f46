"""Samples and observations in the array files of numpy."""

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.files.alignment import choose_keys, find_places, one_each
from prerank.files.checks import check_size
from prerank.files.forecast_parts import Choices, Matched
from prerank.files.frames import Frame, as_arrow, find_name, is_numeric, listed, option

__all__ = ["KEY_PREFIX", "array_names", "array_observations", "match_array", "read_arrays"]

KEY_PREFIX = "key_"
_SAMPLES, _OBSERVATIONS, _TARGETS, _AXIS = "samples", "observations", "targets", "sample_axis"

_ARCHIVE = b"PK"  # how a zip file begins
_HEADERS: dict[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

Arrays = Mapping[str, npt.NDArray[Any]]


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of an .npz file, or that of an .npy file, whose name is then empty."""
    try:
        with path.open("rb") as file:
            if file.read(len(_ARCHIVE)) != _ARCHIVE:
                check_size(path, _claimed(lambda: path.open("rb")))
                return {"": _read(lambda: path.open("rb"))}
            with zipfile.ZipFile(file) as archive:
                begin = {name: partial(archive.open, name) for name in archive.namelist()}
                check_size(path, sum(map(_claimed, begin.values())))
                return {name.removesuffix(".npy"): _read(b) for name, b in begin.items()}
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # what a broken file raises is not documented
        objects = "Object arrays" in str(error)
        reason = "holds Python objects" if objects else "is damaged, or was not written by numpy"
        raise InputError(
            f"{path}: the file {reason}: write arrays of numbers anew, with numpy.save or "
            "numpy.savez"
        ) from error


def _claimed(begin: Callable[[], IO[bytes]]) -> int:
    """Bytes that an array takes by its header."""
    with begin() as stream:
        header = _HEADERS[np.lib.format.read_magic(stream)]
        shape, _, dtype = header(stream)
        return math.prod(shape) * int(dtype.itemsize)


def _read(begin: Callable[[], IO[bytes]]) -> npt.NDArray[Any]:
    with begin() as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def array_names(arrays: Arrays) -> tuple[str, ...] | None:
    """Names of the targets, where a file holds them in an array `targets`."""
    stored = arrays.get(_TARGETS)
    return None if stored is None else tuple(str(name) for name in np.ravel(stored))


def array_observations(path: Path, arrays: Arrays, names: Sequence[str] | None) -> Frame:
    """Turn the observations of a file into columns.

    Args:
        path: of the file.
        arrays: what it holds: `observations`, or an array that is the only one.
        names: of the targets, where the file does not name them; y0, y1, ... by default.

    Example:
        >>> frame = array_observations(Path("y.npy"), {"": np.zeros((5, 2))}, None)
        >>> frame.size, list(frame.columns)
        (5, ['y0', 'y1'])
    """
    values = _numbers(path, arrays, _OBSERVATIONS)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2:
        raise ShapeError(f"{path}: observations have shape {values.shape}: they must be (N, D)")
    stored = array_names(arrays) or names
    known = tuple(f"y{d}" for d in range(values.shape[1])) if stored is None else tuple(stored)
    if len(known) != values.shape[1]:
        raise ShapeError(
            f"{path}: observations have shape {values.shape}, and {len(known)} targets are named: "
            f"{listed(known)}; name them with {option('targets')}"
        )
    columns = dict(zip(known, map(as_arrow, values.T), strict=True))
    return Frame(path, len(values), columns | _keys(path, arrays, len(values)))


def match_array(path: Path, arrays: Arrays, observations: Frame, choices: Choices) -> Matched:
    """Read the samples of a file of arrays, and match its forecasts with their observations."""
    values = _numbers(path, arrays, _SAMPLES)
    lengths = {len(a) for name, a in arrays.items() if name.startswith(KEY_PREFIX) and a.ndim == 1}
    size = lengths.pop() if len(lengths) == 1 else observations.size
    frame = Frame(path, size, _keys(path, arrays, size))
    stored = array_names(arrays)
    targets = _targets(path, stored, frame, observations, choices)
    names = targets if stored is None else stored
    axis = choices.sample_axis
    if axis is None and _AXIS in arrays and arrays[_AXIS].dtype.kind == "i" and arrays[_AXIS].size:
        axis = int(arrays[_AXIS].flat[0])
    values, remarks = _samples_first(path, values, (size, len(names)), axis)
    if choices.key is None:
        keys = choose_keys(frame, observations, targets, choices.by)
    else:
        keys = choices.key
    tabled = observations.path.suffix.lower() not in (".npy", ".npz")
    if stored is None and choices.targets is None and tabled:
        remarks = (*remarks, f"targets were taken to be {listed(targets)}, in this order")
    if not keys and len(observations.columns) > len(targets):
        remarks = (*remarks, "forecasts and observations were matched by their order")
    places = find_places(frame, observations, keys, chosen=choices.key is not None, by_order=True)
    order = one_each(frame, places)
    chosen = values[:, order][..., [names.index(name) for name in targets]]

    def place(s: int, n: int, d: int) -> str:
        return f"sample {s}, row {order[n]} of {targets[d]!r}, counted from 0"

    rows = places.rows[order]
    return Matched(chosen, targets, rows, place, frame, order, names, (*remarks, *places.remarks))


def _targets(
    path: Path,
    stored: tuple[str, ...] | None,
    frame: Frame,
    observations: Frame,
    choices: Choices,
) -> tuple[str, ...]:
    others = {choices.by, *(choices.key or ()), *frame.columns}
    if choices.targets is not None:
        for name in choices.targets if stored is not None else ():
            find_name(path, name, stored or (), " for a target")
        return choices.targets
    if stored is None:
        columns = observations.columns.items()
        return tuple(n for n, column in columns if n not in others and is_numeric(column))
    found = tuple(n for n in observations.columns if n in stored and n not in others)
    if not found:
        raise InputError(
            f"{path}: none of its targets {listed(stored)} is in {observations.path.name}, which "
            f"has {listed(observations.columns)}: name them alike"
        )
    return found


def _samples_first(
    path: Path, values: npt.NDArray[np.float64], rest: tuple[int, int], axis: int | None
) -> tuple[npt.NDArray[np.float64], tuple[str, ...]]:
    """Bring samples to `(S, N, D)`; where nobody names their axis, the shape has to tell."""
    shape = values.shape
    full = values[..., None] if values.ndim == 2 and rest[1] == 1 else values
    fits = [a for a in range(values.ndim) if full.ndim == 3 and _without(full.shape, a) == rest]
    if axis is not None:
        if not -values.ndim <= axis < values.ndim:
            raise InputError(
                f"{path}: {option(_AXIS)} is {axis}, but samples have shape {shape}: axes count "
                "from 0"
            )
        axis %= values.ndim
        fits = [a for a in fits if a == axis]
    if not fits:
        wanted = f"(S, {rest[0]}, {rest[1]})" + (f" or (S, {rest[0]})" if rest[1] == 1 else "")
        said = "" if axis is None else f" when axis {axis} is that of the samples"
        raise ShapeError(
            f"{path}: samples have shape {shape}, which does not fit {rest[0]} rows and {rest[1]} "
            f"targets{said}: they should be {wanted}; if there are other targets, name them with "
            f"{option('targets')}"
        )
    chosen = fits[0]
    remarks = []
    if axis is None and len(fits) > 1:
        others = " or ".join(str(a) for a in fits[1:])
        remarks.append(
            f"the sample axis was taken to be {chosen}, though {others} would fit the shape "
            f"{shape} as well"
        )
    elif axis is None and chosen != 0:
        remarks.append(f"the sample axis was taken to be {chosen}: only that fits shape {shape}")
    return np.moveaxis(full, chosen, 0), tuple(remarks)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _numbers(path: Path, arrays: Arrays, name: str) -> npt.NDArray[np.float64]:
    """The array of that name, or the only one, in float64."""
    reserved = {_SAMPLES, _OBSERVATIONS, _TARGETS, _AXIS} - {name}
    free = [n for n in arrays if n not in reserved and not n.startswith(KEY_PREFIX)]
    chosen = name if name in arrays else free[0] if len(free) == 1 else None
    if chosen is None:
        raise InputError(
            f"{path}: no array {name!r}; there are {listed(list(arrays)) or 'none'}: give it that "
            "name"
        )
    values = arrays[chosen]
    if values.dtype.kind not in "fiub":
        raise InputError(f"{path}: {name} are of type {values.dtype}: only numbers can be used")
    if values.size == 0:
        raise ShapeError(f"{path}: {name} have shape {values.shape}: there is nothing in them")
    return values.astype(np.float64)


def _keys(path: Path, arrays: Arrays, size: int) -> dict[str, Any]:
    keys = {n: a for n, a in arrays.items() if n.startswith(KEY_PREFIX)}
    for name, values in keys.items():
        if values.shape != (size,):
            raise ShapeError(
                f"{path}: array {name!r} has shape {values.shape}, where there are {size} forecasts"
            )
    return {name.removeprefix(KEY_PREFIX): as_arrow(values) for name, values in keys.items()}
