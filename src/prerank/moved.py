"""Modules, and names in modules, under their old names."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["forward"]


def forward(old: str, new: str, **names: str) -> Callable[[str], Any]:
    """`__getattr__` of a module whose names have moved: it warns, and finds the new place.

    Args:
        old: full name of the module that stays for the sake of old imports.
        new: full name of the module that has its contents now.
        names: new names by old ones, where only these have changed. Otherwise every name of the
            new module is found.

    Example:
        >>> getattr_of_module = forward("prerank.forecasts", "prerank.files")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     getattr_of_module("read_forecasts").__module__
        'prerank.files.forecast_files'
        >>> str(caught[0].message)
        'prerank.forecasts is deprecated: import read_forecasts from prerank.files'
    """

    def find(name: str) -> Any:
        target = names.get(name, "") if names else name
        known = target and not name.startswith("__")
        value = getattr(importlib.import_module(new), target, None) if known else None
        if value is None:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        place = f"{old}.{name}" if names else old
        warnings.warn(
            f"{place} is deprecated: import {target} from {new}", DeprecationWarning, stacklevel=2
        )
        return value

    return find
