"""A call whose error travels like a value, and that can be heard while it goes on."""

import pickle
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from prerank.study.engines.loop import Function
from prerank.study.engines.tasks import TaskError

__all__ = ["LISTENER", "Note", "answer", "portable", "tell"]


@dataclass(frozen=True)
class Note:
    """What a call said before it was over."""

    value: Any


LISTENER: ContextVar[Callable[[Note], None]] = ContextVar("LISTENER", default=lambda _: None)
"""Who hears what a call says; a worker process sends it to its parent, otherwise nobody does."""


def tell(value: Any) -> None:
    """Say something on the way, from within a call: an `Event` of the kind `"told"` carries it."""
    LISTENER.get()(Note(value))


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
