"""Tasks in worker processes of this machine."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from prerank.errors import InputError
from prerank.inputs import as_count
from prerank.study.engines.agenda import Engine, Pool
from prerank.study.engines.search_path import search_path
from prerank.study.engines.tasks import (
    Event,
    Function,
    Listener,
    Task,
    TaskError,
    remote_attempt,
)
from prerank.waiting import sleeping_threads

__all__ = ["AVAILABLE", "Processes", "cores", "serve", "surroundings"]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_GPUS = "CUDA_VISIBLE_DEVICES"
_SERVE = "import sys; from prerank.study.engines.processes import serve; serve(int(sys.argv[1]))"
AVAILABLE = os.name == "posix"
"""Whether this system has what workers need: inherited descriptors and sessions."""

_PATIENCE = 5.0  # seconds that a worker has to end by itself


class Processes(Engine):
    """Calls the function in worker processes, which end with this one, however it ends.

    Each worker has `cores // workers` threads, so that they do not fight for cores, and one of the
    machine's GPUs in turn. A worker whose task failed is replaced: what it held is free again.

    Args:
        workers: how many; as many as there are cores by default.
        retries: how many times a failed task is tried again.

    Example:
        >>> report = Processes(1).map(abs, [Task("minus three", -3)])
        >>> report.values
        {'minus three': 3}
    """

    def __init__(self, workers: int | None = None, *, retries: int = 2) -> None:
        super().__init__(retries=retries)
        if not AVAILABLE:
            raise InputError("worker processes need Linux or macOS: take the engine 'local'")
        self.workers = cores() if workers is None else as_count(workers, "workers", minimum=1)

    @contextmanager
    def _pool(self, function: Function, listener: Listener) -> Iterator[Pool]:
        pool = _Workers(function, listener, self.workers)
        try:
            yield pool
        finally:
            pool.close()


class _Workers:
    """Up to as many workers as were asked for, started when there is something to do."""

    def __init__(self, function: Function, listener: Listener, count: int) -> None:
        self._function = _pickled(function, "function")
        self._path = os.pathsep.join(search_path(function))
        self._listener = listener
        self._count = count
        self._unused = list(range(count))  # numbers of the workers that are not started
        self._idle: list[_Worker] = []
        self._busy: dict[Connection[Any, Any], _Worker] = {}

    @property
    def free(self) -> bool:
        return bool(self._idle or self._unused)

    def start(self, task: Task) -> None:
        call = _pickled((task.name, task.argument), f"the argument of the task {task.name}")
        if not self._idle:
            number = self._unused.pop(0)
            self._idle.append(_Worker(self._function, number, self._count, self._path))
        worker = self._idle.pop()
        self._busy[worker.link] = worker
        worker.start(task, call)

    def wait(self) -> None:
        ready = wait(list(self._busy))
        for worker in [worker for link, worker in self._busy.items() if link in ready]:
            event = worker.receive()
            if event.kind != "message":
                del self._busy[worker.link]
                if event.kind == "finished":
                    self._idle.append(worker)
                else:
                    worker.close()
                    self._unused.append(worker.number)
            self._listener(event)

    def close(self) -> None:
        workers = [*self._idle, *self._busy.values()]
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.close()


class _Worker:
    def __init__(self, function: bytes, number: int, workers: int, path: str) -> None:
        self.number = number
        self.link, theirs = Pipe()
        self._task: Task  # set by `start`
        # A session of its own: an interrupt from the keyboard reaches the parent alone, which
        # ends its workers; standard input ends them where the parent is killed. -P: the current
        # folder is not searched for modules.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env=surroundings(number, workers) | {"PYTHONPATH": path},
        )
        theirs.close()
        self._send(function)

    def start(self, task: Task, call: bytes) -> None:
        self._task = task
        self._send(call)

    def _send(self, content: bytes) -> None:
        with suppress(BrokenPipeError):  # the process has ended, which `receive` will report
            self.link.send_bytes(content)

    def receive(self) -> Event:
        """What the worker reports on its task, or how it died."""
        try:
            event: Event = self.link.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            error = TaskError(f"its worker process ended by {how}")
            return Event("failed", self._task, error=error)
        return event

    def dismiss(self) -> None:
        """Ask it to end."""
        self.link.close()
        self._process.terminate()

    def close(self) -> None:
        """Wait until it has ended, in the end by force."""
        self.dismiss()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def serve(descriptor: int) -> None:
    """Answer in a worker process, until the other end of the connection is closed.

    The connection first brings the function, then pairs of a task's name and argument. Each pair is
    answered by events: messages, then one that is finished or failed. Standard input is a pipe
    whose other end the parent holds: when it closes, the parent is gone, and the worker ends as
    well.
    """
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    link: Connection[Any, Any] = Connection(descriptor)
    function = link.recv()
    with suppress(EOFError):
        while True:
            name, argument = link.recv()
            event = remote_attempt(function, name, argument, link.send)
            try:
                link.send(event)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                reason = TaskError(f"what the task returned cannot be sent: {error}")
                link.send(Event("failed", event.task, error=reason))


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)  # files are complete or absent: nothing has to be undone


def _pickled(value: Any, what: str) -> bytes:
    """Bytes that `Connection.recv` reads; checked before a process is started for them."""
    try:
        return bytes(ForkingPickler.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(
            f"{what} cannot be sent to worker processes: {error}. Take what can be imported by its "
            "name, or the engine 'local'"
        ) from error


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def surroundings(
    number: int, workers: int, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Environment of a worker: its share of the cores, threads that sleep, and its GPU.

    Args:
        number: of the worker, from 0.
        workers: how many there are.
        environment: of this process, by default.

    Example:
        >>> given = surroundings(3, workers=10**6, environment={"CUDA_VISIBLE_DEVICES": "0,2"})
        >>> given["OMP_NUM_THREADS"], given["CUDA_VISIBLE_DEVICES"]
        ('1', '2')
    """
    variables = dict(os.environ if environment is None else environment)
    asked = [int(variables[name]) for name in _THREADS if variables.get(name, "").isdecimal()]
    # Who has asked for fewer gets fewer, whichever library was named.
    threads = min([cores() // workers, *asked])
    variables |= dict.fromkeys(_THREADS, str(max(1, threads))) | sleeping_threads(variables)
    gpus = [name for name in variables.get(_GPUS, _all_gpus()).split(",") if name]
    if gpus:
        variables[_GPUS] = gpus[number % len(gpus)]
    return variables


def _all_gpus() -> str:
    import torch

    return ",".join(map(str, range(torch.cuda.device_count())))
