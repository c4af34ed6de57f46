"""Kernels for GPUs, written in Triton, which comes with torch where there is a GPU.

Nothing imports this package but the functions that have a plain form of the same computation, and
they do so only for tensors on a GPU and where `available` says so.
"""

import importlib.util

from torch import Tensor

__all__ = ["available"]


def available(tensor: Tensor) -> bool:
    """Whether the kernels can take this tensor."""
    return tensor.is_cuda and importlib.util.find_spec("triton") is not None
