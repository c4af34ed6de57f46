"""Samples and observations of xarray, matched by the coordinates that they share."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from prerank.adapters.fields import Field
from prerank.adapters.labels import Labelled, same_labels
from prerank.adapters.named_forecasts import NamedForecast
from prerank.coordinates import SAMPLE_NAMES, quoted
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.extras import needed_by
from prerank.inputs import is_named, repeated, wrong_type

__all__ = ["Names", "from_xarray", "named_forecast", "named_samples"]

Names = Hashable | Sequence[Hashable]
"""One name of a dimension, or several."""


def named_forecast(
    dist: Any,
    y: Any,
    *,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    name: str = "dist",
    missing: str = "raise",
) -> NamedForecast:
    """Match samples with observations by the labels of each dimension they share.

    Dimensions without labels in both go by place. Neither order matters; the rows and the
    components of the result are in the order of `y`.

    Args:
        dist: DataArray, or Dataset, of samples. The targets of a Dataset are its variables with
            the dimension `member`.
        y: observations of the same kind, with the other dimensions.
        member: the dimension of the samples; by default one of a usual name, such as `number`.
        target: the dimensions whose places form one event; none by default.
        rows: the other dimensions, in the order of the rows; by default that of `y`.
        name: of the argument `dist`, for messages.
        missing: `"available"` where values may be NaN.

    Raises:
        InputError: where dimensions, labels, variables or units differ; the message names them.

    Example:
        >>> import numpy as np, xarray as xr
        >>> leads = {"station": ["a", "b"], "lead": [6, 12]}
        >>> observed = xr.DataArray(np.zeros((9, 2, 2)), leads, ["time", "station", "lead"])
        >>> samples = observed.expand_dims(number=20).transpose("lead", "station", ...)
        >>> found = named_forecast(samples, observed, target=("station", "lead"))
        >>> found.dist.batch_shape, list(found.y.columns)
        (torch.Size([9]), ['a/6', 'a/12', 'b/6', 'b/12'])
    """
    for value, what in ((dist, name), (y, "y")):
        if not is_named(value):
            raise wrong_type(
                what, value, "an xarray.DataArray or xarray.Dataset, as the others are"
            )
    if hasattr(dist, "data_vars") != hasattr(y, "data_vars"):
        kinds = [type(value).__name__ for value in (dist, y)]
        raise InputTypeError(
            f"{name} is a {kinds[0]} and y a {kinds[1]}: give two of a kind, such as one variable "
            "of the Dataset"
        )
    samples = named_samples(dist, member=member, target=target, rows=rows, name=name)
    absent = [v for v in samples.variables if v not in y.data_vars]
    if absent:
        raise InputError(
            f"y has no variable {quoted(absent)}, of which {name} has samples; it has "
            f"{quoted(y.data_vars)}: name them alike, or choose some, as in {name}[['t2m']]"
        )
    observed = Field("y", y, samples.variables, None, samples.rows, samples.target)
    _check_dimensions(observed, samples)
    if rows is None:
        order = observed.arrays[0].dims
        own = tuple(dim for dim in order if dim not in samples.target)
        observed = Field("y", y, samples.variables, None, own, samples.target)
        samples = Field(name, dist, samples.variables, samples.member, own, samples.target)
    _check_units(samples, observed)
    return NamedForecast(samples.at(_places(samples, observed)), observed, missing)


def named_samples(
    dist: Any,
    *,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    name: str = "dist",
) -> Field:
    """Find members, rows and events in samples alone; arguments are those of `named_forecast`."""
    member = _member(dist, member, name)
    variables: tuple[Hashable, ...] = ()
    dims = tuple(dist.dims)
    if hasattr(dist, "data_vars"):
        sampled = {v: array.dims for v, array in dist.data_vars.items() if member in array.dims}
        variables = tuple(sampled)
        dims = next(iter(sampled.values()))
        other = [v for v, own in sampled.items() if set(own) != set(dims)]
        if other:
            raise InputError(
                f"variable {other[0]!r} of {name} has the dimensions {quoted(sampled[other[0]])}, "
                f"and {variables[0]!r} {quoted(dims)}: all targets need the same"
            )
    events = _as_dims(target, "target", dims, name)
    rest = tuple(dim for dim in dims if dim not in (member, *events))
    if member in events:
        raise InputError(f"target names {member!r}, which is the dimension of the members")
    if rows is not None:
        chosen = _as_dims(rows, "rows", dims, name)
        if set(chosen) != set(rest):
            raise InputError(
                f"rows are {quoted(chosen)}, but {name} has {quoted(rest)} beside "
                f"member {member!r} and target {quoted(events)}: each dimension is one "
                "of the three"
            )
        rest = chosen
    if not rest:
        raise ShapeError(f"{name} has the dimensions {quoted(dims)}: none is left for rows")
    if empty := [dim for dim in dims if not dist.sizes[dim]]:
        raise ShapeError(f"{name} is empty: its dimension {quoted(empty)} has the size 0")
    return Field(name, dist, variables, member, rest, events)


@needed_by("from_xarray")
def from_xarray(
    samples: Any, y: Any, *, sample: str = "sample", target: str = "target"
) -> Labelled:
    """Samples and observations with a dimension of targets, as a distribution and a table.

    All dimensions but those of samples and targets are rows, in the order of `y`, the last one
    running fastest. In a Dataset the variables are the targets; a DataArray without a dimension
    `target` has one. The rows come back as an index, so that what was found for each row returns
    to its place with `pandas.DataFrame(found, index=y.index).to_xarray()`.

    Args:
        samples: DataArray or Dataset with a dimension `sample`.
        y: DataArray or Dataset with the same dimensions but for `sample`.
        sample: name of the dimension that numbers the samples.
        target: name of the dimension of the targets.

    Example:
        >>> import numpy as np, prerank, xarray as xr
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
    import pandas  # noqa: F401
    import xarray  # noqa: F401

    arrays = (_with_targets(*one, target) for one in ((samples, "samples"), (y, "y")))
    found = named_forecast(*arrays, member=sample, target=target, name="samples")
    return Labelled(found.dist, found.y)


