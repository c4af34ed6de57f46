"""Operations with a gradient of their own."""

import inspect
from typing import TYPE_CHECKING, Any

import torch

__all__ = ["QuickFunction"]


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
