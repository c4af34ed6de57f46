"""Tasks in this process, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager

from prerank.study.engines.loop import Ended, Engine, Function, Pool
from prerank.study.engines.tasks import Task

__all__ = ["InProcess"]


class InProcess(Engine):
    """Calls the function here, in the order of the tasks.

    Nothing is tried again by default: the same process would most likely fail the same way.

    Example:
        >>> report = InProcess().map(abs, [Task("minus three", -3), Task("two", 2)])
        >>> report.values
        {'minus three': 3, 'two': 2}
    """

    here = True
    longest_first = False  # alone, the sum is the same in every order

    def __init__(self, *, retries: int = 0) -> None:
        super().__init__(retries=retries)

    @contextmanager
    def _pool(self, function: Function) -> Iterator[Pool]:
        yield _OneByOne(function)


class _OneByOne:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._ended: list[Ended] = []

    @property
    def free(self) -> bool:
        return not self._ended

    def start(self, task: Task) -> None:
        try:
            self._ended.append(Ended(task, self._function(task.argument)))
        except Exception as error:  # of whatever kind: the other tasks do not depend on it
            self._ended.append(Ended(task, error=error))

    def wait(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended
