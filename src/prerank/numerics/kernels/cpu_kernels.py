"""Kernels in numba that Python calls, for contiguous float32 arrays.

numba compiles them in their first call, which takes some ten seconds, and keeps the machine code in
`__pycache__`, or in the user's cache where that cannot be written. It looks at the text of this
module alone: as closures over a stamp of all modules they are compiled again when any one changes.
"""

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from prerank.numerics.kernels.mixture_ranks import COPULA, DEPENDENCY, HDR, SCALE, rank_rows
from prerank.numerics.kernels.vectors import HALF, ONE, ZERO, exp, kernel

__all__ = [
    "COPULA",
    "DEPENDENCY",
    "HDR",
    "SCALE",
    "level_counts",
    "level_gradient",
    "mixture_ranks",
    "uniforms",
]

_TEXTS = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]


def _entries(stamp: str) -> tuple[Any, ...]:
    entry = functools.partial(kernel, cache=True)

    @entry()
    def mixture_ranks(*arguments):
        """See `rank_rows`."""
        assert stamp
        rank_rows(*arguments)

    @entry()
    def level_counts(z, levels, tau, counts):
        """Smooth numbers of PITs `(rows, N)` below levels `(L,)`, written to `(rows, L)`."""
        assert stamp
        for row in range(len(z)):
            for m in range(len(levels)):
                total = ZERO
                for i in range(z.shape[1]):
                    total += ONE / (ONE + exp(tau * (z[row, i] - levels[m])))
                counts[row, m] = total

    @entry()
    def level_gradient(z, levels, tau, to_counts, to_z):
        """Gradients `(rows, N)` of the PITs, given those of the counts `(rows, L)`."""
        assert stamp
        to_z[:] = ZERO
        for row in range(len(z)):
            for m in range(len(levels)):
                factor = tau * to_counts[row, m]
                for i in range(z.shape[1]):
                    sigmoid = ONE / (ONE + exp(tau * (z[row, i] - levels[m])))
                    to_z[row, i] -= factor * sigmoid * (ONE - sigmoid)

    @functools.partial(njit, cache=True, nogil=True)  # bit for bit: nothing is reordered
    def uniforms(keys, values):
        """Values of `RunNoise` for keys `(rows,)`, written to `(rows, count)`."""
        assert stamp
        for row in range(len(keys)):
            high, low = np.uint32(keys[row] >> np.uint64(32)), np.uint32(keys[row] & _LOW)
            for c in range(values.shape[1]):
                bits = _round(np.uint32(np.uint32(c) ^ high), _SHIFTS[0], _FACTORS[0], _FACTORS[1])
                bits = _round(np.uint32(bits ^ low), _SHIFTS[1], _FACTORS[2], _FACTORS[3])
                value = np.float32(np.int32(bits)) * _CELL + HALF
                values[row, c] = min(max(value, _SMALLEST), _LARGEST)

    return mixture_ranks, level_counts, level_gradient, uniforms


_LOW = np.uint64(0x7FFFFFFF)
_SHIFTS = np.uint32(13), np.uint32(15)
_FACTORS = tuple(np.uint32(f) for f in (0x85EBCA6B, 0xC2B2AE35, 0x7FEB352D, 0x846CA68B))
_CELL, _SMALLEST, _LARGEST = (np.float32(v) for v in (2.0**-32, 2.0**-33, 1 - 2.0**-24))
_HALF_WORD = np.uint32(16)


@njit(inline="always")
def _round(h, shift, first, second):
    # Products of 32 bits are numbers of 64 bits in numba.
    h = np.uint32((h ^ (h >> _HALF_WORD)) * first)
    h = np.uint32((h ^ (h >> shift)) * second)
    return np.uint32(h ^ (h >> _HALF_WORD))


mixture_ranks, level_counts, level_gradient, uniforms = _entries(
    hashlib.sha256(b"".join(_TEXTS)).hexdigest()
)
