"""Samples in long tables: one row for each forecast and sample."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.alignment import ROW, Choices, Matched, Places, choose_keys, find_places
from prerank.files.columns import family
from prerank.files.comparison import order_lines, ranked
from prerank.files.frames import Frame, listed, option

__all__ = ["match_long", "varies"]


def match_long(samples: Frame, observations: Frame, choices: Choices, label: str) -> Matched:
    """Read the samples of a long table, and match its forecasts with their observations.

    A column of both files whose values are the same in every sample is a key; one that differs
    from sample to sample is a target.

    Args:
        samples: columns of the table.
        observations: columns of the observations.
        choices: what the caller said.
        label: the column that numbers the samples.
    """
    numbered = samples.complete(label, " for the samples")
    if family(numbered.type) == "nested":
        raise InputError(f"column {label!r} for the samples holds {numbered.type}: number them")
    numbers = ranked(numbered)
    if numbers.max() == 0:
        raise InputError(f"column {label!r} numbers a single sample, where 2 are needed")
    others = {label, *(choices.key or ())} | ({choices.by} if choices.by else set())
    free = [n for n in observations.columns if n in samples.columns and n not in others]
    varying = {name: varies(_codes(samples, name), numbers) for name in free}
    if not any(name in samples.columns for name in choices.targets or free):
        _refuse_tidy(samples, choices.targets or tuple(observations.columns), numbers, others)
    targets = choices.targets or _targets(samples, observations, varying)
    for name in targets:
        samples.column(name, " for a target")
        observations.column(name, " for a target")
    if choices.key is None:
        taken = {label, *targets}
        steady = taken | {name for name, differs in varying.items() if differs}
        keys = choose_keys(samples, observations, steady, choices.by)
        if not keys and ROW not in samples.columns:  # samples that are numbered throughout
            keys = choose_keys(samples, observations, taken, choices.by)
    else:
        keys = choices.key
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
        (*targets, *_alone(samples, observations, numbers, others)),
        places.remarks,
    )


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


def _codes(samples: Frame, name: str) -> npt.NDArray[np.int64]:
    codes = samples.codes(name)
    codes[samples.missing(name)] = -1
    return codes


def _targets(samples: Frame, observations: Frame, varying: Mapping[str, bool]) -> tuple[str, ...]:
    """The shared columns that vary; text in one of the files is an error that comes later."""
    found = tuple(
        name
        for name, differs in varying.items()
        if differs and name in samples.numeric + observations.numeric
    )
    if not found:
        raise InputError(
            f"no column in common with {observations.path.name} differs from sample to sample: "
            f"name the targets with {option('targets')}; here are {listed(samples.columns)}, there "
            f"{listed(observations.columns)}"
        )
    return found


def _alone(
    samples: Frame, observations: Frame, numbers: npt.NDArray[np.int64], others: Collection[str]
) -> tuple[str, ...]:
    """Columns that only the samples have, and that would be targets."""
    return tuple(
        name
        for name in samples.numeric
        if name not in observations.columns and name not in {ROW, *others}
        if varies(_codes(samples, name), numbers)
    )


def _refuse_tidy(
    samples: Frame,
    wanted: Collection[str],
    numbers: npt.NDArray[np.int64],
    others: Collection[str],
) -> None:
    """Refuse a table with a row for each forecast, sample and target, and say how to reshape it."""
    for name, column in samples.columns.items():
        if name in samples.numeric or name in others:
            continue
        if set(wanted).isdisjoint(map(str, column.unique().to_pylist())):
            continue
        values = _alone(samples, replace(samples, columns={}), numbers, others)[:1]
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
    for name in places.keys:
        rest = [key for key in places.keys if key != name]
        doubtful = name in observations.numeric and observations.distinguishes(rest)
        if not (doubtful and rest):
            continue
        without = find_places(samples, observations, rest, chosen=True)
        if without is not None and not np.array_equal(without.rows, places.rows):
            raise InputError(
                f"column {name!r} is the same in every sample of a forecast and differs from "
                f"{observations.path.name}: say whether it is a target, with {option('targets')}, "
                f"or tells forecasts apart, with {option('key')}"
            )
