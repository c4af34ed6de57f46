"""Tasks of an engine, the events that report on them, and their results."""

import math
import pickle
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from prerank.errors import InputError, PrerankError
from prerank.moved import warn_of_end

__all__ = [
    "Event",
    "Failure",
    "Function",
    "Listener",
    "Report",
    "Task",
    "TaskError",
    "attempt",
    "emit",
    "remote_attempt",
    "tell",
]

Function = Callable[[Any], Any]


class TaskError(PrerankError, RuntimeError):
    """A task ended without an answer: its process died, or what it raised cannot be sent."""


@dataclass(frozen=True)
class Task:
    """One call of the function that an engine maps, independent of all others but those named.

    Attributes:
        name: unique among the tasks of a call.
        argument: what the function is called with; sent to other processes.
        cost: estimated work, in any unit that the tasks share; longer chains start first.
        gpus: number of GPUs requested, where the engine has any.
        after: names of tasks that have to finish before this one may start.
    """

    name: str
    argument: Any = None
    cost: float = 1.0
    gpus: float = 0.0
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what decides the order."""
        if not math.isfinite(self.cost):
            raise InputError(f"cost of the task {self.name} must be a number, got {self.cost}")


@dataclass(frozen=True)
class Event:
    """One step of a task, from the process that runs it to the caller of `Engine.map`.

    Attributes:
        kind: `"started"`, `"message"` (see `emit`), `"finished"`, `"retried"` (it failed and will
            be tried again) or `"failed"` (for good).
        task: to which it happened.
        attempt: how many times the task was started, counting from 1; 0 for one that never was.
        value: what the function returned (`"finished"`) or emitted (`"message"`).
        error: what went wrong in a failed attempt.
    """

    kind: Literal["started", "message", "finished", "retried", "failed"]
    task: Task
    attempt: int = 0
    value: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        """One line for a log."""
        line = f"{self.task.name}: {self.kind}, attempt {self.attempt}"
        if self.error is None:
            return line
        return f"{line}: {type(self.error).__name__}: {' '.join(str(self.error).split())}"


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Failure:
    """A task that was given up: its last error, and how many times it was tried."""

    task: Task
    error: BaseException
    attempts: int


@dataclass(frozen=True)
class Report:
    """Results of a call of `Engine.map`.

    Attributes:
        values: by task, of those that finished.
        failures: tasks that were given up, and those that needed them.
        left: tasks that were not started, because the call was asked to stop.
    """

    values: dict[str, Any] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    left: tuple[Task, ...] = ()


_EMIT: ContextVar[Callable[[Any], None]] = ContextVar("_EMIT", default=lambda _: None)


def emit(value: Any) -> None:
    """Send a value from within a task: an `Event` of the kind `"message"` carries it.

    Outside of a task, and on Ray, the value is dropped.
    """
    _EMIT.get()(value)


def tell(value: Any) -> None:
    """Deprecated: use `emit`."""
    warn_of_end("tell", "use emit")
    emit(value)


def attempt(
    function: Function, name: str, argument: Any, listener: Listener = lambda _: None
) -> Event:
    """Call the function once; return its value or error as an event, and stream its messages.

    Args:
        function: to be called with the argument.
        name: of the task. Events name it and leave out its argument, which may be large.
        argument: of the task.
        listener: receives the messages.

    Example:
        >>> attempt(abs, "minus three", -3).value
        3
        >>> attempt(abs, "nothing", None).error
        TypeError("bad operand type for abs(): 'NoneType'")
    """
    task = Task(name)
    token = _EMIT.set(lambda value: listener(Event("message", task, value=value)))
    try:
        return Event("finished", task, value=function(argument))
    except Exception as error:  # of whatever kind: the other tasks do not depend on it
        return Event("failed", task, error=error)
    finally:
        _EMIT.reset(token)


def remote_attempt(
    function: Function, name: str, argument: Any, listener: Listener = lambda _: None
) -> Event:
    """`attempt` in a process other than the caller's: its error can be sent, with its traceback."""
    event = attempt(function, name, argument, listener)
    error = event.error
    if error is None:
        return event
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the methods of a foreign class raise
        return replace(event, error=TaskError(f"{type(error).__name__}: {error}"))
    return event
