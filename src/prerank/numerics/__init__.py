"""Arithmetic that knows nothing of distributions; here, what operations on rows share."""

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["QuickFunction", "join", "order_lines", "row_blocks"]


class QuickFunction(torch.autograd.Function):
    """`torch.autograd.Function` for short operations.

    torch looks up the signature of `forward` in every call of a function with `setup_context`,
    which takes longer than the arithmetic on a small batch. Here it is looked up once.

    Example:
        >>> class Double(QuickFunction):
        ...     @staticmethod
        ...     def forward(x):
        ...         return 2 * x
        ...
        ...     @staticmethod
        ...     def setup_context(ctx, inputs, output):
        ...         pass
        ...
        ...     @staticmethod
        ...     def backward(ctx, gradient):
        ...         return 2 * gradient
        >>> x = torch.ones(2, requires_grad=True)
        >>> torch.autograd.grad(Double.apply(x).sum(), x)
        (tensor([2., 2.]),)
    """

    if TYPE_CHECKING:  # torch's own has no types

        @classmethod
        def apply(cls, *args: Any) -> Any:
            """Compute the operation, and remember it for the gradient."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep the signature where `inspect` finds it."""
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__:
            forward: Any = cls.forward
            forward.__signature__ = inspect.signature(forward)


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


def order_lines(
    rows: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], tuple[int, int] | None]:
    """Lines by their rows and sample numbers, and the first two lines that agree in both.

    Args:
        rows: `(R,)`, the row of the observations that each line belongs to; negative ones are left
            out.
        numbers: `(R,)`, of the samples.

    Example:
        >>> order_lines(np.array([1, 0, -1, 0]), np.array([0, 1, 0, 0]))
        (array([3, 1, 0]), None)
    """
    found = np.flatnonzero(rows >= 0)
    order = found[np.lexsort((numbers[found], rows[found]))]
    again = np.flatnonzero((np.diff(rows[order]) == 0) & (np.diff(numbers[order]) == 0))
    pair = (int(order[again[0]]), int(order[again[0] + 1])) if len(again) else None
    return order, pair
