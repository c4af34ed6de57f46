"""Functions of a distribution and observations that take arrays of xarray in their place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import torch
from torch import Tensor

from prerank.adapters.dimension_matching import named_forecast
from prerank.adapters.named_forecasts import NamedForecast
from prerank.errors import InputError
from prerank.inputs import is_named

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["AcceptsNames", "NamedCall", "accepts_names", "in_blocks", "refuse_names"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_DIMENSIONS = ("member", "target", "rows")
_ROW_LABELS = ("time", "cluster")


class AcceptsNames(Protocol[P, R_co]):
    """A function that has a further form for arrays of xarray."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, dist: "xr.DataArray | xr.Dataset", /, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True)
class NamedCall(Generic[R]):
    """A call with arrays of xarray, not yet made.

    Attributes:
        function: what takes distributions and tables.
        given: its other arguments, by name.
        found: the forecasts beside the observations, by name of the argument.
        by: name of a coordinate with groups, or of several.
    """

    function: Callable[..., R]
    given: Mapping[str, Any]
    found: Mapping[str, NamedForecast]
    by: Any

    @property
    def forecast(self) -> NamedForecast:
        """The first of the forecasts."""
        return next(iter(self.found.values()))

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the function, with every row in memory."""
        dists = {name: one.dist for name, one in self.found.items()}
        return {**dists, "y": self.forecast.y, **self.given}

    def whole(self) -> R:
        """Call the function once."""
        return self.function(**self.arguments)


def in_blocks(call: NamedCall[Tensor]) -> Tensor:
    """Call a function of single rows for one block of rows after the other."""
    blocks = call.forecast.blocks()
    return torch.cat([call.function(dist=dist, y=y, **call.given) for dist, y in blocks])


def accepts_names(
    answer: Callable[[NamedCall[R]], Any],
) -> Callable[[Callable[P, R]], AcceptsNames[P, R]]:
    """Let a function take arrays of xarray, with its arguments `member`, `target`, `rows` and `by`.

    Its arguments `dist`, or `dist_a` and `dist_b`, and `y` are matched by their coordinates.
    `time` and `cluster` may be names of coordinates then. The function itself is called without
    these names.

    Args:
        answer: makes the call, and gives the result the names of the arguments.

    Example:
        >>> import numpy as np, xarray as xr
        >>> @accepts_names(lambda call: call.forecast.over_rows(call.whole(), "range"))
        ... def span(dist, y, *, member=None, target=None, rows=None):
        ...     return dist.samples.amax((0, 2)) - dist.samples.amin((0, 2))
        >>> samples = xr.DataArray(np.arange(12.0).reshape(2, 3, 2), dims=["number", "day", "at"])
        >>> span(samples, samples[0], target="at").dims
        ('day',)
    """

    def decorate(function: Callable[P, R]) -> AcceptsNames[P, R]:
        own = signature(function)
        forecasts = [name for name in own.parameters if name.startswith("dist")]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                given = own.bind(*args, **kwargs).arguments
            except TypeError:
                return function(*args, **kwargs)  # whose error names it
            named = {name: given.pop(name, None) for name in (*_DIMENSIONS, "by")}
            if not any(is_named(given[name]) for name in forecasts):
                refuse_names(**named)
                return function(*args, **kwargs)
            dims = {name: named[name] for name in _DIMENSIONS}
            dims |= {"missing": given["missing"]} if "missing" in given else {}
            found = {
                name: named_forecast(given.pop(name), given["y"], name=name, **dims)
                for name in forecasts
            }
            del given["y"]
            first = found[forecasts[0]]
            given |= {
                name: first.labels(given[name], name) for name in _ROW_LABELS if name in given
            }
            return answer(NamedCall(function, given, found, named["by"]))

        return cast(AcceptsNames[P, R], call)

    return decorate


def refuse_names(**names: object) -> None:
    """Raise where dimensions or coordinates are named, and there are none."""
    given = [name for name, value in names.items() if value is not None]
    if given:
        other = "use prerank.diagnosis.diagnose_by" if given[0] == "by" else "leave it out"
        raise InputError(
            f"{given[0]} is a name in arrays of xarray, and dist is none: {other}, or give dist "
            "and y as xarray.DataArray or xarray.Dataset"
        )
