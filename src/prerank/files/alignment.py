"""Which observation belongs to a forecast: by keys, by row numbers or by order."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.frames import Frame, combined, comparable, factorise, listed, option
from prerank.numerics import order_lines

__all__ = [
    "ROW",
    "Choices",
    "Matched",
    "Places",
    "Stack",
    "choose_keys",
    "find_places",
    "key_codes",
    "matching_remark",
    "unobserved_remarks",
    "unused_remarks",
]

ROW = "row"  # the column that counts the rows of the observations from 0
_AS_KEY = " (a key)"


@dataclass(frozen=True)
class Choices:
    """What the caller said about the files; None where it has to be inferred.

    Attributes:
        targets: names, in the order they shall have.
        key: names of the columns that identify a forecast.
        sample: name of the column, or the dimension, that numbers the samples.
        sample_axis: axis of the samples in an array.
        by: name of the column with the groups.
        aside: names of further columns that are no targets.
    """

    targets: tuple[str, ...] | None = None
    key: tuple[str, ...] | None = None
    sample: str | None = None
    sample_axis: int | None = None
    by: str | None = None
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Matched:
    """Samples beside the rows of their observations.

    Attributes:
        values: `(S, N, D)`, not yet checked for missing values.
        targets: names of the targets, D of them.
        rows: `(N,)`, the row of the observations that belongs to each forecast, increasing.
        place: says in words where in the file the value of sample s, forecast n, target d stands.
        source: the columns of the file of samples.
        origins: `(N,)` or `(N, S)`, the row of `source` that each forecast comes from.
        sampled: names of all targets that the file has samples of.
        remarks: sentences on how they were matched.
        sample_axis: that of the samples, in an array.
    """

    values: npt.NDArray[np.float64]
    targets: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    place: Callable[[int, int, int], str]
    source: Frame
    origins: npt.NDArray[np.int64]
    sampled: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    sample_axis: int | None = None


@dataclass(frozen=True, eq=False)
class Places:
    """The observation of each row of a file of samples.

    Attributes:
        rows: `(R,)`, rows of the observations, -1 where there is none.
        keys: the columns that were compared; none where the order or row numbers decided.
        remarks: sentences on how they were found, and on what was left out.
    """

    rows: npt.NDArray[np.int64]
    keys: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Stack:
    """Samples of a file that has one row, or one place of an array, for each forecast.

    Attributes:
        frame: R rows of keys.
        values: `(S, R, D)`.
        targets: names of the targets, D of them.
        place: says in words where the value of sample s, row r, target d stands.
        sampled: names of all targets that the file has samples of.
        taken: further columns of `frame` that are no keys.
        remarks: sentences on how the file was read.
    """

    frame: Frame
    values: npt.NDArray[np.float64]
    targets: tuple[str, ...]
    place: Callable[[int, int, int], str]
    sampled: tuple[str, ...]
    taken: Collection[str] = ()
    remarks: tuple[str, ...] = ()

    def match(self, observations: Frame, choices: Choices) -> Matched:
        """Match each forecast with its observation, by their order where nothing else is shared."""
        samples, keys = self.frame, choices.key
        if keys is None and samples is not observations:
            keys = choose_keys(samples, observations, {*self.targets, *self.taken}, choices.by)
        places = find_places(samples, observations, keys or (), chosen=choices.key is not None)
        if places is None:
            places = self._by_order(observations)
        order = _one_each(samples, places)

        def place(s: int, n: int, d: int) -> str:
            return self.place(s, int(order[n]), d)

        return Matched(
            self.values[:, order],
            self.targets,
            places.rows[order],
            place,
            samples,
            order,
            self.sampled,
            (*self.remarks, *places.remarks),
        )

    def _by_order(self, observations: Frame) -> Places:
        samples = self.frame
        if samples.size != observations.size:
            raise InputError(
                f"{samples.size} forecasts for the {observations.size} rows of "
                f"{observations.path.name}, and no column in common that tells which belong "
                f"together: add one to both files, or a column {ROW!r} to this one that counts the "
                "rows of the observations from 0"
            )
        remark = (
            "no column is in both files: forecasts and observations were matched by their order"
        )
        keyed = samples.columns or len(observations.columns) > len(self.targets)
        remarks = (remark,) if keyed and samples is not observations else ()
        return Places(np.arange(samples.size), (), remarks)


def choose_keys(
    samples: Frame, observations: Frame, taken: Collection[str], by: str | None
) -> tuple[str, ...]:
    """The columns that both files share, without those that are taken for something else.

    Where a file has dimensions and these identify its rows, other coordinates are
    left out: two files seldom agree on each digit of a latitude. The groups are a key only where
    rows cannot be identified without them.
    """
    used = set(taken)
    shared = [n for n in observations.columns if n in samples.columns and n not in used]
    gridded = [frame.dims for frame in (samples, observations) if frame.dims]
    if gridded:
        spanned = [name for name in shared if all(name in dims for dims in gridded)]
        needed = {name for dims in gridded for name, size in dims.items() if size > 1}
        shared = spanned if needed <= set(spanned) else shared
    keys = [name for name in shared if name != by]
    if by in shared and not observations.distinguishes(keys):
        keys = shared
    return tuple(keys)


def find_places(
    samples: Frame, observations: Frame, keys: Sequence[str], *, chosen: bool
) -> Places | None:
    """Find the observation of each row of the samples; None where nothing identifies it.

    Args:
        samples: their columns; a forecast may take several rows.
        observations: their columns.
        keys: columns of both; a single `row` that only the samples have counts the observations
            from 0, and so it does where there are no keys.
        chosen: whether the caller named the keys: then they need no remark.
    """
    numbered = ROW in samples.columns and ROW not in observations.columns
    if numbered and tuple(keys) in ((), (ROW,)):
        rows = _row_numbers(samples, observations)
        return Places(rows, (), _left_out(observations, rows))
    if not keys:
        return None
    _check_dims(samples, observations, keys)
    rows, remarks = _look_up(samples, observations, keys)
    if not chosen:
        remarks = (matching_remark(keys), *remarks)
    return Places(rows, tuple(keys), remarks)


def _one_each(samples: Frame, places: Places) -> npt.NDArray[np.int64]:
    """Rows of the samples in the order of their observations, where each has one at most."""
    order, again = order_lines(places.rows, np.zeros_like(places.rows))
    if again:
        first, second = again
        what = samples.described(places.keys or (ROW,), first)
        apart = [name for name, size in samples.dims.items() if name not in places.keys if size > 1]
        hint = f" (the observations have no dimension {listed(apart)})" if apart else ""
        raise InputError(
            f"there are several forecasts for {what}, in data rows {first + 1} and "
            f"{second + 1}{hint}: keep one, or name all columns that tell them apart with "
            f"{option('key')}"
        )
    return order


def _look_up(
    samples: Frame, observations: Frame, keys: Sequence[str]
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Rows of the observations, and remarks on forecasts and observations that were left out."""
    codes = combined(key_codes(samples, observations, name) for name in keys)
    known, asked = codes[: observations.size], codes[observations.size :]
    table = np.full(int(codes.max()) + 1, -1)
    table[known[::-1]] = np.arange(observations.size)[::-1]  # the first of equal ones stays
    again = np.flatnonzero(table[known] != np.arange(observations.size))
    if len(again):
        second = int(again[0])
        raise InputError(
            f"{observations.path}: {observations.described(keys, second)} stands in data rows "
            f"{table[known[second]] + 1} and {second + 1}: keep one of them, or name all columns "
            f"that tell them apart with {option('key')}"
        )
    rows = table[asked]
    distinct, without = len(np.unique(asked)), len(np.unique(asked[rows < 0]))
    if distinct == without:
        raise InputError(
            f"no forecast belongs to a row of {observations.path.name}: the first has "
            f"{samples.described(keys, 0)}, the first observation "
            f"{observations.described(keys, 0)}; write {listed(keys)} alike, or name other columns "
            f"with {option('key')}"
        )
    remarks = _left_out(observations, rows)
    return rows, (*remarks, *unobserved_remarks(without, distinct))


