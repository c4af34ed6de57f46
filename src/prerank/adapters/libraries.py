"""Other people's libraries, imported when they are first needed."""

from importlib import import_module
from typing import Any

from torch.distributions import Distribution

from prerank.errors import InputError, InputTypeError

__all__ = ["library", "wrong_type"]


def library(name: str, *, extra: str) -> Any:
    """Import a library, or say how to install it.

    Importing zuko, and sbi through it, switches torch's checks of arguments off for the whole
    process. Here they stay as they were.

    Args:
        name: of the module.
        extra: of prerank, with which the library is installed.

    Raises:
        InputError: where the library is not installed.

    Example:
        >>> library("json", extra="adapters").dumps([1])
        '[1]'
    """
    checks = Distribution._validate_args
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the library is there, and lacks something itself
        raise InputError(
            f"{package} is not installed: pip install {package}, or install prerank with its extra "
            f"{extra!r}"
        ) from error
    finally:
        Distribution.set_default_validate_args(checks)


def wrong_type(name: str, value: object, wanted: str) -> InputTypeError:
    """The error for an argument that is not what the library makes."""
    kind = type(value)
    return InputTypeError(f"{name} must be {wanted}, got {kind.__module__}.{kind.__qualname__}")
