"""Samples in tables: long, with one row for each sample, or wide, with a column for each."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prerank.coordinates import SAMPLE_NAMES
from prerank.errors import InputError
from prerank.files.alignment import (
    ROW,
    Choices,
    Matched,
    Places,
    Stack,
    choose_keys,
    find_places,
    key_codes,
)
from prerank.files.columns import decoded, family
from prerank.files.frames import Frame, codes_without_each, find_name, listed, option
from prerank.numerics import order_lines

__all__ = ["LongTable", "SampleTable", "find_sample_name", "varies"]

_NUMBERED = re.compile(r"(?P<target>.+?)(?:[_.\- ](?P<k>\d{1,9})|\[(?P<index>\d{1,9})\])")


class LongTable(NamedTuple):
    """Where the forecasts of a long table stand.

    Attributes:
        rows: `(N, S)`, the row of the file of each forecast and sample.
        keys: the columns that tell the forecasts apart.
        others: columns with numbers that differ from sample to sample and are no targets.
    """

    rows: npt.NDArray[np.int64]
    keys: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SampleTable:
    """A CSV, ARFF or Parquet file of samples, observations or both.

    Attributes:
        frame: its columns.
    """

    frame: Frame

    has_observations = True

    def names(self) -> set[str]:
        """Names of columns, and those before the numbers of columns such as rain_0, rain_1, ..."""
        return {*self.frame.columns, *self.numbered}

    def offered(self, choices: Choices) -> tuple[str, ...]:
        """The possible targets of samples, for observations without names.

        Example:
            >>> import pyarrow as pa
            >>> from pathlib import Path
            >>> wide = {f"rain_{k}": pa.chunked_array([[0.0, 0.0]]) for k in range(5)}
            >>> SampleTable(Frame(Path("a.csv"), 2, wide)).offered(Choices())
            ('rain',)
        """
        label = find_sample_name(self.frame.columns, choices.sample, "column")
        if label is None:
            return tuple(self.numbered)
        others = {label, ROW, choices.by, *choices.aside, *(choices.key or ())}
        return tuple(name for name in self.frame.numeric if name not in others)

    def observations(self, choices: Choices, offered: Collection[str]) -> Frame:
        """The columns."""
        return self.frame

    def match(self, observations: Frame, choices: Choices) -> Matched:
        """Match the samples with observations; the order decides where both are the same frame."""
        frame, groups = self.frame, self.numbered
        wanted = observations.columns if choices.targets is None else choices.targets
        wide = [name for name in wanted if name in groups and name != choices.by]
        plain = frame is not observations and any(name in frame.columns for name in wide)
        label = None
        if choices.sample is not None or plain or not wide:
            label = find_sample_name(frame.columns, choices.sample, "column")
        if label is not None:
            return _match_long(frame, observations, choices, label)
        if wide:
            return self.wide(tuple(wide), choices).match(observations, choices)
        absent = [n for n in observations.numeric if n not in frame.columns]
        first = next(iter(choices.targets or absent), "y")
        raise InputError(
            "no samples found: a long table needs a column that numbers them "
            f"({', '.join(SAMPLE_NAMES)}, or another that is named with {option('sample')}), a "
            f"wide one columns such as {first}_0, {first}_1, ... for the targets of "
            f"{observations.path.name}; there are {listed(frame.columns)}"
        )

    @cached_property
    def numbered(self) -> dict[str, list[tuple[int, str]]]:
        """Columns such as rain_0, rain_1, ... with their numbers, by what stands before these."""
        groups: dict[str, list[tuple[int, str]]] = {}
        for column in self.frame.columns:
            match = _NUMBERED.fullmatch(column)
            if match is not None:
                number = int(match["k"] or match["index"])
                groups.setdefault(match["target"], []).append((number, column))
        return groups

    def long(self, choices: Choices, label: str) -> LongTable:
        """The forecasts of a long table without observations, by the targets that are chosen.

        They are told apart by the columns of the key, by default those that are the same in every
        sample of a forecast, and come in the order in which they begin in the file.
        """
        frame, targets = self.frame, choices.targets or ()
        numbers = _sample_numbers(frame, label)
        free = set(frame.columns) - {label, *targets}
        varying = _varying(frame, free, numbers)
        keys = choices.key or tuple(
            n for n in frame.columns if n in free - varying and not frame.missing(n).any()
        )
        if not keys:
            raise InputError(
                "nothing tells which forecast a row belongs to: add a column that numbers the "
                f"forecasts, or name those that tell them apart with {option('key')}"
            )
        for name in keys:
            frame.complete(name, " (a key)")
        rows = _by_forecast(frame, Places(frame.codes(*keys), keys, ()), numbers, label)
        others = tuple(name for name in frame.numeric if name in varying)
        return LongTable(rows, keys, others)

    def wide(self, found: tuple[str, ...], choices: Choices) -> Stack:
        """The samples of a wide table; every target needs the same numbers."""
        frame, groups = self.frame, self.numbered
        targets, offered = found if choices.targets is None else choices.targets, set(found)
        for name in targets:
            if name not in offered:
                raise InputError(
                    f"no columns {name}_0, {name}_1, ... for the target {name!r}; there are some "
                    f"for {listed(found)}"
                )
        columns = self.wide_columns(targets)
        values = [[frame.numbers(name) for name in names] for names in columns]
        numbers = sorted(k for k, _ in groups[targets[0]])

        def place(s: int, r: int, d: int) -> str:
            return f"column {columns[s][d]!r}, data row {r + 1}"

        return Stack(
            frame,
            np.moveaxis(np.array(values), 1, -1),  # (S, R, D)
            targets,
            place,
            tuple(n for n, pairs in groups.items() if sorted(k for k, _ in pairs) == numbers),
            {*groups, *chain.from_iterable(columns)},
        )

    def wide_columns(self, targets: Sequence[str]) -> list[list[str]]:
        """The column of each sample, S of them, and of each of D targets; all have each sample."""
        groups = self.numbered
        columns = {name: self._by_number(name, groups[name]) for name in targets}
        numbers = sorted(columns[targets[0]])
        for name in targets[1:]:
            apart = sorted(set(numbers) ^ set(columns[name]))
            if apart:
                raise InputError(
                    f"target {targets[0]!r} has {len(numbers)} samples and target {name!r} "
                    f"{len(columns[name])}, and only one of them has sample {apart[0]}: each "
                    "sample needs a column for every target"
                )
        return [[columns[name][k] for name in targets] for k in numbers]

    def _by_number(self, target: str, pairs: list[tuple[int, str]]) -> dict[int, str]:
        columns: dict[int, str] = {}
        for number, column in pairs:
            if number in columns:
                raise InputError(
                    f"columns {columns[number]!r} and {column!r} are both sample {number} of "
                    f"{target!r}: rename one of them"
                )
            columns[number] = column
        return columns


def find_sample_name(names: Collection[str], chosen: str | None, what: str) -> str | None:
    """The column or dimension that numbers the samples: the one chosen, or one of a known name."""
    if chosen is not None:
        return find_name(chosen, names, " for the samples")
    found = [name for name in names if name.lower() in SAMPLE_NAMES]
    if len(found) > 1:
        raise InputError(
            f"each {what} of {listed(found)} could number the samples: name the one that does with "
            f"{option('sample')}"
        )
    return found[0] if found else None


def _match_long(samples: Frame, observations: Frame, choices: Choices, label: str) -> Matched:
    """Match the forecasts of a long table, whose column `label` numbers the samples.

    A column of both files whose values are the same in every sample is a key; one that differs
    from sample to sample is a target.
    """
    numbers = _sample_numbers(samples, label)
    others = {label, *choices.aside, *(choices.key or ())}
    others |= {choices.by} if choices.by else set()
    if judged := _varying(samples, set(choices.aside) & set(samples.columns), numbers):
        raise InputError(
            f"column {min(judged)!r} differs among the samples of a forecast: it is a target, and "
            "says nothing about which rows depend on each other"
        )
    useful = {*observations.columns, *samples.numeric} - others
    varying = _varying(samples, useful.intersection(samples.columns), numbers)
    loose = [name for name in samples.numeric if name in varying and name != ROW]
    free = [n for n in observations.columns if n in samples.columns and n not in others]
    if not any(name in samples.columns for name in choices.targets or free):
        _refuse_tidy(samples, choices.targets or tuple(observations.columns), others, loose)
    # Text in one of them is an error that follows.
    numeric = {*samples.numeric, *observations.numeric}
    targets = choices.targets or tuple(n for n in free if n in varying and n in numeric)
    if not targets:
        raise InputError(
            f"no column in common with {observations.path.name} differs from sample to sample: "
            f"name the targets with {option('targets')}; here are {listed(samples.columns)}, there "
            f"{listed(observations.columns)}"
        )
    for name in targets:
        samples.column(name, " for a target")
        observations.column(name, " for a target")
    taken = {label, *targets}
    keys = choices.key or choose_keys(samples, observations, taken | varying, choices.by)
    if not keys and ROW not in samples.columns:  # samples that are numbered throughout
        keys = choose_keys(samples, observations, taken, choices.by)
    places = find_places(samples, observations, keys, chosen=choices.key is not None)
    if places is None:
        raise InputError(
            "nothing tells which forecast a row belongs to: name columns that are also in "
            f"{observations.path.name} with {option('key')}, or add a column {ROW!r} that counts "
            "the rows of the observations from 0"
        )
    if choices.key is None:
        _refuse_doubtful_keys(samples, observations, places)
    chosen = _by_forecast(samples, places, numbers, label)  # (N, S)
    columns = [samples.numbers(name)[chosen.T] for name in targets]

    def place(s: int, n: int, d: int) -> str:
        return f"column {targets[d]!r}, data row {chosen[n, s] + 1}"

    return Matched(
        np.stack(columns, axis=-1),
        tuple(targets),
        places.rows[chosen[:, 0]],
        place,
        samples,
        chosen,
        (*targets, *(name for name in loose if name not in observations.columns)),
        places.remarks,
    )


def _sample_numbers(samples: Frame, label: str) -> npt.NDArray[np.int64]:
    """The samples of a long table, counted from 0 in the order of their column."""
    import pyarrow.compute as pc

    numbered = samples.complete(label, " for the samples")
    if family(numbered.type) == "nested":
        raise InputError(f"column {label!r} for the samples holds {numbered.type}: number them")
    ranks = pc.rank(decoded(numbered), tiebreaker="dense")
    numbers: npt.NDArray[np.int64] = ranks.to_numpy().astype(np.int64) - 1
    if numbers.max() == 0:
        raise InputError(f"column {label!r} numbers a single sample, where 2 are needed")
    return numbers


def _varying(samples: Frame, names: Collection[str], numbers: npt.NDArray[np.int64]) -> set[str]:
    """Those of some columns that differ from sample to sample."""
    return {
        name
        for name in names
        if varies(np.where(samples.missing(name), -1, samples.codes(name)), numbers)
    }


def varies(values: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> bool:
    """Whether a column differs from sample to sample.

    Every forecast has every sample, so the values of a key, taken together over all forecasts,
    are the same in each sample. Where rows are too many or too few, samples that equally many
    forecasts have are compared; where there are no such, or keys are missing, half of the values
    must agree in the two largest.

    Args:
        values: `(R,)`, equal where the values of the column are, and negative where one is missing.
        numbers: `(R,)`, of the samples.

    Example:
        >>> sample = np.array([0, 1, 0, 1])
        >>> varies(np.array([7, 7, 8, 8]), sample), varies(np.array([1, 2, 3, 4]), sample)
        (False, True)
    """
    counts = np.bincount(numbers)
    sizes, often = np.unique(counts[counts > 0], return_counts=True)
    usual = int(sizes[often.argmax()])
    if often.max() == 1 or (values < 0).any():
        pair = [values[numbers == label] for label in np.argsort(-counts, kind="stable")[:2]]
        tally = [np.bincount(part[part >= 0], minlength=values.max() + 1) for part in pair]
        return bool(2 * np.minimum(*tally).sum() < max(map(len, pair)))
    rows = np.flatnonzero(counts[numbers] == usual)
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    table = np.sort(values[rows].reshape(-1, usual), axis=1)  # a row for each sample
    return bool((table != table[0]).any())


def _refuse_tidy(
    samples: Frame, wanted: Collection[str], others: Collection[str], loose: Sequence[str]
) -> None:
    """Refuse a table with a row for each forecast, sample and target, and say how to reshape it."""
    passed = {*samples.numeric, *others}
    for name, column in samples.columns.items():
        if name in passed:
            continue
        if set(wanted).isdisjoint(map(str, column.unique().to_pylist())):
            continue
        values = loose[:1]
        rest = [other for other in samples.columns if other not in (name, *values)]
        raise InputError(
            f"column {name!r} holds names of targets, where each target needs a column of its own: "
            f"reshape the table, in pandas with .pivot(index={rest}, columns={name!r}, "
            f"values={next(iter(values), 'value')!r}).reset_index()"
        )


def _by_forecast(
    samples: Frame, places: Places, numbers: npt.NDArray[np.int64], label: str
) -> npt.NDArray[np.int64]:
    """Rows of the table, `(N, S)`: forecasts as their observations, samples as their numbers."""
    order, again = order_lines(places.rows, numbers)
    keys = places.keys or (ROW,)
    if again:
        first, second = again
        raise InputError(
            f"{samples.described([*keys, label], first)} stands in data rows {first + 1} and "
            f"{second + 1}: keep one of them, or name all columns that tell the forecasts apart "
            f"with {option('key')}"
        )
    starts = np.flatnonzero(np.diff(places.rows[order], prepend=-1))
    counts = np.diff(starts, append=len(order))
    usual = int(np.bincount(counts).argmax())
    odd = np.flatnonzero(counts != usual)
    if len(odd):
        first = int(odd[0])
        what = samples.described(keys, int(order[starts[first]]))
        raise InputError(
            f"{len(odd)} of {len(counts)} forecasts have another number of samples than {usual}, "
            f"the first of them {what} with {counts[first]}: give every forecast equally many"
        )
    return order.reshape(-1, usual)


def _refuse_doubtful_keys(samples: Frame, observations: Frame, places: Places) -> None:
    """A target that no sample varies looks like a key, and would select rows by their outcome."""
    size, lost = observations.size, np.flatnonzero(places.rows < 0)
    if not len(lost) or len(places.keys) < 2:  # a row that has its observation keeps it
        return
    rows = np.concatenate([np.arange(size), size + lost])
    codes = [key_codes(samples, observations, name)[rows] for name in places.keys]
    numeric = set(observations.numeric)
    for name, rest in zip(places.keys, codes_without_each(codes), strict=True):
        known, asked = rest[:size], rest[size:]
        unique = name in numeric and len(np.unique(known)) == size
        if unique and np.isin(asked, known).any():
            raise InputError(
                f"column {name!r} is the same in every sample of a forecast and differs from "
                f"{observations.path.name}: say whether it is a target, with {option('targets')}, "
                f"or tells forecasts apart, with {option('key')}"
            )
