"""The order of tasks, longest chain first, and the loop in which every engine works it off."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Protocol

from prerank.errors import InputError, InputTypeError
from prerank.inputs import as_count
from prerank.study.engines.tasks import (
    Event,
    Failure,
    Function,
    Listener,
    Report,
    Task,
    TaskError,
    attempt,
)

__all__ = ["Agenda", "Engine", "InProcess", "Pool", "chain_costs"]


class Agenda:
    r"""The tasks of one call, and their results so far.

    A task's urgency is the cost of the longest chain that starts with it,

    .. math:: u(t) = c(t) + \max_{s \text{ needs } t} u(s),

    and the most urgent of those that may start comes next: with independent tasks that is the
    longest first, which ends within 4/3 of the best schedule. It knows no clock and no worker,
    so a simulation can use it as the engines do.

    Args:
        tasks: to be done; names are unique, and `after` names others of them.
        retries: how many times a failed task is tried again.
        longest_first: whether to look at costs; otherwise the order of the tasks is kept.

    Example:
        >>> agenda = Agenda([Task("short", cost=1), Task("long", cost=2)])
        >>> agenda.next().name
        'long'
    """

    def __init__(
        self, tasks: Iterable[Task], *, retries: int = 2, longest_first: bool = True
    ) -> None:
        listed = list(tasks)
        self._tasks = {task.name: task for task in listed}
        if len(self._tasks) < len(listed):
            raise InputError("tasks: two have the same name")
        urgency = chain_costs(self._tasks)
        # Equal urgency leaves the order of the tasks.
        self._rank = {
            name: (-urgency[name] if longest_first else 0.0, place)
            for place, name in enumerate(self._tasks)
        }
        self._needed_by: dict[str, list[Task]] = {}
        for task in listed:
            for name in dict.fromkeys(task.after):
                self._needed_by.setdefault(name, []).append(task)
        self._retries = retries
        self._ready: list[tuple[tuple[float, int], str]] = []
        self._running: set[str] = set()
        self._attempts = dict.fromkeys(self._tasks, 0)
        self._values: dict[str, Any] = {}
        self._failures: dict[str, Failure] = {}
        self._offer(listed)

    @property
    def open(self) -> bool:
        """Whether there are tasks without a result."""
        return len(self._values) + len(self._failures) < len(self._tasks)

    @property
    def running(self) -> bool:
        """Whether there are tasks that were started and have not ended."""
        return bool(self._running)

    def next(self) -> Task | None:
        """The most urgent task that may start, which counts as started; None where all wait."""
        if not self._ready:
            return None
        _, name = heapq.heappop(self._ready)
        self._attempts[name] += 1
        self._running.add(name)
        return self._tasks[name]

    def attempt(self, task: Task) -> int:
        """How many times it was started."""
        return self._attempts[task.name]

    def update(self, event: Event) -> list[Event]:
        """Record what an attempt reports, by the name of its task; events for the caller."""
        task = self._tasks[event.task.name]
        if event.error is not None:
            return self.fail(task, event.error)
        if event.kind == "finished":
            return [self.finish(task, event.value)]
        return [replace(event, task=task, attempt=self.attempt(task))]

    def finish(self, task: Task, value: Any) -> Event:
        """Record what a task returned; those that needed it may start."""
        self._running.discard(task.name)
        self._values[task.name] = value
        self._offer(self._needed_by.get(task.name, ()))
        return Event("finished", task, self.attempt(task), value)

    def fail(self, task: Task, error: BaseException) -> list[Event]:
        """Record a failed attempt: the task is tried again, or given up with its followers."""
        self._running.discard(task.name)
        refused = isinstance(error, InputError | InputTypeError)  # it would be refused again
        if self.attempt(task) <= self._retries and not refused:
            heapq.heappush(self._ready, (self._rank[task.name], task.name))
            return [Event("retried", task, self.attempt(task), error=error)]
        events = []
        lost = [(task, error)]
        while lost:
            task, error = lost.pop(0)
            if task.name in self._failures:  # it needed two that failed
                continue
            self._failures[task.name] = Failure(task, error, self.attempt(task))
            events.append(Event("failed", task, self.attempt(task), error=error))
            reason = TaskError(f"it needs {task.name}, which failed")
            reason.__cause__ = error
            lost += [(other, reason) for other in self._needed_by.get(task.name, ())]
        return events

    def report(self) -> Report:
        """Results of every task."""
        ended = self._values.keys() | self._failures.keys()
        left = tuple(task for name, task in self._tasks.items() if name not in ended)
        return Report(dict(self._values), tuple(self._failures.values()), left)

    def _offer(self, tasks: Iterable[Task]) -> None:
        """Let those of the tasks start that wait for nothing."""
        for task in tasks:
            if self._values.keys() >= {*task.after}:
                heapq.heappush(self._ready, (self._rank[task.name], task.name))


def chain_costs(tasks: Mapping[str, Task]) -> dict[str, float]:
    """Cost of the longest chain that starts with each task, by name.

    Example:
        >>> base, tuned = Task("base", cost=1), Task("tuned", cost=5, after=("base",))
        >>> chain_costs({"base": base, "tuned": tuned})
        {'tuned': 5.0, 'base': 6.0}
    """
    unknown = sorted({name for task in tasks.values() for name in task.after} - tasks.keys())
    if unknown:
        raise InputError(f"after: there is no task {', '.join(unknown)}")
    try:
        order = list(TopologicalSorter({t.name: t.after for t in tasks.values()}).static_order())
    except CycleError as error:
        raise InputError(f"after: tasks wait for each other: {error.args[1]}") from error
    behind = dict.fromkeys(tasks, 0.0)
    costs: dict[str, float] = {}
    for name in reversed(order):
        costs[name] = tasks[name].cost + behind[name]
        for earlier in tasks[name].after:
            behind[earlier] = max(behind[earlier], costs[name])
    return costs


class Pool(Protocol):
    """Where attempts run; opened for one call of `Engine.map`, and closed with all its work."""

    @property
    def free(self) -> bool:
        """Whether another task may start."""

    def start(self, task: Task) -> None:
        """Start a task."""

    def wait(self) -> None:
        """Pass on what running attempts report, as soon as there is something, or after a while."""


class Engine(ABC):
    """Runs one function on many arguments, and knows nothing of what it does.

    Attributes:
        longest_first: whether costs decide which task starts first.

    Args:
        retries: how many times a task is tried again that raised, or whose process died. Input
            that is refused (`InputError`) is refused once.
    """

    longest_first = True

    def __init__(self, *, retries: int) -> None:
        self.retries = as_count(retries, "retries", minimum=0)

    def map(
        self,
        function: Function,
        tasks: Iterable[Task],
        *,
        stop: Callable[[], bool] = lambda: False,
        on_event: Listener = lambda _: None,
    ) -> Report:
        """Call the function with the argument of every task.

        One task that fails does not stop the others. An interrupt ends all attempts at once, and
        so does whatever else the caller's callbacks raise.

        Args:
            function: picklable, unless it runs in this process.
            tasks: to be done.
            stop: called before each task starts; once it returns True, no other task starts.
            on_event: receives what is started, finished, tried again and given up; and what the
                function emits (`emit`), except on Ray.
        """
        agenda = Agenda(tasks, retries=self.retries, longest_first=self.longest_first)
        if not agenda.open:
            return agenda.report()

        def listen(event: Event) -> None:
            for known in agenda.update(event):
                on_event(known)

        with self._pool(function, listen) as pool:
            while agenda.open:
                while pool.free and not stop() and (task := agenda.next()) is not None:
                    on_event(Event("started", task, agenda.attempt(task)))
                    pool.start(task)
                if not agenda.running:
                    break  # asked to stop
                pool.wait()
        return agenda.report()

    def in_order(self, function: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """Values of the function for several arguments, or the error of the first that fails.

        Example:
            >>> InProcess().in_order(abs, [-3, 2])
            [3, 2]
        """
        tasks = [Task(f"{number}", argument) for number, argument in enumerate(arguments)]
        report = self.map(function, tasks)
        for failure in report.failures:
            raise failure.error
        return [report.values[task.name] for task in tasks]

    @abstractmethod
    def _pool(self, function: Function, listener: Listener) -> AbstractContextManager[Pool]:
        """A pool for one call, whose processes are gone when its block ends.

        Args:
            function: to be called.
            listener: receives events of attempts: messages, and one that is finished or failed.
        """


class InProcess(Engine):
    """Calls the function here, in the order of the tasks.

    Nothing is tried again by default: the same process would most likely fail the same way.

    Example:
        >>> report = InProcess().map(abs, [Task("minus three", -3), Task("two", 2)])
        >>> report.values
        {'minus three': 3, 'two': 2}
    """

    longest_first = False  # alone, the sum is the same in every order

    def __init__(self, *, retries: int = 0) -> None:
        super().__init__(retries=retries)

    @contextmanager
    def _pool(self, function: Function, listener: Listener) -> Iterator[Pool]:
        yield _Here(function, listener)


class _Here:
    free = True

    def __init__(self, function: Function, listener: Listener) -> None:
        self._function, self._listener = function, listener

    def start(self, task: Task) -> None:
        errors: list[Exception] = []  # of the listener, which are no failures of the task

        def listen(event: Event) -> None:
            try:
                self._listener(event)
            except Exception as error:
                errors.append(error)
                raise

        event = attempt(self._function, task.name, task.argument, listen)
        if errors:
            raise errors[0]
        self._listener(event)

    def wait(self) -> None:
        """Nothing is running."""
