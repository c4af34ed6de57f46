"""Samples in tables: long, with one row for each sample, or wide, with a column for each."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np

from prerank.errors import InputError
from prerank.files.alignment import ROW, choose_keys, find_places, one_each
from prerank.files.forecast_parts import Choices, Matched
from prerank.files.frames import Frame, find_name, is_numeric, listed, option
from prerank.files.long_tables import match_long

__all__ = [
    "SAMPLE_NAMES",
    "find_sample_name",
    "match_table",
    "numbered_columns",
    "offered_targets",
]

SAMPLE_NAMES = ("sample", "member", "realization", "number", "draw", "ensemble")
_NUMBERED = re.compile(r"(?P<target>.+?)(?:[_.\- ](?P<k>\d{1,9})|\[(?P<index>\d{1,9})\])")


def match_table(samples: Frame, observations: Frame, choices: Choices) -> Matched:
    """Read the samples of a table, and match its forecasts with their observations.

    Args:
        samples: columns of the table.
        observations: columns of the observations; where they are the same, the order tells what
            belongs together.
        choices: what the caller said.
    """
    groups = numbered_columns(samples)
    wanted = observations.columns if choices.targets is None else choices.targets
    wide = [name for name in wanted if name in groups and name != choices.by]
    plain = samples is not observations and any(name in samples.columns for name in wide)
    label = None
    if choices.sample is not None or plain or not wide:
        label = find_sample_name(samples, samples.columns, choices.sample, "column")
    if label is not None:
        return match_long(samples, observations, choices, label)
    if wide:
        columns = {name: _by_number(samples, name, groups[name]) for name in wide}
        return _match_wide(samples, observations, choices, columns)
    observed = observations.columns.items()
    absent = [n for n, c in observed if n not in samples.columns and is_numeric(c)]
    first = next(iter(choices.targets or absent), "y")
    raise InputError(
        f"{samples.path}: no samples found: a long table needs a column that numbers them "
        f"({', '.join(SAMPLE_NAMES)}, or another that is named with {option('sample')}), a wide "
        f"one columns such as {first}_0, {first}_1, ... for the targets of "
        f"{observations.path.name}; there are {listed(samples.columns)}"
    )


def offered_targets(samples: Frame, choices: Choices) -> tuple[str, ...]:
    """What could be the targets of a table, where the observations have no names.

    Example:
        >>> from pathlib import Path
        >>> from prerank.files.frames import as_arrow
        >>> wide = {f"rain_{k}": as_arrow(np.zeros(3)) for k in range(5)}
        >>> offered_targets(Frame(Path("a.csv"), 3, wide), Choices())
        ('rain',)
    """
    label = find_sample_name(samples, samples.columns, choices.sample, "column")
    if label is None:
        return tuple(numbered_columns(samples))
    others = {label, ROW, choices.by, *(choices.key or ())}
    return tuple(n for n, c in samples.columns.items() if n not in others and is_numeric(c))


def find_sample_name(
    frame: Frame, names: Collection[str], chosen: str | None, what: str
) -> str | None:
    """The column or dimension that numbers the samples: the one chosen, or one of a known name."""
    if chosen is not None:
        return find_name(frame.path, chosen, names, " for the samples")
    found = [name for name in names if name.lower() in SAMPLE_NAMES]
    if len(found) > 1:
        raise InputError(
            f"{frame.path}: each {what} of {listed(found)} could number the samples: name the one "
            f"that does with {option('sample')}"
        )
    return found[0] if found else None


def _match_wide(
    samples: Frame,
    observations: Frame,
    choices: Choices,
    wide: Mapping[str, Mapping[int, str]],
) -> Matched:
    targets = tuple(wide) if choices.targets is None else choices.targets
    numbers = _sample_numbers(samples, wide, targets)
    if choices.key is not None:
        keys = choices.key
    elif samples is observations:
        keys = ()
    else:
        taken = set(numbered_columns(samples)) | set(targets)
        taken |= set(chain.from_iterable(wide[name].values() for name in wide))
        keys = choose_keys(samples, observations, taken, choices.by)
    places = find_places(samples, observations, keys, chosen=choices.key is not None, by_order=True)
    order = one_each(samples, places)
    values = np.stack(
        [
            np.stack([samples.numbers(wide[name][k])[order] for k in numbers])  # (S, N)
            for name in targets
        ],
        axis=-1,
    )

    def place(s: int, n: int, d: int) -> str:
        return f"column {wide[targets[d]][numbers[s]]!r}, data row {order[n] + 1}"

    groups = numbered_columns(samples).items()
    sampled = tuple(name for name, pairs in groups if sorted(k for k, _ in pairs) == numbers)
    rows = places.rows[order]
    return Matched(values, targets, rows, place, samples, order, sampled, places.remarks)


def _sample_numbers(
    samples: Frame, wide: Mapping[str, Mapping[int, str]], targets: tuple[str, ...]
) -> list[int]:
    """The numbers of the samples, which have to be the same for all targets."""
    for name in targets:
        if name not in wide:
            raise InputError(
                f"{samples.path}: no columns {name}_0, {name}_1, ... for the target {name!r}; "
                f"there are some for {listed(wide)}"
            )
    first = sorted(wide[targets[0]])
    for name in targets[1:]:
        apart = sorted(set(first) ^ set(wide[name]))
        if apart:
            raise InputError(
                f"{samples.path}: target {targets[0]!r} has {len(first)} samples and target "
                f"{name!r} {len(wide[name])}, and only one of them has sample {apart[0]}: each "
                "sample needs a column for every target"
            )
    return first


def numbered_columns(samples: Frame) -> dict[str, list[tuple[int, str]]]:
    """Columns such as rain_0, rain_1, ... with their numbers, by what stands before these."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for column in samples.columns:
        match = _NUMBERED.fullmatch(column)
        if match is not None:
            number = int(match["k"] or match["index"])
            groups.setdefault(match["target"], []).append((number, column))
    return groups


def _by_number(samples: Frame, target: str, pairs: Sequence[tuple[int, str]]) -> dict[int, str]:
    columns: dict[int, str] = {}
    for number, column in pairs:
        if number in columns:
            raise InputError(
                f"{samples.path}: columns {columns[number]!r} and {column!r} are both sample "
                f"{number} of {target!r}: rename one of them"
            )
        columns[number] = column
    return columns
