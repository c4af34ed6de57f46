"""Exact counts: samples below a value, and members of a pool below each other."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prerank.numerics import join, row_blocks

__all__ = ["below_and_tied", "dominated"]

_MOST = np.iinfo(np.uint8).max  # comparisons that a byte can count
_COMPARED = 2**18  # pairs at a time


def below_and_tied(values: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    r"""Numbers of samples below a value, and of those equal to it.

    .. math:: \#\{ s : T_s < T \}, \qquad \#\{ s : T_s = T \}.

    On a CPU the comparisons are counted in bytes, and in blocks that stay within its cache.

    Args:
        values: T, `(..., J)`.
        samples: `(S, ..., J)`.

    Returns:
        Two of `(..., J)`, int32 on a CPU and int64 elsewhere.

    Example:
        >>> below, tied = below_and_tied(torch.tensor([2.0]), torch.tensor([[1.0], [2.0], [3.0]]))
        >>> below.item(), tied.item()
        (1, 1)
    """
    if samples.device.type != "cpu":
        return (samples < values).sum(0), (samples == values).sum(0)
    size, *shape = samples.shape
    rows = values.detach().expand(shape).reshape(-1, shape[-1])
    columns = samples.detach().reshape(size, *rows.shape)
    counts = np.zeros((2, *rows.shape), np.int32)
    for block in row_blocks(len(rows), 4 * shape[-1], samples):
        target, count = rows[block].reshape(-1).numpy(), counts[:, block].reshape(2, -1)
        for part in columns[:, block].split(_MOST):
            count += _few_below_and_tied(target, part.reshape(len(part), -1).numpy())
    below, tied = torch.from_numpy(counts).reshape(2, *shape)
    return below, tied


def _few_below_and_tied(
    values: NDArray[np.floating], samples: NDArray[np.floating]
) -> NDArray[np.uint8]:
    """Counts `(2, n)` for values `(n,)` and samples `(S, n)`, of which a byte can count all."""
    counts = np.zeros((2, len(values)), np.uint8)
    step = max(1, _COMPARED // len(values))
    for start in range(0, len(samples), step):
        part = samples[start : start + step]
        for row, compare in enumerate((np.less, np.equal)):
            counts[row] += compare(part, values).view(np.uint8).sum(0, dtype=np.uint8)
    return counts


def dominated(points: Tensor) -> Tensor:
    r"""Numbers of the other members of a pool that lie below each one, on a CPU.

    .. math:: T_i = \#\{ j \ne i : p_j \le p_i \text{ in every coordinate} \}.

    The members :math:`\{ j : p_{jd} \le p_{id} \}` are a set of bits for each i and d, 64 in a
    word, and T counts the bits that the sets of all coordinates share. Time grows with
    :math:`D S \log S`, of sorting, and :math:`D S^2 / 64`, of words, which at S = 1,000 take about
    half of it.

    Args:
        points: `(..., S, D)`.

    Returns:
        `(..., S)`, in the dtype of the points.

    Example:
        >>> dominated(torch.tensor([[1.0, 1.0], [0.0, 0.0], [2.0, 3.0], [3.0, 2.0]]))
        tensor([1., 0., 2., 2.])
    """
    shape, size = points.shape[:-1], points.shape[-2]
    rows = points.detach().reshape(-1, *points.shape[-2:])
    parts = []
    for block in row_blocks(len(rows), size * _words(size), points):
        lines = rows[block].movedim(-1, 0).contiguous().numpy()
        parts.append(torch.from_numpy(_shared_bits(lines)).to(points.dtype))
    return join(parts).reshape(shape)


def _shared_bits(lines: NDArray[np.floating]) -> NDArray[np.float32]:
    """Counts `(rows, S)` for the coordinates `(D, rows, S)` of a block of rows."""
    rows, size = lines[0].shape
    order, last = _flat_order(lines[0])
    # Members are numbered by their place in the first coordinate, whose sets are then known.
    numbers = np.empty(rows * size, np.int64)
    numbers[order] = np.arange(size)
    below = _first_sets(size).take(last, 0)
    for line in lines[1:]:
        below &= _lower_sets(line, numbers)
    # Sums along a short axis are slow, and products with ones are not.
    bits = np.bitwise_count(below).astype(np.float32) @ np.ones(_words(size), np.float32)
    counts = np.empty(rows * size, np.float32)
    counts[order] = bits - 1  # a member is not its own
    return counts.reshape(rows, size)


@cache
def _bits() -> NDArray[np.uint64]:
    return np.uint64(1) << np.arange(64, dtype=np.uint64)


def _first_sets(size: int) -> NDArray[np.uint64]:
    """Bits of the first 1, 2, ... members: `(S, words)`."""
    place = np.arange(size)
    sets = np.zeros((size, _words(size)), np.uint64)
    sets[place, place >> 6] = _bits()[place & 63]
    return np.bitwise_or.accumulate(sets, 0)


def _lower_sets(line: NDArray[np.floating], numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Bits of the members at or below each member, `(rows, S, words)`, both by their numbers."""
    rows, size = line.shape
    words, row = _words(size), np.arange(rows)[:, None]
    order, last = _flat_order(line)
    ordered = numbers.take(order)
    # Places in the order are cut into pieces, and the pieces lie side by side: then the sets of
    # all first places, all second ones and so on are joined with those before in one operation.
    length = int(np.ceil(size**0.5))
    pieces = -(-size // length)
    place = np.arange(size)
    spot = place % length * pieces + place // length
    sets = np.zeros((length, pieces, rows, words), np.uint64)
    where = (spot * rows + row) * words + (ordered >> 6)
    sets.reshape(-1)[where] = _bits().take(ordered & 63)
    for k in range(1, length):
        sets[k] |= sets[k - 1]
    sets[:, 1:] |= np.bitwise_or.accumulate(sets[-1, :-1], 0)
    found = np.empty(rows * size, np.int64)
    found[ordered + row * size] = spot.take(last) * rows + row
    return sets.reshape(-1, words).take(found, 0).reshape(rows, size, words)


def _flat_order(line: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices into all rows that sort each, and the last place that each place ties with."""
    rows, size = line.shape
    order = np.argsort(line, -1) + np.arange(rows)[:, None] * size
    ordered = line.reshape(-1).take(order)
    last = np.broadcast_to(np.arange(size), (rows, size))
    tied = ordered[:, :-1] == ordered[:, 1:]
    if tied.any():
        last = last.copy()
        last[:, :-1][tied] = size
        last = np.minimum.accumulate(last[:, ::-1], -1)[:, ::-1]
    return order, last


def _words(size: int) -> int:
    """Words of 64 bits for a set of members."""
    return -(-size // 64)