def key_codes(samples: Frame, observations: Frame, name: str) -> npt.NDArray[np.int64]:
    """Numbers of the values of a key, in the observations and then in the samples."""
    import pyarrow as pa

    left, right = observations.complete(name, _AS_KEY), samples.complete(name, _AS_KEY)
    try:
        left, right = comparable(left, right)
    except InputError as error:
        raise InputError(
            f"key {name!r} cannot be compared with that of {observations.path.name}: {error}"
        ) from error
    return factorise([pa.chunked_array([*left.chunks, *right.chunks], type=left.type)])


def _check_dims(samples: Frame, observations: Frame, keys: Sequence[str]) -> None:
    """Positions may stand for coordinates only where both files have none."""
    for name in keys:
        if name not in samples.dims or name not in observations.dims:
            continue
        bare = (name in samples.bare, name in observations.bare)
        sizes = (samples.dims[name], observations.dims[name])
        if any(bare) and (not all(bare) or sizes[0] != sizes[1]):
            raise InputError(
                f"dimension {name!r} has {sizes[0]} places here and {sizes[1]} in "
                f"{observations.path.name}, and not both have coordinates: add them"
            )


def _row_numbers(samples: Frame, observations: Frame) -> npt.NDArray[np.int64]:
    samples.complete(ROW, _AS_KEY)
    numbers = samples.numbers(ROW, _AS_KEY)
    bad = ~((numbers >= 0) & (numbers < observations.size) & (numbers == np.floor(numbers)))
    if bad.any():
        first = int(bad.argmax())
        raise InputError(
            f"column {ROW!r} is {numbers[first]:g} in data row {first + 1}, where it must count "
            f"the rows of {observations.path.name} from 0 to {observations.size - 1}"
        )
    return numbers.astype(np.int64)


def _left_out(observations: Frame, rows: npt.NDArray[np.int64]) -> tuple[str, ...]:
    return unused_remarks(observations.size - len(np.unique(rows[rows >= 0])), observations.size)


def matching_remark(keys: Sequence[str]) -> str:
    """By which columns of both files forecasts found their observations."""
    return f"forecasts and observations were matched by {listed(keys)}, which both files have"


def unused_remarks(unseen: int, size: int) -> tuple[str, ...]:
    """That some of `size` observations have no forecast; nothing where all have one."""
    lost = f"{unseen} of {size} rows of the observations have no forecast"
    return (f"{lost} and were left out",) if unseen else ()


def unobserved_remarks(without: int, size: int) -> tuple[str, ...]:
    """That some of `size` forecasts have no observation; nothing where all have one."""
    lost = f"{without} of {size} forecasts have no observation and were left out"
    return (lost,) if without else ()
