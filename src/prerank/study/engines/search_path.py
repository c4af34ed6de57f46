"""Folders in which workers look for modules: those of this process, but not the current one."""

import functools
import sys
from pathlib import Path
from typing import Any

import prerank

__all__ = ["search_path"]


def search_path(function: Any) -> list[str]:
    """`sys.path` for workers that import a function.

    The current folder is on `sys.path` in an interactive interpreter and under `python -m`. A file
    in it, such as `torch.py`, would be imported in place of the library of that name, so workers
    do not search it, unless the function or this package is defined there.

    Args:
        function: that the workers call; a method, a `functools.partial` or a callable object too.

    Example:
        >>> str(Path.cwd()) in search_path(abs)
        False
    """
    here = Path.cwd()
    kept = here in {_home(function), Path(prerank.__file__).resolve().parents[1]}
    folders = [Path(path).absolute() for path in sys.path]
    return [str(folder) for folder in folders if kept or not _same(folder, here)]


def _home(function: Any) -> Path | None:
    """Folder from which the function's module, or its outermost package, was imported."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__module__", None) or type(function).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    return (
        None if file is None else Path(file).resolve().parents[name.count(".") + _is_package(file)]
    )


def _is_package(file: str) -> bool:
    return Path(file).stem == "__init__"


def _same(folder: Path, here: Path) -> bool:
    return folder == here or folder.resolve() == here.resolve()
