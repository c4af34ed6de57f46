"""Samples in tables: long, with one row for each sample, or wide, with a column for each."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

import numpy as np

from prerank.errors import InputError
from prerank.files.alignment import ROW, Choices, Matched, Stack
from prerank.files.frames import Frame, find_name, listed, option
from prerank.files.long_tables import match_long

__all__ = ["SAMPLE_NAMES", "SampleTable", "find_sample_name"]

SAMPLE_NAMES = ("sample", "member", "realization", "number", "draw", "ensemble")
_NUMBERED = re.compile(r"(?P<target>.+?)(?:[_.\- ](?P<k>\d{1,9})|\[(?P<index>\d{1,9})\])")


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
        return {*self.frame.columns, *self._numbered()}

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
            return tuple(self._numbered())
        others = {label, ROW, choices.by, *(choices.key or ())}
        return tuple(name for name in self.frame.numeric if name not in others)

    def observations(self, choices: Choices, offered: Collection[str]) -> Frame:
        """The columns."""
        return self.frame

    def match(self, observations: Frame, choices: Choices) -> Matched:
        """Match the samples with observations; the order decides where both are the same frame."""
        frame, groups = self.frame, self._numbered()
        wanted = observations.columns if choices.targets is None else choices.targets
        wide = [name for name in wanted if name in groups and name != choices.by]
        plain = frame is not observations and any(name in frame.columns for name in wide)
        label = None
        if choices.sample is not None or plain or not wide:
            label = find_sample_name(frame.columns, choices.sample, "column")
        if label is not None:
            return match_long(frame, observations, choices, label)
        if wide:
            return self._wide(tuple(wide), choices).match(observations, choices)
        absent = [n for n in observations.numeric if n not in frame.columns]
        first = next(iter(choices.targets or absent), "y")
        raise InputError(
            "no samples found: a long table needs a column that numbers them "
            f"({', '.join(SAMPLE_NAMES)}, or another that is named with {option('sample')}), a "
            f"wide one columns such as {first}_0, {first}_1, ... for the targets of "
            f"{observations.path.name}; there are {listed(frame.columns)}"
        )

    def _numbered(self) -> dict[str, list[tuple[int, str]]]:
        """Columns such as rain_0, rain_1, ... with their numbers, by what stands before these."""
        groups: dict[str, list[tuple[int, str]]] = {}
        for column in self.frame.columns:
            match = _NUMBERED.fullmatch(column)
            if match is not None:
                number = int(match["k"] or match["index"])
                groups.setdefault(match["target"], []).append((number, column))
        return groups

    def _wide(self, found: tuple[str, ...], choices: Choices) -> Stack:
        """The samples of a wide table; every target needs the same numbers."""
        frame, groups = self.frame, self._numbered()
        columns = {name: self._by_number(name, groups[name]) for name in found}
        targets = found if choices.targets is None else choices.targets
        for name in targets:
            if name not in columns:
                raise InputError(
                    f"no columns {name}_0, {name}_1, ... for the target {name!r}; there are some "
                    f"for {listed(columns)}"
                )
        numbers = sorted(columns[targets[0]])
        for name in targets[1:]:
            apart = sorted(set(numbers) ^ set(columns[name]))
            if apart:
                raise InputError(
                    f"target {targets[0]!r} has {len(numbers)} samples and target {name!r} "
                    f"{len(columns[name])}, and only one of them has sample {apart[0]}: each "
                    "sample needs a column for every target"
                )
        values = [[frame.numbers(columns[name][k]) for name in targets] for k in numbers]

        def place(s: int, r: int, d: int) -> str:
            return f"column {columns[targets[d]][numbers[s]]!r}, data row {r + 1}"

        return Stack(
            frame,
            np.moveaxis(np.array(values), 1, -1),  # (S, R, D)
            targets,
            place,
            tuple(n for n, pairs in groups.items() if sorted(k for k, _ in pairs) == numbers),
            {*groups, *chain.from_iterable(group.values() for group in columns.values())},
        )

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
