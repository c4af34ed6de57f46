"""Checking and converting what users pass: arrays, tables, tensors, seeds."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError, InputTypeError, ShapeError

__all__ = [
    "as_count",
    "as_device",
    "as_generator",
    "as_labels",
    "as_missing",
    "as_points",
    "as_positive",
    "as_probability",
    "as_ranks",
    "as_tensor",
    "check_distribution",
    "check_finite",
    "check_observations",
    "check_same_device",
    "column_labels",
    "column_names",
    "full_precision",
    "is_named",
    "may_not_wait",
    "parameter_of",
    "refuse_collections",
    "repeated",
    "wrong_type",
]

Shape = torch.Size | list[int] | tuple[int, ...]

_REMEDY = "remove those rows or impute them first"
_MISSING = f"{_REMEDY}, or pass missing='available' to diagnose, pit or a score"


def as_missing(value: object) -> bool:
    """Whether values may be missing, from the argument `missing` of a function."""
    if value not in ("raise", "available"):
        raise InputError(f"missing must be 'raise' or 'available', got {value!r}")
    return value == "available"


def as_tensor(value: object, name: str, *, gaps: bool = False) -> Tensor:
    """Turn a tensor, array, table or nested list of numbers into a floating-point tensor.

    In numpy and pandas an integer dtype is often only how counts are stored, so it is
    converted. An integer *tensor* is refused: in torch it says that the values are indices,
    labels or a forgotten conversion, and arithmetic on it would truncate.

    Args:
        value: tensor, array, table or list.
        name: of the argument, for messages.
        gaps: make NaN of masked values, and of those that pandas marks as missing.

    Example:
        >>> as_tensor([[1, 2], [3, 4]], "y").dtype
        torch.float64
    """
    refuse_collections(value, name)
    if isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        if not gaps:
            raise InputError(f"{name} has masked values: {_MISSING}")
        value = np.ma.filled(value if value.dtype.kind == "f" else value.astype(float), np.nan)
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise InputTypeError(f"{name} is sparse: convert it with {name}.to_dense()")
        if not value.is_floating_point():
            raise InputTypeError(
                f"{name} must be a floating-point tensor, got {value.dtype}: "
                f"convert it, for instance with {name}.double()"
            )
        return _refuse_half(value, name)
    if hasattr(value, "to_numpy"):  # pandas, polars and xarray
        table: Any = value
        value = table.to_numpy()
        if gaps and np.asarray(value).dtype.kind == "O" and hasattr(table, "isna"):  # pandas.NA
            value = table.to_numpy(dtype=np.float64, na_value=np.nan)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {error}") from error
    try:
        array = array.astype(np.float64) if array.dtype.kind in "iubO" else array
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"{name} must be numeric: {error}") from error
    if array.dtype.kind != "f" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise InputTypeError(f"{name} must hold real numbers (up to float64), got {array.dtype}")
    # A copy where torch could not share the memory (negative strides, read-only, byte order).
    array = np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])
    return _refuse_half(torch.from_numpy(array), name)


def refuse_collections(value: object, name: str) -> None:
    """Raise if a value holds several arrays: an xarray.Dataset, nested tensors, a list of them."""
    if _is_of_xarray(value, "Dataset"):
        raise InputTypeError(
            f"{name} is an xarray.Dataset: make one array of it with "
            f"{name}.to_dataarray().transpose(..., 'variable'), or match samples with observations "
            "by prerank.adapters.named_forecast"
        )
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, Tensor) and part.is_nested for part in parts):
        raise InputTypeError(f"{name} is a nested tensor: give rows of one length")


def is_named(value: object) -> bool:
    """Whether a value is an array or a dataset of xarray, with names of its dimensions."""
    return _is_of_xarray(value, "DataArray") or _is_of_xarray(value, "Dataset")


def _is_of_xarray(value: object, kind: str) -> bool:
    """Whether a value is of a class of xarray, which is not imported to find out."""
    xarray: Any = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, getattr(xarray, kind))


def _refuse_half(value: Tensor, name: str) -> Tensor:
    if value.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(
            f"{name} is {value.dtype}: ranks and densities need at least float32, convert it, for "
            f"instance with {name}.float() or {name}.astype('float32')"
        )
    return value


def as_points(
    value: object, name: str, *, min_dims: int = 2, gaps: bool = False, remedy: str = _REMEDY
) -> Tensor:
    """Convert to a floating-point tensor of shape `(..., N, D)` with N, D >= 1.

    It is finite, but for NaN where there may be gaps.
    """
    points = as_tensor(value, name, gaps=gaps)
    if points.dim() < min_dims:
        wanted = "(S, ..., N, D)" if min_dims > 2 else "(..., N, D)"
        one_short = points.dim() == min_dims - 1
        hint = f"; one target has an axis too, as in {name}[..., None]" if one_short else ""
        raise ShapeError(f"{name} must have shape {wanted}, got {tuple(points.shape)}{hint}")
    if points.numel() == 0:
        raise ShapeError(f"{name} is empty: its shape is {tuple(points.shape)}")
    check_finite(points, name, remedy, gaps=gaps)
    return points


def check_finite(value: Tensor, name: str, remedy: str = _REMEDY, *, gaps: bool = False) -> None:
    """Raise if a tensor holds NaN or infinity; with gaps, only if it holds infinity."""
    if value.device.type == "meta":
        raise InputError(f"{name} is on the meta device and holds no values")
    if value.is_cuda and may_not_wait():
        return
    if math.isfinite(float(value.detach().sum())):  # one pass; large numbers may have no sum
        return
    bad = torch.isinf(value) if gaps else ~torch.isfinite(value)
    if bad.any():
        kind = "infinite" if gaps else "NaN or infinite"
        raise InputError(
            f"{name} holds {int(bad.sum())} {kind} values of {value.numel()}: {remedy}"
        )


def may_not_wait() -> bool:
    """Whether values cannot be looked at: a CUDA graph is recorded, or waiting was forbidden."""
    return torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode() == 2


def check_distribution(dist: object, *, gaps: bool = False) -> Distribution:
    """Check that `dist` is a torch distribution over vectors, with at least one batch axis.

    Samples with missing values are refused unless there may be gaps.
    """
    if not isinstance(dist, Distribution):
        raise InputTypeError(
            f"dist must be a torch.distributions.Distribution, got {type(dist).__name__}: "
            "wrap raw samples of shape (S, ..., N, D) in prerank.Ensemble"
        )
    batch, event = tuple(dist.batch_shape), tuple(dist.event_shape)
    if not event:
        raise ShapeError(
            f"dist has batch_shape {batch} and event_shape (): wrap it in Independent(dist, 1) so "
            "that the last axis holds the targets"
        )
    if len(event) > 1:
        raise ShapeError(f"dist has event_shape {event}: flatten it to one axis of targets")
    if not batch:
        raise ShapeError(
            f"dist has batch_shape () and event_shape {event}: it needs one entry per row; use "
            "dist.expand((N,)) if every row has the same prediction"
        )
    if 0 in batch + event:
        raise ShapeError(f"dist is empty: batch_shape {batch}, event_shape {event}")
    if not gaps and getattr(dist, "has_gaps", False):
        raise InputError(f"dist holds samples with missing values: {_MISSING}")
    return dist


def check_observations(dist: Distribution, y: object, *, gaps: bool = False) -> Tensor:
    """Convert `y` and match it to the rows and targets of `dist`.

    Args:
        dist: a distribution with `batch_shape (..., N)` and `event_shape (D,)`.
        y: observations `(..., N, D)`; leading stack axes may be left out, or have size 1. Where
            there is one target, `(N,)` will do.
        gaps: whether they may hold NaN.

    Returns:
        A tensor of shape `batch_shape + (D,)`, finite but for gaps.
    """
    points = as_tensor(y, "y", gaps=gaps)
    reference = parameter_of(dist)
    if reference is not None:
        check_same_device(reference, points, ("dist", "y"))
        points = points.to(reference.dtype)
    if points.dim() == 1 and dist.event_shape == (1,):
        points = points.unsqueeze(-1)
    points = as_points(points, "y", gaps=gaps, remedy=_REMEDY if gaps else _MISSING)
    shape, stack = dist.batch_shape + dist.event_shape, points.shape[-3::-1]
    stacks = len(stack) <= len(shape) - 2 and all(
        own in (1, wanted) for own, wanted in zip(stack, shape[-3::-1], strict=False)
    )
    if stacks and points.shape[-2:] == shape[-2:]:
        return points.expand(shape)
    samples = getattr(dist, "samples", None)
    swapped = isinstance(samples, Tensor) and samples.shape[0] == points.shape[-2]
    hint = "; the sample axis comes first, as in samples.swapaxes(0, 1)" if swapped else ""
    raise ShapeError(
        f"y has shape {tuple(points.shape)}, but dist has batch_shape {tuple(dist.batch_shape)} "
        f"and event_shape {tuple(dist.event_shape)}: y must be {tuple(shape)}{hint}"
    )


def parameter_of(dist: Distribution) -> Tensor | None:
    """Find a floating-point parameter of any distribution: it tells dtype and device."""
    for value in vars(dist).values():
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
        if isinstance(value, Distribution):
            parameter = parameter_of(value)
            if parameter is not None:
                return parameter
    return None


def check_same_device(first: Tensor, second: Tensor, names: tuple[str, str]) -> None:
    """Raise if two tensors live on different devices."""
    if first.device != second.device:
        raise InputError(
            f"{names[0]} is on {first.device} and {names[1]} on {second.device}: "
            f"move one of them, for instance {names[1]}.to({str(first.device)!r})"
        )


def as_generator(generator: object, purpose: str) -> torch.Generator | None:
    """Turn a seed into a CPU generator; pass a generator or None through.

    Noise is drawn on the generator's device and then moved, so that a seed gives the same
    numbers on every device.

    Args:
        generator: a generator, a seed or None.
        purpose: what it is for. The same seed gives unrelated streams for different purposes, and
            another one than torch's own: data drawn with seed 0 and judged with seed 0 must not
            meet its own noise again among the samples.
    """
    if generator is None or isinstance(generator, torch.Generator):
        return generator
    if isinstance(generator, int | np.integer) and not isinstance(generator, bool):
        words = [int(generator) % 2**128, *purpose.encode()]
        state = np.random.SeedSequence(words).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(state) >> 1)
    raise InputTypeError(
        f"generator must be a torch.Generator, an int or None, got {type(generator).__name__}"
    )


def as_count(value: object, name: str, *, minimum: int, maximum: int | None = None) -> int:
    """Check a whole number with a lower bound and, if there is one, an upper one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < minimum:
        raise InputError(f"{name} must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise InputError(f"{name} must be at most {maximum}, got {value}")
    return int(value)


def as_positive(value: object, name: str, *, minimum: float = 0.0) -> float:
    """Check a finite number above 0, and not below `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputTypeError(f"{name} must be a number, got {type(value).__name__}")
    number = float(value)
    if not (math.isfinite(number) and number > 0 and number >= minimum):
        least = f"at least {minimum:g}" if minimum else "positive"
        raise InputError(f"{name} must be {least} and finite, got {value}")
    return number


def as_probability(value: object, name: str) -> float:
    """Check a number above 0 and below 1."""
    number = as_positive(value, name)
    if number >= 1:
        raise InputError(f"{name} must be below 1, got {value}")
    return number


def wrong_type(name: str, value: object, wanted: str) -> InputTypeError:
    """The error for an argument of another type than `wanted`."""
    kind = type(value)
    return InputTypeError(f"{name} must be {wanted}, got {kind.__module__}.{kind.__qualname__}")


def repeated(names: Iterable[str]) -> list[str]:
    """Names that come more than once, sorted.

    Example:
        >>> repeated(["b", "a", "b"])
        ['b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)


def as_device(value: object, name: str) -> torch.device:
    """Turn a name into a device on which values can be stored."""
    try:
        device = torch.device(value)  # type: ignore[call-overload]
        torch.zeros(1, device=device).item()  # a device may have a name and not be there
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name}={value!r} cannot be used ({reason}): pass 'cpu', or leave it out for the "
            "GPU where there is one"
        ) from error
    return device


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch autocast off: half precision would merge and reorder the values that are ranked."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def column_labels(y: Any) -> Sequence[Any] | None:
    """Labels of the columns of a table, or of the last dimension of an array of xarray."""
    if _is_of_xarray(y, "DataArray"):
        labels: Sequence[Any] | None = y.indexes.get(y.dims[-1]) if y.ndim > 1 else None
        return labels
    return getattr(y, "columns", None)


