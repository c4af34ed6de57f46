"""Arithmetic on lines of float32 numbers for kernels in numba.

Sums may be reordered, which the vectors of a processor need; NaN and infinities keep their meaning.
Sums of squares that could overflow are in float64.
"""

import functools
import math

import numpy as np
from numba import njit

__all__ = [
    "HALF",
    "ONE",
    "ROOT_TINY",
    "TINY",
    "TWO",
    "ZERO",
    "add",
    "exp",
    "kernel",
    "multiply",
    "rank",
    "spread",
]

kernel = functools.partial(
    njit, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)
ZERO, HALF, ONE, TWO = (np.float32(value) for value in (0, 0.5, 1, 2))
TINY = np.finfo(np.float32).tiny
ROOT_TINY = np.float32(math.sqrt(TINY))

# Cephes' polynomial for float32 (Moshier, 1989): exact to two roundings, and vectorisable.
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST, _HIGHEST, _INFINITE = np.float32(-87.0), np.float32(88.0), np.float32(np.inf)
_E0, _E1, _E2 = (np.float32(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3))
_E3, _E4 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1)


@kernel(inline="always")
def exp(x):
    """Exponential function, 0 and infinite where it nearly is."""
    inside = min(max(x, _LOWEST), _HIGHEST)
    power = np.floor(inside * _LOG2_E + HALF)
    r = (inside - power * _LN2_HIGH) - power * _LN2_LOW
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + HALF
    bits = np.int32((np.int32(power) + np.int32(127)) << np.int32(23))
    value = (p * (r * r) + r + ONE) * bits.view(np.float32) + (x - x)  # NaN stays NaN
    return ZERO if x < _LOWEST else (_INFINITE if x > _HIGHEST else value)


@kernel()
def add(target, d, sign, factors, lines, low, high):
    """Add lines `low` to `high` times factors to line d: four at a time, to load and store less."""
    size = lines.shape[1]
    whole = low + (high - low) // 4 * 4
    for e in range(low, whole, 4):
        f, g = sign * factors[e], sign * factors[e + 1]
        h, i = sign * factors[e + 2], sign * factors[e + 3]
        for s in range(size):
            target[d, s] += (
                f * lines[e, s] + g * lines[e + 1, s] + h * lines[e + 2, s] + i * lines[e + 3, s]
            )
    for e in range(whole, high):
        f = sign * factors[e]
        for s in range(size):
            target[d, s] += f * lines[e, s]


@kernel()
def multiply(target, line, d, lines, start, stop):
    """Add to `target` the products of line d with lines 0 to d, from `start` to `stop`."""
    whole = (d + 1) // 4 * 4
    for e in range(0, whole, 4):
        f = g = h = i = ZERO
        for s in range(start, stop):
            f += line[d, s] * lines[e, s]
            g += line[d, s] * lines[e + 1, s]
            h += line[d, s] * lines[e + 2, s]
            i += line[d, s] * lines[e + 3, s]
        target[d, e] += f
        target[d, e + 1] += g
        target[d, e + 2] += h
        target[d, e + 3] += i
    for e in range(whole, d + 1):
        f = ZERO
        for s in range(start, stop):
            f += line[d, s] * lines[e, s]
        target[d, e] += f


@kernel()
def spread(values, weights):
    """Weighted standard deviation, never zero."""
    total, mean, square = 0.0, 0.0, 0.0
    for s in range(len(weights)):
        total += weights[s]
        mean += weights[s] * values[s]
    total = max(total, float(TINY))
    mean /= total
    for s in range(len(weights)):
        square += weights[s] * (values[s] - mean) ** 2
    spread = np.float32(math.sqrt(square / total))
    return ROOT_TINY if spread < ROOT_TINY else spread


@kernel()
def rank(values, weights, tau, to_values, to_weights):
    """Smooth rank of the last value among the others, and its gradients."""
    size, own = len(weights), values[-1]
    width = spread(values, weights) / tau
    below, squares = ZERO, ZERO
    for s in range(size):
        sigmoid = ONE / (ONE + exp((values[s] - own) / width))
        to_weights[s] = sigmoid
        below += weights[s] * sigmoid
        squares += weights[s] * weights[s]
    n = ONE / max(squares, ROOT_TINY)
    whole = n / (n + ONE)
    by_size = TWO * whole * whole * (below - HALF)
    total = ZERO
    for s in range(size):
        sigmoid = to_weights[s]
        slope = sigmoid * (ONE - sigmoid) * weights[s] * (whole / width)
        to_values[s] = -slope
        total += slope
        to_weights[s] = whole * sigmoid - by_size * weights[s]
    to_values[size] = total
    return (n * below + HALF) / (n + ONE)
