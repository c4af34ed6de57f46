"""Public names of a package, imported when they are first used: torch takes seconds to load."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to load than a command may be deaf
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["names_from"]


def names_from(package: str, *homes: str) -> "Callable[[str], Any]":
    """`__getattr__` of a package: it finds the names in `__all__` in the modules that define them.

    Args:
        package: full name of the package.
        homes: modules in the package, looked through in this order: quick ones first.

    Example:
        >>> find = names_from("prerank.files", "disk", "values")
        >>> find("write_json").__module__
        'prerank.files.values'
        >>> find("nothing")
        Traceback (most recent call last):
        AttributeError: module 'prerank.files' has no attribute 'nothing'
    """

    def find(name: str) -> "Any":
        namespace = vars(sys.modules[package])
        for home in homes if name in namespace["__all__"] else ():
            module = import_module(f"{package}.{home}")
            if name in module.__all__:
                return namespace.setdefault(name, getattr(module, name))
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