def column_names(y: Any, size: int, names: object = None) -> Sequence[str]:
    """Return the names of the targets: a table's columns, a series' name, or y0, y1, ...

    Those of an array of xarray are the labels of its last dimension. Names that are given go first.
    """
    if names is not None:
        return as_names(names, size, "names")
    columns = column_labels(y)
    if columns is None and hasattr(y, "to_numpy"):  # a series of pandas or polars
        columns = [name for name in [getattr(y, "name", None)] if name not in (None, "")]
    if columns is not None and len(columns) == size:
        return [str(column) for column in columns]
    return [f"y{d}" for d in range(size)]


def as_ranks(values: object, name: str) -> npt.NDArray[np.int64]:
    """Ranks of times from 0, equal ones for equal times: numbers, dates or durations, also as text.

    Example:
        >>> as_ranks(["2024-10-01", "2024-09-30", "2024-10-01"], "time")
        array([1, 0, 1])
    """
    array = np.asarray(values)
    if array.dtype.kind in "biufmM":
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    import pandas as pd

    column = pd.Series(values)
    dates = partial(pd.to_datetime, format="ISO8601", utc=True)
    for read in (pd.to_numeric, dates, pd.to_timedelta):
        with suppress(TypeError, ValueError):
            moments = pd.Series(read(column))
            break
    else:
        raise InputError(
            f"{name}, such as {column.iloc[0]!r}, must be numbers or dates like 2024-12-31"
        )
    if moments.isna().any():
        raise InputError(f"{name} has missing values: give one for every row")
    return moments.rank(method="dense").to_numpy().astype(np.int64) - 1


