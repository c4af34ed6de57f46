"""Tasks on a Ray cluster: an existing one, or one of this machine alone."""

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from prerank.errors import InputError
from prerank.extras import library
from prerank.inputs import as_count
from prerank.study.engines.agenda import Engine, Pool
from prerank.study.engines.processes import cores
from prerank.study.engines.search_path import search_path
from prerank.study.engines.tasks import Event, Function, Listener, Task, TaskError, remote_attempt
from prerank.waiting import sleeping_threads

__all__ = ["RayCluster"]

_LOOK_AGAIN = 5.0  # seconds after which nodes that came or went are noticed
_PATIENCE = 10.0  # seconds to wait for an address
_QUIET = {"log_to_driver": False, "logging_level": "ERROR"}


class RayCluster(Engine):
    """Calls the function in tasks of Ray, each on a core of its own and the GPUs it requests.

    Failed tasks are tried again from here, so that every attempt is counted and reported; Ray
    itself tries none again. Values should be small: results belong on the file system. An
    interrupt, or the end of this process however it ends, ends all tasks, and a cluster that was
    started here.

    Args:
        address: of a cluster, as `ray.init` takes it (`"auto"`, `"10.0.0.1:6379"`). By default that
            of `RAY_ADDRESS`, or a cluster of this machine alone for the time of the call. A
            connection that the process already has is used, and left as it is.
        workers: most tasks at a time; by default one for each core of the cluster (or as many as
            its GPUs allow), and one more, which shows an autoscaler that there is work.
        retries: how many times a failed task is tried again.
        environment: variables for the tasks.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        retries: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(retries=retries)
        self.address = address or os.environ.get("RAY_ADDRESS")
        self.workers = None if workers is None else as_count(workers, "workers", minimum=1)
        self.environment = dict(environment or {})
        library("ray", "RayCluster")  # raises now if it is missing

    @contextmanager
    def _pool(self, function: Function, listener: Listener) -> Iterator[Pool]:
        ray = library("ray", "RayCluster")
        ours = not ray.is_initialized()
        if ours:
            self._connect(ray, function)
        pool = _RayTasks(self, ray, function, listener)
        try:
            yield pool
        finally:
            # The end of our connection ends its tasks. `ray.cancel` must not come before it: a
            # task that returns at the same moment makes Ray abort this process, with code 1.
            if ours:
                with _patient():
                    ray.shutdown()
            else:
                pool.cancel()

    def _connect(self, ray: ModuleType, function: Function) -> None:
        # Ray would add the current folder to the path of its workers, but for a "client job".
        here = os.getcwd()
        known = [here] if here in search_path(function) else []
        config = ray.job_config.JobConfig(_client_job=True, _py_driver_sys_path=known)
        place: dict[str, Any] = {"address": self.address, "job_config": config}
        if self.address is None:
            place |= {"address": "local", "include_dashboard": False}
            place["num_cpus"] = self.workers or cores()
        else:
            _check_reachable(self.address)
        with _undisturbed(_named_folders()):
            try:
                ray.init(**place, **_QUIET)
            except Exception as error:  # of any class: Ray raises plain ones too
                where = "on this machine" if self.address is None else f"at {self.address}"
                reason = str(error).strip().partition("\n")[0]
                raise InputError(f"address: no Ray cluster {where}: {reason}") from error


class _RayTasks:
    def __init__(
        self, engine: RayCluster, ray: ModuleType, function: Function, listener: Listener
    ) -> None:
        self._ray = ray
        self._workers = engine.workers
        self._listener = listener
        given = engine.environment
        environment = {"env_vars": sleeping_threads(os.environ | given) | given}
        options = {"num_cpus": 1, "max_retries": 0, "runtime_env": environment}
        self._remote = ray.remote(**options)(remote_attempt)
        self._function = ray.put(function)  # once, however many tasks there are
        self._running: dict[Any, Task] = {}
        self._look()

    @property
    def free(self) -> bool:
        if self._workers is not None:
            return len(self._running) < self._workers
        requested = sum(task.gpus for task in self._running.values())
        full = bool(self._gpus) and requested > self._gpus
        return len(self._running) <= self._cpus and not full

    def start(self, task: Task) -> None:
        gpus = task.gpus if self._gpus else 0
        remote = self._remote.options(num_gpus=gpus, name=task.name)
        self._running[remote.remote(self._function, task.name, task.argument)] = task

    def wait(self) -> None:
        ready, _ = self._ray.wait(list(self._running), timeout=_LOOK_AGAIN)
        self._look()
        for reference in ready:
            self._listener(self._ended(reference, self._running.pop(reference)))

    def cancel(self) -> None:
        for reference in self._running:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)

    def _look(self) -> None:
        resources = self._ray.cluster_resources()
        self._cpus, self._gpus = (resources.get(kind, 0) for kind in ("CPU", "GPU"))

    def _ended(self, reference: Any, task: Task) -> Event:
        try:
            event: Event = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # of the cluster: worker or node are gone
            reason = str(error).strip().partition("\n")[0]
            return Event("failed", task, error=TaskError(f"{type(error).__name__}: {reason}"))
        return event


def _check_reachable(address: str) -> None:
    """Connect once first: `ray.init` would try again for ten minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        return  # "auto", which Ray looks up on this machine
    try:
        host = host.removeprefix("[").removesuffix("]")  # around the colons of an IPv6 address
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise InputError(f"address: no Ray cluster at {address}: {error}") from error


def _named_folders() -> str:
    """PYTHONPATH without the current folder: Ray's own processes would run what lies there."""
    folders = [Path(part).absolute() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    here = Path.cwd().resolve()
    return os.pathsep.join(str(folder) for folder in folders if folder.resolve() != here)


@contextmanager
def _undisturbed(path: str) -> Iterator[None]:
    """Keep the handler of SIGTERM, which `ray.init` would change, and the environment.

    Args:
        path: PYTHONPATH for the processes that start meanwhile; they send no usage statistics.
    """
    names = ("RAY_USAGE_STATS_ENABLED", "PYTHONPATH")
    before = {name: os.environ[name] for name in names if name in os.environ}
    handler = signal.getsignal(signal.SIGTERM)
    os.environ.update({names[0]: "0", **before, names[1]: path})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)
        with suppress(ValueError):  # not in the main thread, where there is nothing to keep
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def _patient() -> Iterator[None]:
    """Let a first interrupt wait for the end of the block: half a shutdown makes Ray abort."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # not in the main thread, where interrupts do not arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
