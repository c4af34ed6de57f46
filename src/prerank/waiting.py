"""How threads of OpenMP wait for each other in a process of our own.

While one of several threads has no core, the others spin: on a busy machine a step then takes
many times the CPU time of one thread (`docs/results/speed.md`). Threads that sleep instead cost a
little where the machine is idle. The runtime, which torch loads, reads the environment once; a
program that imports prerank as a library decides for itself.
"""

TYPE_CHECKING = False  # as in typing, which takes longer to load than a command may be deaf
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["sleeping_threads"]

_DECIDING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def sleeping_threads(environment: "Mapping[str, str]") -> dict[str, str]:
    """Variables by which waiting threads sleep; none where the environment decides already.

    Example:
        >>> sleeping_threads({"HOME": "/root"})
        {'OMP_WAIT_POLICY': 'passive'}
        >>> sleeping_threads({"GOMP_SPINCOUNT": "1000"})
        {}
    """
    decided = any(name in environment for name in _DECIDING)
    return {} if decided else {"OMP_WAIT_POLICY": "passive"}
