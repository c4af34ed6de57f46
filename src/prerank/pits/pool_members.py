"""Ranks of an observation and of some members of its pool, chosen at random in each row."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.distributions.noise import standard_uniform

__all__ = ["member_pits"]

_CHUNK_VALUES = 2**19  # values of T at a time, which stay in the cache for all comparisons
_BYTE = 255  # numbers that a sum of bytes may reach


def member_pits(
    values: Tensor, members: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    r"""PITs of the first member of each pool and of others, each chosen at random.

    .. math:: Z_m = \frac{\#\{T_s < T_m\} + U_m \#\{T_s = T_m\}}{S + 1},

    with s over all S + 1 members of the pool, m itself among them. The choices are independent of
    each other and between rows, and any member may be chosen, the first too: so the first and the
    chosen ones are exchangeable where the members are. Only their places are counted, which is much
    less work than the ranks of all.

    Args:
        values: T of each member, `(S + 1, *batch, J)`.
        members: M, how many are chosen in each row.
        generator: source of the choices and of ties.

    Returns:
        PITs `(M + 1, *batch, J)`, and the share of the others with which the first one ties,
        `(..., J)`, the mean over the rows.

    Example:
        >>> z, ties = member_pits(torch.tensor([3.0, 1.0, 2.0, 3.0]).reshape(4, 1, 1), 2)
        >>> z.shape, bool(z[0] >= 0.5), ties
        (torch.Size([3, 1, 1]), True, tensor([0.3333]))
    """
    size, stack = len(values), [1] * (values.dim() - 3)
    rows, components = values.shape[-2:]
    device = values.device if generator is None else generator.device
    choice = torch.randint(size, (members, *stack, rows), generator=generator, device=device)
    choice = choice.to(values.device).expand(members, *values.shape[1:-1]).reshape(members, -1)
    shape = (members + 1, *stack, rows, components)
    uniform = standard_uniform(shape, like=values, generator=generator)
    by_row = values.reshape(size, -1, components)
    every = torch.arange(by_row.shape[1], device=values.device)
    chosen = torch.cat([by_row[:1], by_row[choice, every]]).flatten(1)
    flat = values.reshape(size, -1)
    below, up_to = _places(flat, chosen)
    tied = up_to - below
    z = below.to(values).reshape(members + 1, *values.shape[1:])
    z.addcmul_(uniform, tied.to(values).reshape(z.shape)).div_(size)
    ties = (tied[0] - 1).to(values).reshape(values.shape[1:]).mean(-2) / (size - 1)
    return z, ties


def _places(values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Number of values `(S + 1, C)` below each of the chosen ones `(M + 1, C)`, and up to it."""
    places = torch.empty(2, *chosen.shape, dtype=torch.int32, device=values.device)
    if values.device.type != "cpu":
        for m, one in enumerate(chosen):
            places[0, m], places[1, m] = (values < one).sum(0), (values <= one).sum(0)
        return places[0], places[1]
    size, columns = values.shape
    width = max(1, _CHUNK_VALUES // size)
    flags = np.empty((size, width), bool)
    found = places.numpy()
    for start in range(0, columns, width):
        part = np.ascontiguousarray(values[:, start : start + width].numpy())
        ones = chosen[:, start : start + width].numpy()
        is_so = flags[:, : part.shape[1]]
        for compare, counts in zip((np.less, np.less_equal), found, strict=True):
            for one, count in zip(ones, counts[:, start : start + width], strict=True):
                compare(part, one, out=is_so)
                _add_up(is_so, count)
    return places[0], places[1]


def _add_up(flags: npt.NDArray[np.bool_], count: npt.NDArray[np.int32]) -> None:
    """Sums over the first axis, written to `count`: as bytes, which are quick to add."""
    count[:] = np.add.reduce(flags[:_BYTE].view(np.uint8), 0, dtype=np.uint8)
    for start in range(_BYTE, len(flags), _BYTE):
        part = flags[start : start + _BYTE].view(np.uint8)
        count += np.add.reduce(part, 0, dtype=np.uint8)
