"""What an engine is given, tells on its way and leaves."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from prerank.errors import InputError, InputTypeError, PrerankError

__all__ = ["Event", "Failure", "Listener", "Report", "Task", "TaskError", "worth_retrying"]


class TaskError(PrerankError, RuntimeError):
    """A task ended without an answer: its process died, or what it raised cannot be sent."""


@dataclass(frozen=True)
class Task:
    """One call of the function that an engine maps, independent of all others but those named.

    Attributes:
        name: unique among the tasks of a call.
        argument: what the function is called with; sent to other processes.
        cost: estimated work, in any unit that the tasks share; longer chains are begun first.
        gpus: GPUs that it wishes for, where the engine has any.
        after: names of tasks that have to be finished before it may begin.
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
    """What happened to a task.

    Attributes:
        kind: `"started"`, `"told"` (see `tell`), `"finished"`, `"retried"` (it failed and will be
            tried again) or `"failed"` (for good).
        task: to which it happened.
        attempt: how many times the task was started, counting from 1; 0 for one that never was.
        value: what the function returned, of a finished task; or has told.
        error: what went wrong, of a failed attempt.
    """

    kind: Literal["started", "told", "finished", "retried", "failed"]
    task: Task
    attempt: int
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
    """How a call of `Engine.map` ended.

    Attributes:
        values: by task, of those that finished.
        failures: tasks that were given up, and those that needed them.
        left: tasks that were not begun, because the call was told to stop.
    """

    values: dict[str, Any] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    left: tuple[Task, ...] = ()


def worth_retrying(error: BaseException) -> bool:
    """Whether another attempt may end otherwise: not where the input itself is refused.

    Example:
        >>> worth_retrying(InputError("no such dataset")), worth_retrying(OSError("disk is full"))
        (False, True)
    """
    return not isinstance(error, InputError | InputTypeError)
