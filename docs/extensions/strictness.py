"""Examples of the gallery run with warnings as errors, as in the tests."""

import warnings
from contextlib import ExitStack

__all__ = ["strict"]

_held = ExitStack()  # the filters of Sphinx, while an example runs


def strict(_settings: object, _script: str, when: str) -> None:
    """Be strict before an example, and no longer after it."""
    _held.close()
    if when == "before":
        _held.enter_context(warnings.catch_warnings(action="error"))
