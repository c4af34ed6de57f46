"""Kernels: for GPUs in Triton, which comes with torch where there is one, for CPUs in numba.

Their modules are imported only where there is a plain form of the same computation: those in Triton
for tensors on a GPU, where `available` says so, those in numba where `numba_kernels` gives them.
`PRERANK_COMPILED=0` in the environment switches those in numba off.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

__all__ = ["available", "compilable", "fits", "launch", "numba_kernels", "numba_version"]

_NAME = f"{__name__}.cpu_kernels"
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


def numba_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels for CPUs if they can be used for these tensors, else None.

    They read float32 in memory of a CPU, and leave no graph of a gradient behind.
    """
    if os.environ.get("PRERANK_COMPILED") == "0" or torch.compiler.is_compiling():
        return None
    return _numba_kernels() if all(map(_readable, tensors)) else None


def numba_version() -> str | None:
    """Version of numba if this process has used its kernels, to be stated beside results."""
    return importlib.metadata.version("numba") if _NAME in sys.modules else None


def _readable(tensor: Tensor) -> bool:
    return (
        tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and type(tensor) in (Tensor, torch.nn.Parameter)  # others may mean something else
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


@functools.cache
def _numba_kernels() -> ModuleType | None:
    # numba refuses a numpy that is too new for it, and code without a place for its cache; with
    # its own switch on, it would interpret what it should compile. A settings file in the current
    # folder may name another cache, whose files are pickled: code of whoever wrote them would run.
    if os.path.lexists(".numba_config.yaml"):
        return None
    try:
        from numba import config

        return None if config.DISABLE_JIT else importlib.import_module(_NAME)
    except (ImportError, RuntimeError):
        return None


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