def as_array(values: object, name: str) -> npt.NDArray[Any]:
    """An array of whatever has equally long rows."""
    try:
        return np.asarray(values)
    except ValueError as error:  # numpy's says neither which argument nor what to do
        raise ShapeError(f"{name} has rows of different lengths: give an array") from error


def as_names(names: object, count: int, what: str) -> list[str]:
    """Check names, one for each of `count` things.

    Example:
        >>> as_names(["wind", "rain"], 2, "names")
        ['wind', 'rain']
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise wrong_type(what, names, "a list of texts")
    listed = list(names)
    if not all(isinstance(name, str) for name in listed):
        raise InputTypeError(f"{what} must be texts, got {listed!r}")
    if len(listed) != count:
        raise ShapeError(f"{what} has {len(listed)} names, but {count} are needed: {listed}")
    return listed


def as_labels(values: object, name: str, n: int) -> npt.NDArray[np.generic]:
    """One label for each of n rows, such as the name of its group, or its time.

    Example:
        >>> as_labels(["a", "b"], "groups", 2)
        array(['a', 'b'], dtype='<U1')
    """
    refuse_collections(values, name)
    labels = as_array(values, name)
    if labels.shape != (n,):
        raise ShapeError(f"{name} has shape {labels.shape}, but there are {n} rows")
    # An array of texts has made text of what is missing in a list.
    single = list(values) if isinstance(values, list | tuple) else labels.tolist()
    missing = {str(value) for value in single if not isinstance(value, str)}
    if not {"None", "nan", "NaT", "<NA>"}.isdisjoint(missing):
        raise InputError(f"{name} has missing values: give one for every row")
    return labels
