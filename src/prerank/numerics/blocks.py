"""Rows in blocks: temporaries that fit the cache of a CPU or the memory of a GPU."""

import torch
from torch import Tensor

__all__ = ["join", "row_blocks"]

_CPU_VALUES = 2**18
_GPU_VALUES = 2**28


def row_blocks(rows: int, values_per_row: int, like: Tensor) -> list[slice]:
    """Cut rows into blocks for an operation with large temporaries.

    On a CPU memory that is written once and given back costs more than the arithmetic on it, so
    blocks stay within the cache; on a GPU every block costs launches, so they only bound the
    memory.

    Args:
        rows: how many there are.
        values_per_row: size of the temporaries of one row.
        like: a tensor on the device at hand.

    Example:
        >>> import torch
        >>> row_blocks(100, 2**12, torch.zeros(1))[:2]
        [slice(0, 64, None), slice(64, 100, None)]
    """
    limit = _CPU_VALUES if like.device.type == "cpu" else _GPU_VALUES
    size = max(1, limit // max(1, values_per_row))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def join(parts: list[Tensor]) -> Tensor:
    """Results of the blocks, one below the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
