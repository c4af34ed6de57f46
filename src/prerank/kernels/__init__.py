"""Kernels for GPUs, written in Triton, which comes with torch where there is a GPU.

Nothing imports this package but the functions that have a plain form of the same computation, and
they do so only for tensors on a GPU and where `available` says so.
"""

import importlib.util

from torch import Tensor

__all__ = ["available", "compiled"]

_TARGETS = 8  # beyond, the products of small matrices that torch has are faster
_DRAWS = 1024  # a program keeps all draws of its row


def available(columns: Tensor) -> bool:
    """Whether the kernels can take draws side by side, `(..., D, S)`."""
    dim, size = columns.shape[-2:]
    return dim <= _TARGETS and size <= _DRAWS and compiled(columns)


def compiled(tensor: Tensor) -> bool:
    """Whether kernels can be compiled for the device of this tensor."""
    return tensor.is_cuda and importlib.util.find_spec("triton") is not None