def _with_targets(value: Any, name: str, target: str) -> Any:
    """A DataArray with a dimension for the targets."""
    if not is_named(value):
        raise wrong_type(name, value, "an xarray.DataArray or xarray.Dataset")
    if hasattr(value, "data_vars"):
        return value.to_dataarray(dim=target)
    if target in value.dims:
        return value
    return value.expand_dims({target: ["y0" if value.name is None else str(value.name)]})


def _member(dist: Any, member: Hashable | None, name: str) -> Hashable:
    dims = list(dist.dims)
    if hasattr(dist, "data_vars"):
        dims = list(dict.fromkeys(dim for array in dist.data_vars.values() for dim in array.dims))
    usual = [dim for dim in dims if str(dim).lower() in SAMPLE_NAMES]
    if member is None and len(usual) == 1:
        return usual[0]
    if member is None:
        raise InputError(
            f"name the dimension of the members with member=: {name} has {quoted(dims)}"
        )
    if member not in dims:
        raise InputError(f"{name} has no dimension {member!r}; there are {quoted(dims)}")
    return member


def _as_dims(
    value: Names | None, what: str, dims: Sequence[Hashable], name: str
) -> tuple[Hashable, ...]:
    """Names of dimensions, of which each is there once."""
    if value is None:
        return ()
    single = isinstance(value, str) or not isinstance(value, Sequence)
    chosen = (value,) if single else tuple(value)  # type: ignore[arg-type]
    again = repeated(map(str, chosen))
    if again:
        raise InputError(f"{what} names {quoted(again)} more than once")
    unknown = [dim for dim in chosen if dim not in dims]
    if unknown:
        raise InputError(
            f"{what} names {quoted(unknown)}, but {name} has the dimensions {quoted(dims)}"
        )
    return chosen


def _check_dimensions(observed: Field, samples: Field) -> None:
    wanted = [*samples.rows, *samples.target]
    for array in observed.arrays:
        found = array.dims
        if set(found) == set(wanted):
            continue
        extra = [dim for dim in found if dim not in wanted]
        absent = [dim for dim in wanted if dim not in found]
        differ = [f"{quoted(extra)} is not in {samples.name}"] if extra else []
        differ += [f"{quoted(absent)} is not in y"] if absent else []
        raise InputError(
            f"y has the dimensions {quoted(found)}, but should have {quoted(wanted)}, "
            f"those of {samples.name} without {samples.member!r}: {' and '.join(differ)}; select "
            "the observation of each forecast first, as in y.sel(time=dist.valid_time)"
        )


def _check_units(samples: Field, observed: Field) -> None:
    for units in zip(samples.units, observed.units, strict=True):
        if all(units) and units[0] != units[1]:
            raise InputError(
                f"{samples.name} is in {units[0]!r} and y in {units[1]!r}: convert one of them, or "
                "give them the same attribute 'units' if these are two names of one unit"
            )


def _places(samples: Field, observed: Field) -> Mapping[Hashable, Any]:
    """Where the samples have the labels of the observations, by dimension."""
    places = {}
    ours, theirs = samples.given, observed.given
    for dim in (*samples.rows, *samples.target):
        if (dim in ours.indexes) != (dim in theirs.indexes):
            here = samples.name if dim in ours.indexes else "y"
            raise InputError(
                f"dimension {dim!r} has labels in {here} only: give them to both, or drop them "
                f"with {here}.drop_vars({str(dim)!r}) if the order is the same"
            )
        if dim not in ours.indexes:
            _check_by_place(dim, samples, observed)
            continue
        known, asked = _of_one_precision(ours.indexes[dim], theirs.indexes[dim])
        same_labels(f"dimension {dim!r}", known, asked, samples.name)
        if not known.equals(asked):
            places[dim] = known.get_indexer(asked)
    return places


def _check_by_place(dim: Hashable, samples: Field, observed: Field) -> None:
    """Places may stand for labels where there are as many, and nothing says otherwise."""
    ours, theirs = samples.given, observed.given
    if ours.sizes[dim] != theirs.sizes[dim]:
        raise InputError(
            f"dimension {dim!r} has {ours.sizes[dim]} places in {samples.name} and "
            f"{theirs.sizes[dim]} in y, and no labels: give it labels in both"
        )
    for name, mine in ours.coords.items():
        other = theirs.coords.get(name)
        if mine.dims != (dim,) or other is None or other.dims != (dim,):
            continue
        differ = int((mine.to_numpy() != other.to_numpy()).sum())
        if differ:
            raise InputError(
                f"dimension {dim!r} has no labels, and coordinate {name!r} differs at {differ} of "
                f"{mine.size} places: make it the labels of both, as in "
                f"y.set_index({dim}={str(name)!r})"
            )


def _of_one_precision(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Labels of two precisions in the lower one: 0.1 in float32 is not 0.1 in float64."""
    kinds = {index.dtype for index in (ours, theirs)}
    if len(kinds) == 2 and all(getattr(kind, "kind", "") == "f" for kind in kinds):
        lower = min(kinds, key=lambda kind: int(kind.itemsize))
        return ours.astype(lower), theirs.astype(lower)
    return ours, theirs
