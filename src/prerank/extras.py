"""Libraries beyond the core, imported where they are used: hints for those that are missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from prerank.errors import MissingLibraryError

__all__ = ["library", "needed_by"]

# Modules of the extras in pyproject.toml.
_MODULES = {
    "app": ("jinja2", "matplotlib", "pandas", "pyarrow", "rich", "safetensors", "sklearn", "typer"),
    "flows": ("zuko",),
    "fast": ("numba",),
    "ray": ("ray",),
    "netcdf": ("h5netcdf", "h5py", "xarray", "zarr"),
    "adapters": ("ngboost", "sbi"),
    "skpro": ("skpro",),
    "forecasts": ("darts", "gluonts"),
    "integrations": ("lightning", "torchmetrics"),
    "trackers": ("mlflow", "wandb"),
}
_EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


@contextmanager
def needed_by(user: str) -> Iterator[None]:
    """Turn the failed import of an optional library into a one-line hint.

    A context manager, and a decorator of functions that import such a library. Of nested ones the
    outermost is named: it is what was called.

    Args:
        user: name of the function, class or command that needs the library.

    Raises:
        MissingLibraryError: if a library of an extra is not installed. Other modules that are
            missing raise Python's own error.

    Example:
        >>> with needed_by("fit"):
        ...     raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn.utils")
        Traceback (most recent call last):
        prerank.errors.MissingLibraryError: fit needs scikit-learn: pip install 'prerank[app]'
    """
    try:
        yield
    except (ModuleNotFoundError, MissingLibraryError) as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        missing = MissingLibraryError(
            f"{user} needs {_DISTRIBUTIONS.get(module, module)}: "
            f"pip install 'prerank[{_EXTRAS[module]}]'"
        )
        missing.name = module
        raise missing from error


def library(name: str, user: str) -> Any:
    """Import a module of an optional library.

    Importing zuko, and sbi through it, disables torch's validation of arguments for the whole
    process. Here the setting is restored.

    Args:
        name: full name of the module.
        user: name of the function or class that needs it.

    Raises:
        MissingLibraryError: if the library is not installed.

    Example:
        >>> library("json", "this example").dumps([1])
        '[1]'
    """
    from torch.distributions import Distribution

    validation = Distribution._validate_args
    try:
        with needed_by(user):
            return import_module(name)
    finally:
        Distribution.set_default_validate_args(validation)
