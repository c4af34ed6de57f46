"""Which task comes next: longest chain first, after what it needs, and again where it failed."""

import heapq
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from prerank.errors import InputError
from prerank.study.engines.tasks import Event, Failure, Report, Task, TaskError, worth_retrying

__all__ = ["Agenda", "chain_costs"]


class Agenda:
    r"""The tasks of one call, and what became of them.

    A task's urgency is the cost of the longest chain that begins with it,

    .. math:: u(t) = c(t) + \max_{s \text{ needs } t} u(s),

    and the most urgent of those that may begin comes next: with independent tasks that is the
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
        self._sorter = TopologicalSorter({task.name: task.after for task in listed})
        self._sorter.prepare()
        self._needed_by: dict[str, list[str]] = {}
        for task in listed:
            for name in task.after:
                self._needed_by.setdefault(name, []).append(task.name)
        self._retries = retries
        self._ready: list[tuple[tuple[float, int], str]] = []
        self._attempts: dict[str, int] = {}
        self._values: dict[str, Any] = {}
        self._failures: dict[str, Failure] = {}
        self._advance()

    @property
    def open(self) -> bool:
        """Whether there are tasks without an end."""
        return len(self._values) + len(self._failures) < len(self._tasks)

    def next(self) -> Task | None:
        """The most urgent task that may begin, which counts as begun; None where all wait."""
        if not self._ready:
            return None
        _, name = heapq.heappop(self._ready)
        self._attempts[name] = self._attempts.get(name, 0) + 1
        return self._tasks[name]

    def attempt(self, task: Task) -> int:
        """How many times it was begun."""
        return self._attempts.get(task.name, 0)

    def finish(self, task: Task, value: Any) -> Event:
        """Note what a task returned; those that needed it may begin."""
        self._values[task.name] = value
        self._sorter.done(task.name)
        self._advance()
        return Event("finished", task, self.attempt(task), value)

    def fail(self, task: Task, error: BaseException) -> list[Event]:
        """Note that an attempt failed: the task is tried again, or given up with its followers."""
        attempt = self.attempt(task)
        if attempt <= self._retries and worth_retrying(error):
            heapq.heappush(self._ready, (self._rank[task.name], task.name))
            return [Event("retried", task, attempt, error=error)]
        events = []
        lost = [(task, error)]
        while lost:
            task, error = lost.pop(0)
            if task.name in self._failures:  # it needed two that failed
                continue
            self._failures[task.name] = Failure(task, error, self.attempt(task))
            events.append(Event("failed", task, self.attempt(task), error=error))
            told = TaskError(f"it needs {task.name}, which failed")
            told.__cause__ = error
            lost += [(self._tasks[name], told) for name in self._needed_by.get(task.name, ())]
        return events

    def report(self) -> Report:
        """What became of every task."""
        ended = self._values.keys() | self._failures.keys()
        left = tuple(task for name, task in self._tasks.items() if name not in ended)
        return Report(dict(self._values), tuple(self._failures.values()), left)

    def _advance(self) -> None:
        for name in self._sorter.get_ready():
            heapq.heappush(self._ready, (self._rank[name], name))


def chain_costs(tasks: Mapping[str, Task]) -> dict[str, float]:
    """Cost of the longest chain that begins with each task, by name.

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
    found: dict[str, float] = {}
    for name in reversed(order):
        found[name] = tasks[name].cost + behind[name]
        for earlier in tasks[name].after:
            behind[earlier] = max(behind[earlier], found[name])
    return found
