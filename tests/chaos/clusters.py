"""Harms to a study on a Ray cluster of two nodes, on this machine."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chaos.harms import Harm, Unavailable
from chaos.studies import Attempt


@cache
def _cluster() -> Any:
    """Two nodes of one core each, for as long as this process lasts."""
    try:
        from ray import cluster_utils
    except ImportError as error:
        raise Unavailable("ray is not installed") from error
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        found = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        found.add_node(num_cpus=1)
        return found


def close_cluster() -> None:
    """End the cluster, if there is one."""
    if _cluster.cache_info().currsize:
        _cluster().shutdown()
        _cluster.cache_clear()


def on_ray(
    harm: Callable[[Path], Any],
) -> Callable[[Path], Any]:
    """The same harm to a study on the cluster."""

    @contextmanager
    def make(folder: Path) -> Iterator[Harm]:
        address = _cluster().address
        with harm(folder) as found:
            yield Harm(**{**vars(found), "options": (*found.options, "--address", address)})

    return make


@contextmanager
def lose_node(_: Path) -> Iterator[Harm]:
    """SIGKILL for the raylet of a node other than the head, with its worker; a new node comes."""
    found = _cluster()

    def other_node() -> Any:
        (node,) = (node for node in found.list_all_nodes() if not node.head)
        return node

    def reaches(pid: int) -> bool:
        raylet = other_node().all_processes["raylet"][0].process.pid
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[1]) == raylet  # its parent
        return False

    def do(_: Attempt, __: int) -> str:
        found.remove_node(other_node(), allow_graceful=False)
        found.add_node(num_cpus=1)
        return "node lost"

    options = ("--address", found.address)
    yield Harm(do, reaches=reaches, once=False, options=options)
