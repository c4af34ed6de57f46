"""Deprecated: use `prerank.study.engines`."""

# ruff: noqa: F822 (`__getattr__` finds the names)
from prerank.moved import forward as _forward

# fmt: off
__all__ = [
    "Agenda", "Engine", "Event", "Failure", "InProcess", "Processes", "RayCluster", "Report",
    "Task", "TaskError", "open_engine", "tell",
]
# fmt: on

__getattr__ = _forward(__name__, "prerank.study.engines")
