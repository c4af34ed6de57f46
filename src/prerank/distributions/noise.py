"""Standard noise from a generator, the same numbers on every device."""

import torch
from torch import Tensor

__all__ = ["standard_normal", "standard_uniform"]


def standard_normal(
    shape: tuple[int, ...], *, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw independent N(0, 1) values with the dtype and device of `like`."""
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def standard_uniform(
    shape: tuple[int, ...], *, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw independent uniform values on [0, 1) with the dtype and device of `like`."""
    device = like.device if generator is None else generator.device
    return torch.rand(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)
