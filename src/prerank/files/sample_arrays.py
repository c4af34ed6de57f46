"""Samples and observations in the array files of numpy."""

import math
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.files.alignment import Choices, Matched, Stack
from prerank.files.columns import as_arrow
from prerank.files.disk import check_size
from prerank.files.frames import Frame, find_name, listed, naming, option, positions
from prerank.inputs import repeated

__all__ = ["KEY_PREFIX", "SampleArrays", "read_arrays"]

KEY_PREFIX = "key_"
_SAMPLES, _OBSERVATIONS, _TARGETS, _AXIS = "samples", "observations", "targets", "sample_axis"

_ARCHIVE = b"PK"  # how a zip file begins


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of an .npz file, or that of an .npy file, whose name is then empty."""
    try:
        with naming(path), path.open("rb") as file:
            if file.read(len(_ARCHIVE)) != _ARCHIVE:
                check_size(path, _claimed(lambda: path.open("rb")))
                return {"": _read(lambda: path.open("rb"))}
            with zipfile.ZipFile(file) as archive:
                begin = {name: partial(archive.open, name) for name in archive.namelist()}
                check_size(path, sum(map(_claimed, begin.values())))
                return {name.removesuffix(".npy"): _read(b) for name, b in begin.items()}
    except InputError:
        raise
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
        version = "{}_{}".format(*np.lib.format.read_magic(stream))
        shape, _, dtype = getattr(np.lib.format, f"read_array_header_{version}")(stream)
        return math.prod(shape) * int(dtype.itemsize)


def _read(begin: Callable[[], IO[bytes]]) -> npt.NDArray[Any]:
    with begin() as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


@dataclass(frozen=True, eq=False)
class SampleArrays:
    """A file of arrays with samples, observations or both.

    Attributes:
        path: of the file.
        arrays: by name; the one of an .npy file has an empty name.
    """

    path: Path
    arrays: Mapping[str, npt.NDArray[Any]]

    @property
    def has_observations(self) -> bool:
        """Whether a file of samples has observations too."""
        return _OBSERVATIONS in self.arrays

    def names(self) -> set[str]:
        """Names of targets and keys; repeated targets raise."""
        targets = self._stored() or ()
        again = repeated(targets)
        if again:
            raise InputError(
                f"the array 'targets' names {', '.join(again)} more than once: give each target a "
                "name of its own"
            )
        keys = (n.removeprefix(KEY_PREFIX) for n in self.arrays if n.startswith(KEY_PREFIX))
        return {*targets, *keys}

    def offered(self, choices: Choices) -> tuple[str, ...]:
        """Names of the targets, where an array `targets` holds them."""
        return self._stored() or ()

    def observations(self, choices: Choices, offered: Collection[str]) -> Frame:
        """Turn the array `observations`, or the only one, into columns.

        Its own names come first, then those that the caller chose, those that the samples offer,
        and y0, y1, ...

        Example:
            >>> source = SampleArrays(Path("y.npy"), {"": np.zeros((5, 2))})
            >>> frame = source.observations(Choices(), ())
            >>> frame.size, list(frame.columns)
            (5, ['y0', 'y1'])
        """
        values = self._values(_OBSERVATIONS)
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2:
            raise ShapeError(f"observations have shape {values.shape}: they must be (N, D)")
        default = [f"y{d}" for d in range(values.shape[1])]
        known = tuple(self._stored() or choices.targets or offered or default)
        if len(known) != values.shape[1]:
            raise ShapeError(
                f"observations have shape {values.shape}, and {len(known)} targets are named: "
                f"{listed(known)}; name them with {option('targets')}"
            )
        columns = dict(zip(known, map(as_arrow, values.T), strict=True))
        return Frame(self.path, len(values), columns | self._keys(len(values)))

    def match(self, observations: Frame, choices: Choices) -> Matched:
        """Match the samples with observations."""
        stored = self._stored()
        size = self._key_size() or observations.size
        frame = Frame(self.path, size, self._keys(size))
        others = {choices.by, *choices.aside, *(choices.key or ()), *frame.columns}
        known = observations.numeric if stored is None else observations.columns
        free = (n for n in known if n not in others and (stored is None or n in stored))
        targets = choices.targets or tuple(free)
        for name in () if stored is None else targets:
            find_name(name, stored or (), " for a target")
        if stored is not None and not targets:
            raise InputError(
                f"none of its targets {listed(stored)} is in {observations.path.name}, which has "
                f"{listed(observations.columns)}: name them alike"
            )
        names = targets if stored is None else stored
        values = self._values(_SAMPLES)
        axis, remarks = _sample_axis(values, (size, len(names)), self._given_axis(choices))
        values = _samples_first(values, axis)
        tabled = observations.path.suffix.lower() not in (".npy", ".npz")
        if stored is None and choices.targets is None and tabled:
            remarks = (*remarks, f"targets were taken to be {listed(targets)}, in this order")

        def place(s: int, r: int, d: int) -> str:
            return f"sample {s}, row {r} of {targets[d]!r}, counted from 0"

        chosen = values[..., positions(targets, names)]
        stack = Stack(frame, chosen, targets, place, names, remarks=remarks)
        return replace(stack.match(observations, choices), sample_axis=axis)

    def alone(self, choices: Choices) -> tuple[Stack, str, int]:
        """Samples without observations: with the name of their array, and the axis of the samples.

        Without a key to count the forecasts, samples whose axis is not given come first.
        """
        stored, targets = self._stored(), choices.targets or ()
        names = targets if stored is None else stored
        values, axis, size = self._values(_SAMPLES), self._given_axis(choices), self._key_size()
        remarks: tuple[str, ...] = ()
        if size is None:
            if axis is None:
                axis, remarks = 0, ("the sample axis was taken to be 0",)
            rest = [n for a, n in enumerate(values.shape) if a != axis % max(values.ndim, 1)]
            size = rest[0] if rest else 1
        frame = Frame(self.path, size, self._keys(size))
        axis, inferred = _sample_axis(values, (size, len(names)), axis)

        def place(s: int, r: int, d: int) -> str:
            return f"sample {s}, row {r} of {targets[d]!r}, counted from 0"

        chosen = _samples_first(values, axis)[..., positions(targets, names)]
        stack = Stack(frame, chosen, targets, place, names, remarks=(*remarks, *inferred))
        return stack, self._named(_SAMPLES), axis

    def _given_axis(self, choices: Choices) -> int | None:
        """The axis of the samples, by the caller or by the file."""
        given = self.arrays.get(_AXIS)
        if choices.sample_axis is not None or given is None:
            return choices.sample_axis
        return int(given.flat[0]) if given.dtype.kind == "i" and given.size else None

    def _key_size(self) -> int | None:
        """The number of forecasts, where keys agree on it."""
        keys = (a for n, a in self.arrays.items() if n.startswith(KEY_PREFIX) and a.ndim == 1)
        sizes = {len(values) for values in keys}
        return sizes.pop() if len(sizes) == 1 else None

    def _stored(self) -> tuple[str, ...] | None:
        stored = self.arrays.get(_TARGETS)
        return None if stored is None else tuple(str(name) for name in np.ravel(stored))

    def _named(self, name: str) -> str:
        """The name of the array, or that of the only one."""
        reserved = {_SAMPLES, _OBSERVATIONS, _TARGETS, _AXIS} - {name}
        free = [n for n in self.arrays if n not in reserved and not n.startswith(KEY_PREFIX)]
        chosen = name if name in self.arrays else free[0] if len(free) == 1 else None
        if chosen is None:
            raise InputError(
                f"no array {name!r}; there are {listed(self.arrays) or 'none'}: give it that name"
            )
        return chosen

    def _values(self, name: str) -> npt.NDArray[np.float64]:
        """The array of that name, or the only one, in float64."""
        values = self.arrays[self._named(name)]
        if values.dtype.kind not in "fiub":
            raise InputError(f"{name} are of type {values.dtype}: only numbers can be used")
        if values.size == 0:
            raise ShapeError(f"{name} have shape {values.shape}: there is nothing in them")
        return values.astype(np.float64)

    def _keys(self, size: int) -> dict[str, Any]:
        keys = {n: a for n, a in self.arrays.items() if n.startswith(KEY_PREFIX)}
        for name, values in keys.items():
            if values.shape != (size,):
                raise ShapeError(
                    f"array {name!r} has shape {values.shape}, where there are {size} forecasts"
                )
        return {name.removeprefix(KEY_PREFIX): as_arrow(values) for name, values in keys.items()}


def _samples_first(values: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
    """Bring samples to `(S, N, D)`."""
    return np.moveaxis(values[..., None] if values.ndim == 2 else values, axis, 0)


def _sample_axis(
    values: npt.NDArray[np.float64], rest: tuple[int, int], axis: int | None
) -> tuple[int, tuple[str, ...]]:
    """Find the axis of the samples by their shape, if it is not given."""
    shape = values.shape
    full = values[..., None] if values.ndim == 2 and rest[1] == 1 else values
    fits = [
        a
        for a in range(values.ndim)
        if full.ndim == 3 and full.shape[:a] + full.shape[a + 1 :] == rest
    ]
    if axis is not None:
        if not -values.ndim <= axis < values.ndim:
            raise InputError(
                f"{option(_AXIS)} is {axis}, but samples have shape {shape}: axes count from 0"
            )
        axis %= values.ndim
        fits = [a for a in fits if a == axis]
    if not fits:
        wanted = f"(S, {rest[0]}, {rest[1]})" + (f" or (S, {rest[0]})" if rest[1] == 1 else "")
        said = "" if axis is None else f" when axis {axis} is that of the samples"
        raise ShapeError(
            f"samples have shape {shape}, which does not fit {rest[0]} rows and {rest[1]} "
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
    return chosen, tuple(remarks)
