"""Engines for independent tasks: this process, worker processes, or Ray."""

from collections.abc import Mapping
from typing import Literal

from prerank.errors import InputError
from prerank.study.engines import processes
from prerank.study.engines.agenda import Agenda, Engine, InProcess
from prerank.study.engines.cluster import RayCluster
from prerank.study.engines.processes import Processes, cores
from prerank.study.engines.tasks import Event, Failure, Report, Task, TaskError, emit, tell

__all__ = [
    "Agenda",
    "Engine",
    "Event",
    "Failure",
    "InProcess",
    "Processes",
    "RayCluster",
    "Report",
    "Task",
    "TaskError",
    "emit",
    "open_engine",
    "tell",
]


def open_engine(
    name: Literal["local", "processes", "ray"] | None = None,
    *,
    workers: int | None = None,
    tasks: int = 1,
    address: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Engine:
    """An engine by its name.

    Args:
        name: `"local"` (this process), `"processes"` or `"ray"`. By default worker processes
            if there is work for more than one, and this process otherwise.
        workers: tasks at a time. By default one for each core, and no more than there are tasks;
            each then has one thread.
        tasks: number of tasks.
        address: of a Ray cluster.
        environment: variables for tasks on Ray; worker processes have those of this one.

    Example:
        >>> type(open_engine(workers=2)).__name__, type(open_engine()).__name__
        ('Processes', 'InProcess')
    """
    if name is None:
        usual = max(1, min(cores(), tasks)) if processes.AVAILABLE else 1
        name = "local" if (usual if workers is None else workers) == 1 else "processes"
    if address is not None and name != "ray":
        raise InputError(f"address: the engine {name!r} has none; it is for 'ray'")
    if name == "ray":
        return RayCluster(address, workers=workers, environment=environment)
    if name == "processes":
        return Processes(workers)
    if name != "local":
        raise InputError(f"engine must be 'local', 'processes' or 'ray', got {name!r}")
    if workers not in (None, 1):
        raise InputError(f"workers: the engine 'local' has one, got {workers}; take 'processes'")
    return InProcess()
