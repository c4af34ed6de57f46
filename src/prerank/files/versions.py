"""What results come from."""

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["versions"]

_PACKAGES = ("prerank", "torch", "numpy", "scipy", "pandas", "pyarrow")


def versions() -> dict[str, str]:
    """Of what results come from: Python, and the packages that compute."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from source
            found[name] = "source"
    return found
