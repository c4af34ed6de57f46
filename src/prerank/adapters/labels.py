"""Samples with named axes: arrays, variables by name, and pandas."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.distributions import Distribution

from prerank.coordinates import event_names, label_texts, quoted
from prerank.distributions import Ensemble
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.extras import needed_by
from prerank.inputs import as_tensor, repeated, wrong_type
from prerank.numerics import order_lines

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Labelled",
    "by_label",
    "check_frame",
    "from_arrays",
    "from_draws",
    "from_pandas",
    "same_labels",
]


class Labelled(NamedTuple):
    """Predictions and observations of the same rows, ready for `diagnose(*labelled)`.

    Attributes:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        y: `(N, D)`; its columns name the targets, its index the rows.
    """

    dist: Distribution
    y: "pd.DataFrame"


def from_arrays(
    samples: object, *, sample_axis: int = 0, target_axis: int = -1, weights: object = None
) -> Ensemble:
    """An `Ensemble` from samples whose axes come in another order.

    Args:
        samples: an array with an axis of samples, an axis of targets, and at least one of rows.
            prerank has `(S, ..., N, D)`; scoringrules and bayesflow have `(N, S, D)`.
        sample_axis: the axis of the samples.
        target_axis: the axis of the targets.
        weights: as in `Ensemble`, `(S,)` or `(S, ..., N)`.

    Example:
        >>> members = np.zeros((200, 30, 3))  # rows, members, targets
        >>> dist = from_arrays(members, sample_axis=1)
        >>> len(dist.samples), dist.batch_shape, dist.event_shape
        (30, torch.Size([200]), torch.Size([3]))
    """
    values = as_tensor(samples, "samples")
    axes = {"sample_axis": sample_axis, "target_axis": target_axis}
    for name, axis in axes.items():
        if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
            raise InputTypeError(f"{name} must be an int, got {type(axis).__name__}")
        if not -values.dim() <= axis < values.dim():
            raise InputError(f"{name} is {axis}, but samples has shape {tuple(values.shape)}")
    if (sample_axis - target_axis) % values.dim() == 0:
        raise InputError(f"sample_axis and target_axis are the same axis, {sample_axis}")
    return Ensemble(values.movedim((sample_axis, target_axis), (0, -1)), weights)


@needed_by("from_draws")
def from_draws(
    draws: Mapping[str, object], y: Mapping[str, object], *, sample_axis: int = 0
) -> Labelled:
    """Draws of several variables by name, as numpyro and bayesflow return them.

    Each variable is a target, or one for each place of its further axes. Draws of variables that
    `y` does not have, such as latent sites, are left out.

    Args:
        draws: arrays by name: `(S, N, ...)` from `numpyro.infer.Predictive`; `(N, S, ...)` with
            `sample_axis=1` from `sample` of bayesflow.
        y: what was observed, or the parameters that were simulated, by the same names:
            `(N, ...)`. The targets are in its order.
        sample_axis: the axis of the samples, 0 or 1; the other one is that of the rows.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> draws = {"slope": rng.normal(size=(100, 20, 2)), "noise": rng.normal(size=(100, 20))}
        >>> truth = {"slope": rng.normal(size=(100, 2)), "noise": rng.normal(size=100)}
        >>> dist, y = from_draws(draws, truth, sample_axis=1)
        >>> dist.samples.shape, list(y.columns)
        (torch.Size([20, 100, 3]), ['slope/0', 'slope/1', 'noise'])
    """
    import pandas as pd

    for given, name in ((draws, "draws"), (y, "y")):
        if not isinstance(given, Mapping):
            raise wrong_type(name, given, "a dictionary with an array for each variable")
    if sample_axis not in (0, 1):
        raise InputError(f"sample_axis must be 0 or 1, got {sample_axis!r}")
    absent = [name for name in y if name not in draws]
    if absent or not y:
        raise InputError(
            f"y has the variables {quoted(y)}, and draws {quoted(draws)}: each variable of y needs "
            "draws, and y at least one"
        )
    samples, observed, columns = [], [], []
    for name, values in y.items():
        truth, drawn = as_tensor(values, f"y[{name!r}]"), as_tensor(draws[name], f"draws[{name!r}]")
        rest = [size for axis, size in enumerate(drawn.shape) if axis != sample_axis]
        if not 0 < truth.dim() == drawn.dim() - 1 or rest != list(truth.shape):
            raise ShapeError(
                f"draws of {name!r} have shape {tuple(drawn.shape)} with sample_axis="
                f"{sample_axis}, and y has {tuple(truth.shape)}: they must differ by the axis of "
                "the samples alone"
            )
        first = drawn.movedim(sample_axis, 0)
        samples.append(first.unsqueeze(-1).flatten(2))
        observed.append(truth.unsqueeze(-1).flatten(1))
        places = [list(map(str, range(size))) for size in truth.shape[1:]]
        columns += event_names([[str(name)], *places])
    if len(sizes := {tuple(part.shape[:2]) for part in samples}) > 1:
        raise ShapeError(f"variables differ in samples and rows: {sorted(sizes)}")
    if again := repeated(columns):
        raise InputError(f"several targets are called {quoted(again)}: rename a variable")
    table = pd.DataFrame(torch.cat(observed, -1).numpy(force=True), columns=columns)
    return Labelled(Ensemble(torch.cat(samples, -1)), table)


@needed_by("from_pandas")
def from_pandas(samples: "pd.DataFrame", y: "pd.DataFrame", *, sample: str = "sample") -> Labelled:
    """Samples in a long table, matched with observations by the names in their indexes.

    Args:
        samples: one line for each sample of each row. Its index has the levels of the index of
            `y`, and one that numbers the samples; its columns are those of `y`, in any order.
        y: observations, one line for each row.
        sample: name of the level that numbers the samples.

    Example:
        >>> import pandas as pd
        >>> days = pd.Index(["Mon", "Tue"], name="day")
        >>> y = pd.DataFrame({"wind": [1.0, 2.0], "rain": [0.0, 3.0]}, index=days)
        >>> lines = pd.MultiIndex.from_product([range(10), days[::-1]], names=["sample", "day"])
        >>> samples = pd.DataFrame(np.arange(40.0).reshape(20, 2), lines, ["rain", "wind"])
        >>> dist, _ = from_pandas(samples, y)
        >>> dist.samples[0]  # Monday, Tuesday; wind, rain
        tensor([[3., 2.],
                [1., 0.]], dtype=torch.float64)
    """
    check_frame(samples, "samples")
    check_frame(y, "y")
    levels: list[Any] = list(samples.index.names)
    rows: list[Any] = list(y.index.names)
    if sample not in levels:
        raise InputError(f"samples has no index level {sample!r}; there are {quoted(levels)}")
    others = [level for level in levels if level != sample]
    if set(others) != set(rows) or not len(others) == len(rows) == len(set(rows)):
        raise InputError(
            f"samples has the index levels {quoted(others)} beside {sample!r}, and y has "
            f"{quoted(rows)}: name them alike, and each by a name of its own"
        )
    same_labels("columns", samples.columns, y.columns)
    order = [levels.index(level) for level in (sample, *rows)]
    lines: Any = samples[list(y.columns)].reorder_levels(order)
    same_labels("rows", lines.index.droplevel(0).unique(), y.index)
    return Labelled(Ensemble(by_label(lines, "samples", y.index)), y)


def by_label(lines: Any, name: str, rows: Any) -> npt.NDArray[Any]:
    """Lines of a long table, in any order, as an array `(S, N, columns)`.

    Args:
        lines: a table with one for each sample of each row; the first level of its index numbers
            the samples.
        name: of the table, for errors.
        rows: an index of N labels, all of them among the further levels; others are left out.
    """
    import pandas as pd

    lines = lines[lines.index.droplevel(0).isin(rows)]
    known = rows.unique()
    places = known.get_indexer(lines.index.droplevel(0))
    numbers, samples = pd.factorize(lines.index.get_level_values(0), sort=True)
    order, again = order_lines(places, numbers)
    if again:
        raise InputError(f"{name} has an index with duplicates: each line needs its own")
    counts = np.bincount(places, minlength=len(known))
    if counts.min() < len(samples):
        raise InputError(
            f"{name} numbers {len(samples)} different samples, but row {known[counts.argmin()]} "
            f"has only {counts.min()} of them: all rows need samples of the same numbers"
        )
    values = lines.to_numpy()[order].reshape(len(known), len(samples), -1)
    return np.moveaxis(values[known.get_indexer(rows)], 1, 0)


def check_frame(value: object, name: str) -> None:
    """Raise unless a value is a table of pandas."""
    import pandas as pd

    if isinstance(value, pd.Series):
        raise InputTypeError(f"{name} is a pandas.Series: make it a table with {name}.to_frame()")
    if not isinstance(value, pd.DataFrame):
        raise wrong_type(name, value, "a pandas.DataFrame with a column for each target")


def same_labels(what: str, ours: Any, theirs: Any, source: str = "samples") -> None:
    """Raise unless a source and y have the same labels, in whatever order, and each once."""
    for index, where in ((ours, source), (theirs, "y")):
        if index.has_duplicates:
            raise InputError(f"{what} of {where} has duplicates: each label must occur once")
    only_ours, only_theirs = (
        ours.difference(theirs, sort=False),
        theirs.difference(ours, sort=False),
    )
    if len(only_ours) or len(only_theirs):
        raise InputError(
            f"{what} of {source} and y differ: {len(only_ours)} of {len(ours)} labels are only in "
            f"{source} ({_shown(only_ours)}), {len(only_theirs)} of {len(theirs)} only in y "
            f"({_shown(only_theirs)}); select the common ones"
        )


def _shown(labels: Any, most: int = 3) -> str:
    """Some labels: text in quotes, so that '6' is not 6."""
    first = labels[:most]
    texts = [
        repr(label) if isinstance(label, str | tuple) else text
        for label, text in zip(first, label_texts(first), strict=True)
    ]
    return ", ".join([*texts, "..."] if len(labels) > most else texts) or "none"
