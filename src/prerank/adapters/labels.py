"""Samples with named axes: arrays, pandas and xarray."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch.distributions import Distribution

from prerank.distributions import Ensemble
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.extras import library, needed_by
from prerank.inputs import as_tensor, wrong_type
from prerank.numerics import order_lines

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Labelled",
    "by_label",
    "check_frame",
    "from_arrays",
    "from_pandas",
    "from_xarray",
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
        raise InputError(f"samples has no index level {sample!r}; there are {_listed(levels)}")
    others = [level for level in levels if level != sample]
    if set(others) != set(rows) or not len(others) == len(rows) == len(set(rows)):
        raise InputError(
            f"samples has the index levels {_listed(others)} beside {sample!r}, and y has "
            f"{_listed(rows)}: name them alike, and each by a name of its own"
        )
    same_labels("columns", samples.columns, y.columns)
    order = [levels.index(level) for level in (sample, *rows)]
    lines: Any = samples[list(y.columns)].reorder_levels(order)
    same_labels("rows", lines.index.droplevel(0).unique(), y.index)
    return Labelled(Ensemble(by_label(lines, "samples", y.index)), y)


@needed_by("from_xarray")
def from_xarray(
    samples: Any, y: Any, *, sample: str = "sample", target: str = "target"
) -> Labelled:
    """Samples and observations with named dimensions, matched by their coordinates.

    All dimensions but those of samples and targets are rows, in the order of `samples`, the last
    one running fastest. In a Dataset the variables are the targets; a DataArray without a dimension
    `target` has one. The rows come back as an index, so that what was found for each row returns
    to its place with `pandas.DataFrame(found, index=y.index).to_xarray()`.

    Args:
        samples: DataArray or Dataset with a dimension `sample`.
        y: DataArray or Dataset with the same dimensions but for `sample`.
        sample: name of the dimension that numbers the samples.
        target: name of the dimension of the targets.

    Example:
        >>> import prerank, xarray as xr
        >>> rng = np.random.default_rng(0)
        >>> names = {"station": ["a", "b"], "target": ["wind", "rain"]}
        >>> forecast = xr.DataArray(
        ...     rng.normal(size=(30, 50, 2, 2)), dims=["member", "time", *names], coords=names
        ... )
        >>> observed = xr.DataArray(
        ...     rng.normal(size=(50, 2, 2)), dims=["time", *names], coords=names
        ... )
        >>> dist, y = from_xarray(forecast, observed, sample="member")
        >>> dist.batch_shape, list(y.columns), list(y.index.names)
        (torch.Size([100]), ['wind', 'rain'], ['time', 'station'])
        >>> table = prerank.diagnose(dist, y, generator=0).table
    """
    import pandas as pd

    xr = library("xarray", "from_xarray")
    members, observed = (
        _one_array(value, name, target, xr) for value, name in ((samples, "samples"), (y, "y"))
    )
    if sample not in members.dims:
        raise InputError(f"samples has no dimension {sample!r}; there are {_listed(members.dims)}")
    rows = [dim for dim in members.dims if dim not in (sample, target)]
    if set(observed.dims) != {*rows, target}:
        raise InputError(
            f"y has the dimensions {_listed(observed.dims)}, but should have "
            f"{_listed([*rows, target])}: those of samples without {sample!r}"
        )
    if not rows:
        raise ShapeError(
            f"samples has the dimensions {_listed(members.dims)}: none is left for rows"
        )
    for dim in (*rows, target):
        if (dim in members.indexes) != (dim in observed.indexes):
            with_labels = "samples" if dim in members.indexes else "y"
            raise InputError(
                f"dimension {dim!r} has labels in {with_labels} only: give them to both, or drop "
                f"them with {with_labels}.drop_vars({str(dim)!r}) if the order is the same"
            )
        ours, theirs = members.get_index(dim), observed.get_index(dim)
        same_labels(f"dimension {dim!r}", ours, theirs)
        observed = observed.isel({dim: theirs.get_indexer(ours)})
    values = members.transpose(sample, *rows, target).to_numpy()
    size = (members.sizes[sample], -1, members.sizes[target])
    indexes = [members.get_index(dim) for dim in rows]
    index = indexes[0] if len(rows) == 1 else pd.MultiIndex.from_product(indexes, names=rows)
    table = pd.DataFrame(
        observed.transpose(*rows, target).to_numpy().reshape(size[1:]),
        index=index,
        columns=pd.Index([str(label) for label in members.get_index(target)]),
    )
    return Labelled(Ensemble(values.reshape(size)), table)


def _one_array(value: Any, name: str, target: str, xr: Any) -> Any:
    """A DataArray with a dimension for the targets."""
    if isinstance(value, xr.Dataset):
        return value.to_dataarray(dim=target)
    if not isinstance(value, xr.DataArray):
        raise wrong_type(name, value, "an xarray.DataArray or xarray.Dataset")
    if target in value.dims:
        return value
    return value.expand_dims({target: ["y0" if value.name is None else str(value.name)]})


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
    only_ours, only_theirs = ours.difference(theirs), theirs.difference(ours)
    if len(only_ours) or len(only_theirs):
        raise InputError(
            f"{what} of {source} and y differ: {len(only_ours)} labels are only in {source} "
            f"({_listed(only_ours[:3]) or 'none'}), {len(only_theirs)} only in y "
            f"({_listed(only_theirs[:3]) or 'none'}); select the common ones"
        )


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(repr(name) for name in names)
