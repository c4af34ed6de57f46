"""Modules, and names of modules, under their old names."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["forward", "renamed"]


def forward(old: str, new: str) -> Callable[[str], Any]:
    """`__getattr__` of a module that has moved: it warns, and finds the name at the new place.

    Args:
        old: full name of the module that stays for the sake of old imports.
        new: full name of the module that has its contents now.

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
        value = None if name.startswith("__") else getattr(importlib.import_module(new), name, None)
        if value is None:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warnings.warn(
            f"{old} is deprecated: import {name} from {new}", DeprecationWarning, stacklevel=2
        )
        return value

    return find


def renamed(module: str, **names: str) -> Callable[[str], Any]:
    """`__getattr__` of a module in which names have changed: it warns, and finds the new one.

    Args:
        module: full name of the module.
        names: new names by old ones.

    Example:
        >>> getattr_of_module = renamed("prerank.penalty", Tally="LevelCounts")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     getattr_of_module("Tally").__name__
        'LevelCounts'
        >>> str(caught[0].message)
        'prerank.penalty.Tally is deprecated: use prerank.penalty.LevelCounts'
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} is deprecated: use {module}.{names[name]}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module(module), names[name])

    return find
