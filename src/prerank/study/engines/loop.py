"""One loop for all engines: begin what may begin, wait, note what ended."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from prerank.inputs import as_count
from prerank.study.engines.agenda import Agenda
from prerank.study.engines.tasks import Event, Listener, Report, Task

__all__ = ["Ended", "Engine", "Function", "Pool", "Told"]

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Ended:
    """An attempt that is over: with a value, or with an error."""

    task: Task
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True)
class Told:
    """What an attempt has said; it goes on."""

    task: Task
    value: Any


class Pool(Protocol):
    """Where attempts run; opened for one call of `Engine.map`, and closed with all its work."""

    @property
    def free(self) -> bool:
        """Whether another task may be begun."""

    def start(self, task: Task) -> None:
        """Begin a task."""

    def wait(self) -> Sequence[Ended | Told]:
        """What attempts have said and which are over, at least one of it, or none after a while."""


class Engine(ABC):
    """Runs one function on many arguments, and knows nothing of what it does.

    Attributes:
        here: whether the function is called in this process, where callbacks reach it.
        longest_first: whether costs decide which task begins first.

    Args:
        retries: how many times a task is tried again that raised, or whose process died. Input
            that is refused (`InputError`) is refused once.
    """

    here = False
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
        whatever else the caller's callbacks raise does so, too.

        Args:
            function: picklable, unless it runs in this process.
            tasks: to be done.
            stop: asked before each task is begun; once it says yes, none is begun any more.
            on_event: told what is begun, finished, tried again and given up; and what the function
                tells on its way (`tell`), where it runs in a worker process.
        """
        agenda = Agenda(tasks, retries=self.retries, longest_first=self.longest_first)
        if not agenda.open:
            return agenda.report()
        running = 0
        with self._pool(function) as pool:
            while agenda.open:
                while pool.free and not stop() and (task := agenda.next()) is not None:
                    on_event(Event("started", task, agenda.attempt(task)))
                    pool.start(task)
                    running += 1
                if not running:
                    break  # told to stop
                for news in pool.wait():
                    running -= isinstance(news, Ended)
                    for event in _events(agenda, news):
                        on_event(event)
        return agenda.report()

    @abstractmethod
    def _pool(self, function: Function) -> AbstractContextManager[Pool]:
        """A pool for one call, whose processes are gone when its block ends."""


def _events(agenda: Agenda, news: Ended | Told) -> list[Event]:
    if isinstance(news, Told):
        return [Event("told", news.task, agenda.attempt(news.task), news.value)]
    if news.error is None:
        return [agenda.finish(news.task, news.value)]
    return agenda.fail(news.task, news.error)
