"""Old names: they work, with a warning that says what to use and when they end."""

import importlib
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__all__ = ["END", "forward", "old_arguments", "warn_of_end"]

END = "0.3"
"""The release that ends the names which 0.1 deprecates: two minor releases later."""


def warn_of_end(old: str, instead: str, *, stacklevel: int = 2) -> None:
    """Warn the caller of the function that calls this one.

    Args:
        old: what is deprecated.
        instead: what to do about it, such as "use emit".
        stacklevel: callers up to the one to warn; 1 is the function that calls this one.
    """
    message = f"{old} is deprecated: {instead}; it ends with prerank {END}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)


Class = TypeVar("Class", bound=type)


def old_arguments(**names: str) -> Callable[[Class], Class]:
    """Let the constructor of a class take keywords by their old names, with a warning.

    Args:
        names: new names by old ones.

    Example:
        >>> @old_arguments(colour="color")
        ... class Pen:
        ...     def __init__(self, color: str) -> None:
        ...         self.color = color
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     Pen(colour="red").color
        'red'
        >>> str(caught[0].message)
        'Pen(colour=...) is deprecated: use color; it ends with prerank 0.3'
    """

    def decorate(cls: Class) -> Class:
        init = cls.__init__  # type: ignore[misc]

        @wraps(init)
        def init_by_any_name(self: Any, *args: Any, **values: Any) -> None:
            for old in names.keys() & values.keys():
                warn_of_end(f"{cls.__name__}({old}=...)", f"use {names[old]}")
                values[names[old]] = values.pop(old)
            init(self, *args, **values)

        cls.__init__ = init_by_any_name  # type: ignore[misc]
        return cls

    return decorate


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
        'prerank.forecasts is deprecated: import read_forecasts from prerank.files; it ends with
        prerank 0.3'
    """

    def find(name: str) -> Any:
        target = names.get(name, "") if names else name
        known = target and not name.startswith("__")
        value = getattr(importlib.import_module(new), target, None) if known else None
        if value is None:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warn_of_end(f"{old}.{name}" if names else old, f"import {target} from {new}")
        return value

    return find
