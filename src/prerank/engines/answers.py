"""A call whose error travels like a value."""

import pickle
import traceback
from typing import Any

from prerank.engines.base import Function
from prerank.engines.tasks import TaskError

__all__ = ["answer", "portable"]


def answer(function: Function, argument: Any) -> tuple[bool, Any]:
    """Whether the call worked, and its value or its error.

    Example:
        >>> answer(abs, -3)
        (True, 3)
        >>> answer(abs, None)
        (False, TypeError("bad operand type for abs(): 'NoneType'"))
    """
    try:
        return True, function(argument)
    except Exception as error:  # to be judged by who asked
        return False, portable(error)


def portable(error: Exception) -> Exception:
    """The error, or its text where it cannot be sent, with the place where it was raised."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the methods of a foreign class raise
        return TaskError(f"{type(error).__name__}: {error}")
    return error
