"""Kernels for GPUs, written in Triton, which comes with torch where there is a GPU.

Its modules are imported only by functions that have a plain form of the same computation, for
tensors on a GPU, and where `available` says so.
"""

import importlib.util

import torch
from torch import Tensor

__all__ = ["available", "compilable", "fits"]

_TARGETS = 8  # beyond, the products of small matrices that torch has are faster
_DRAWS = 1024  # a program keeps all draws of its row


def available(columns: Tensor) -> bool:
    """Whether to use the kernels for draws side by side, `(..., D, S)`, inside a `Function`.

    Gradients are enabled there only where a graph of the gradient itself is wanted, which kernels
    do not leave behind.
    """
    return fits(columns) and not torch.is_grad_enabled()


def fits(columns: Tensor) -> bool:
    """Whether the kernels can take draws side by side."""
    dim, size = columns.shape[-2:]
    return dim <= _TARGETS and size <= _DRAWS and compilable(columns)


def compilable(tensor: Tensor) -> bool:
    """Whether kernels can be compiled for this tensor; under vmap it has no memory of its own."""
    return (
        tensor.is_cuda
        and importlib.util.find_spec("triton") is not None
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )
