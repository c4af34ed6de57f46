"""Global random states of torch and numpy, seeded for one call and put back."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seeded_numpy", "seeded_torch"]


@contextmanager
def seeded_torch(source: torch.Generator | None) -> Iterator[None]:
    """Run torch's global generators from a seed of `source`; without one, as they are.

    Example:
        >>> before = torch.get_rng_state()
        >>> with seeded_torch(torch.Generator().manual_seed(0)):
        ...     noise = torch.randn(3)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    if source is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(_seed(source, 2**62))
        yield


@contextmanager
def seeded_numpy(source: torch.Generator | None) -> Iterator[None]:
    """Run numpy's global generator from a seed of `source`; without one, as it is."""
    if source is None:
        yield
        return
    state = np.random.get_state()  # noqa: NPY002
    try:
        np.random.seed(_seed(source, 2**32))  # noqa: NPY002
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _seed(source: torch.Generator, bound: int) -> int:
    return int(torch.randint(bound, (), generator=source, device=source.device))
