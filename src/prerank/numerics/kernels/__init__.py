"""Kernels for GPUs, written in Triton, which comes with torch where there is a GPU.

Its modules are imported only by functions that have a plain form of the same computation, for
tensors on a GPU, and where `available` says so.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["available", "compilable", "fits", "launch"]

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


def launch(
    kernel: Any,
    tensors: Sequence[Tensor],
    *sizes: int,
    block: int,
    columns: int = 1,
    **options: int,
) -> None:
    """Run a kernel with `columns` programs for each row of the first tensor, on its device."""
    warps = 1 if block <= 128 else 4
    with torch.cuda.device(tensors[0].device):
        grid = len(tensors[0]), columns
        kernel[grid](*tensors, *sizes, block=block, num_warps=warps, **options)
